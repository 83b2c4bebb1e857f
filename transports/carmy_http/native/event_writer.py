"""One task that tells the clients of all streams what happens, so that a stream that is silent costs neither task nor timer.

A call runs in the task of its request. Its events wait in an `Outlet` until the teller comes round, which is before anything
else happens: most are written there and then. Only a client that does not take them gets a task, for as long as it lags behind.
"""

from __future__ import annotations

import functools
import itertools
import math
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import trio

from carmy_engine.transport import EventBuffer, RateLimitedLogger, contain

from ..api import event_response
from .socket_io import send_all, send_now, send_rest

MAX_AT_ONCE = 64
"""Clients that are told before other tasks have their turn."""

MAX_PIECE_BYTES = 64 * 1024
"""Of events, after which no more are added to a piece. What is taken no longer holds up the tool, so it must not be much."""


class Outlet(EventBuffer):
    """The events of one call, on their way to a client.

    Args:
        teller: Writes them.
        sock: The client's socket. Never closed here.
        before: Goes before the first event.
        chunked: Write each piece as a chunk.
        gone: Called when the client has gone, or takes nothing, or cannot be told: is to cancel the call and end the connection.
    """

    __slots__ = ("_before", "_chunked", "_gone", "_sock", "_teller", "_writing")

    def __init__(
        self, teller: Teller, sock: socket.socket, before: bytes, *, chunked: bool, gone: Callable[[], None]
    ) -> None:
        super().__init__()
        self._teller = teller
        self._sock = sock
        self._before = before
        self._chunked = chunked
        self._gone = gone
        self._writing: trio.Event | None = None  # until what did not leave at once has left

    async def follow(self, call: event_response.EventResponse) -> bytes | None:
        """Run a call and tell the client about it. Returns what is still to be sent, None when it broke off.

        When cancelled, a piece may still be on its way until the socket is closed.
        """
        try:
            await call.execute_into(self)
            if self._writing is not None:
                await self._writing.wait()
            if self._closed:
                return None
            return b"".join([*iter(self._piece, b""), self._framed(b"")])
        except BaseException as error:  # noqa: BLE001 - the boundary of one call, see `_write`
            contain(error, self._teller.log, "a stream broke off")
            return None
        finally:
            self.close()
            self._teller.forget(self)

    def has_news(self) -> None:
        """See `EventBuffer`."""
        self._teller.notice(self)

    def write(self) -> None:
        """Write what there is, and in a task of its own what the client does not take at once."""
        if self._writing is None:
            self._write(b"")

    def beat(self) -> None:
        """Tell that nothing has happened."""
        self._write(self._framed(event_response.HEARTBEAT))

    def _piece(self) -> bytes:
        """Some events as they are written; empty when there are none."""
        frames: list[bytes] = []
        size = 0
        while size < MAX_PIECE_BYTES and (event := self.take()) is not None:
            frames.append(event_response.frame(event))
            size += len(frames[-1])
        return self._framed(b"".join(frames)) if frames else b""

    def _framed(self, data: bytes) -> bytes:
        """A piece, or without data the end."""
        before, self._before = self._before, b""
        return b"%b%x\r\n%b\r\n" % (before, len(data), data) if self._chunked else before + data

    def _write(self, data: bytes) -> None:
        try:
            while data or (data := self._piece()):
                sent = send_now(self._sock, data)
                if sent != len(data):
                    self._writing = trio.Event()
                    self._teller.start(self, functools.partial(self._write_on, data, sent))
                    return
                data = b""
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one call, here and below: one that cannot be told must not end all others. The head is out, so the
            # body just ends, without a proper end, which is how a client can tell.
            self._give_up()
            contain(error, self._teller.log, "a stream broke off")
        else:
            self._teller.has_told(self)

    async def _write_on(self, data: bytes, sent: int) -> None:
        """Write the rest of a piece, and what comes meanwhile, until the client has caught up."""
        done = False
        try:
            if self._sock.fileno() < 0:
                raise trio.ClosedResourceError
            done = await send_rest(self._sock, data, sent, self._teller.log)
            while done and (data := self._piece()):
                done = await send_all(self._sock, data, self._teller.log)
        except trio.ClosedResourceError:
            pass  # the connection has ended
        except BaseException as error:  # noqa: BLE001 - as above
            done = False
            contain(error, self._teller.log, "a stream broke off")
        finally:
            assert self._writing is not None
            self._writing.set()
            self._writing = None
        if not self._closed:
            if done:
                self._teller.notice(self)
            else:
                self._give_up()

    def _give_up(self) -> None:
        """Tell nothing more, not even the end: something before it would be missing."""
        self.close()
        self._teller.forget(self)
        self._gone()


class Teller:
    """Writes the events of outlets, and heartbeats where there are none.

    Attributes:
        log: For what a client does.
    """

    def __init__(self, log: RateLimitedLogger) -> None:
        self.log = log
        self._news: dict[Outlet, None] = {}
        self._told: OrderedDict[Outlet, float] = OrderedDict()
        """When, on trio's clock; the earliest first."""
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None

    def notice(self, outlet: Outlet) -> None:
        """It has news."""
        self._news[outlet] = None
        self._wake.set()

    def has_told(self, outlet: Outlet) -> None:
        """From now on its client waits."""
        self._told[outlet] = trio.current_time()
        self._told.move_to_end(outlet)

    def start(self, outlet: Outlet, write: Callable[[], Awaitable[None]]) -> None:
        """Start a task that writes for an outlet. It must end with its connection. It gets no heartbeat meanwhile."""
        assert self._nursery is not None
        self._told.pop(outlet, None)
        self._nursery.start_soon(write)

    def forget(self, outlet: Outlet) -> None:
        """Nothing more is to be told there."""
        self._news.pop(outlet, None)
        self._told.pop(outlet, None)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                with trio.CancelScope(deadline=self._next_beat()):
                    await self._wake.wait()
                self._wake = trio.Event()
                for outlet in [*itertools.islice(self._news, MAX_AT_ONCE)]:
                    del self._news[outlet]
                    outlet.write()
                if self._news:
                    self._wake.set()
                for outlet in [*itertools.islice(self._told, MAX_AT_ONCE)]:
                    if self._next_beat() > trio.current_time():
                        break
                    del self._told[outlet]
                    outlet.beat()

    def _next_beat(self) -> float:
        return next(iter(self._told.values()), math.inf) + event_response.HEARTBEAT_SECONDS
