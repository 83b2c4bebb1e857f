"""A connection of the native front end that the pump serves, unless a request comes in more than one piece."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import Any

import trio

from carmy_engine.transport import contain
from carmy_net.http1 import END_OF_HEAD, FramingError

from ..api.endpoints import Endpoints
from .connection import NativeConnection
from .leader_follower import Pump
from .request import NativeRequest
from .socket_io import READ_BYTES, send_now, send_rest
from .surroundings import Surroundings
from .timeouts import Keeper

_CR = 0x0D


class ParkedConnection(NativeConnection):
    """One client's connection. Its own task sleeps while the pump serves it; see `NativeConnection` for the arguments."""

    def __init__(
        self,
        stream: trio.SocketStream,
        endpoints: Endpoints,
        keeper: Keeper,
        around: Surroundings,
        pump: Pump,
        *,
        header_seconds: float,
    ) -> None:
        super().__init__(stream, endpoints, keeper, around, header_seconds=header_seconds)
        self._pump = pump
        self._task: trio.lowlevel.Task | None = None  # while it sleeps
        self._pumped = False  # the pump answers a request
        self._pumped_scope: trio.CancelScope | None = None  # once that has had to wait
        self._released = False  # by the pump, until the answer is written
        self._unsent: tuple[bytes, int] | None = None  # an answer, and how much of it has been sent
        self._ended: bool | None = None

    async def _idle(self) -> bool | None:
        self._ended = None
        descriptor = self._socket.fileno()
        try:
            while True:
                self._pump.park(descriptor, self)
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._leave_sleep)
                if self._unsent is not None and not await self._send_unsent(*self._unsent):
                    return False
                if self._is_needed():
                    return self._ended
        finally:
            self._pump.release(descriptor)
            if self._pumped_scope is not None:
                self._pumped_scope.cancel()

    async def _send_unsent(self, data: bytes, sent: int) -> bool:
        """Send the rest of an answer. False when the client has gone."""
        self._unsent = None
        self._pump.release(self._socket.fileno())
        if not await send_rest(self._socket, data, sent, self._around.log):
            return False
        self._answer_ends()
        return True

    def _is_needed(self) -> bool:
        """Its own task has something to do."""
        return self._ended is not None or bool(self._buffer)

    def _leave_sleep(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def ready(self) -> Coroutine[Any, Any, None] | None:
        """See `Parked`: take a request that is here in one piece; leave everything else to the connection's own task."""
        if self._pumped:
            if self._waiting:
                self._take_news()
            else:
                # An answer is being written, and nothing is read meanwhile.
                self._pump.release(self._socket.fileno())
                self._released = True
            return None
        if self._task is None:
            return None
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._ended = False
        else:
            end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
            if end >= len(END_OF_HEAD) and data[0] != _CR:
                try:
                    head = self._around.read(data[:end])
                except FramingError:
                    pass  # its own task finds the same, and answers
                else:
                    if head.length == len(data) - end:
                        self._answer_begins(head)
                        self._pumped = True
                        return self._reply_pumped(NativeRequest(head, self, data[end:]))
            self._buffer += data
        self._wake()
        return None

    async def _reply_pumped(self, request: NativeRequest) -> None:
        try:
            self._ended = await self._reply(request)
        except trio.ClosedResourceError:
            self._ended = False  # its own task has been cancelled, and closed the socket
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection
            self._ended = False
            contain(error, self._around.log, "a connection failed")
        finally:
            self._pumped = False
            self._pumped_scope = None
        if self._is_needed() or self._released:
            self._released = False
            self._wake()

    def fail(self) -> None:
        """See `Parked`."""
        self._pumped = False
        self._ended = False
        self._wake()

    def waits(self, scope: trio.CancelScope) -> None:
        """See `Parked`."""
        self._pumped_scope = scope
        if self._end is not None:
            scope.cancel()

    def _hold(self, data: bytes) -> bool:
        return self._pumped and self._pumped_scope is None and self._pump.hold(self, data)

    def send_held(self, data: bytes) -> None:
        """See `Parked`. What cannot be sent at once is left to the connection's own task."""
        sent = send_now(self._socket, data)
        if sent != len(data):
            self._unsent = data, sent
            self._answering = True
            self.limit = math.inf
            self._wake()

    def watch(self) -> trio.CancelScope:
        """See `Origin`. The pump notices the client's end without a watcher."""
        if not self._pumped:
            return super().watch()
        self._waiting = True
        return self._scope

    def _gone(self) -> None:
        super()._gone()
        if self._pumped_scope is not None:
            self._pumped_scope.cancel()
