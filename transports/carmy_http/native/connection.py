"""A connection of the native front end: HTTP/1.1 on a socket of trio, for the project's own endpoints.

A request costs one parse and one send, and no task, timer, channel or scope of its own. Two tasks can serve it:

- The dispatcher (`leader_follower`) reads idle connections. It runs a request that arrives in one piece, while the connection's own
  task sleeps.
- The connection's own task handles everything else: requests in several pieces, pipelined ones, and all requests where there is no
  epoll. If its call takes longer than `QUICK_SECONDS`, a second task reads on, to detect the client's end.

Heads and bodies are read by `carmy_net.http1`, as on the other front end. Every write has a time limit, and the failure of a connection
ends that connection only.
"""

from __future__ import annotations

import enum
import functools
import math
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import trio

from carmy_engine.abc import PeerProcess
from carmy_engine.errors import AgentError
from carmy_engine.transport import contain
from carmy_net import process_of
from carmy_net.http1 import END_OF_HEAD, BodyReader, FramingError, HeadReader

from ..limits import READ_BYTES
from ..message import Answer, Disconnected, Response, body_too_large, render_response
from .body_writer import NativeBodyWriter
from .event_writer import EventSink
from .request import Head, NativeRequest
from .shared_state import SharedState
from .socket_io import has_data, linger, send_all, send_now, send_rest
from .timeouts import Timeouts

QUICK_SECONDS = 0.005
"""A call that ends within this time, or before two rounds of `Timeouts`, does not need its client's end detected."""

RESERVED_HEADER_SECONDS = 1.0
"""For a head on a connection beyond the limit. Such connections are few, and serve short requests about health."""

FULL_RETRY_SECONDS = 1
"""``Retry-After`` of an answer that refuses a connection beyond the limit."""

_CR = 0x0D


class _CancelReason(enum.Enum):
    """The reason why a connection's scope was cancelled."""

    LATE = enum.auto()
    GONE = enum.auto()


class _Refused(Disconnected):
    """A body that is not valid HTTP: the connection answers it, not the endpoints."""

    def __init__(self, error: FramingError) -> None:
        super().__init__(error)
        self.error = error


class Timer:
    """The time limit of a connection's current step.

    Args:
        timeouts: Checks it between `Timeouts.add` and `Timeouts.discard`.

    Attributes:
        limit: Of the current step, in seconds; infinite for none.
        step: Counts the steps.
        seen_step: `step` as of the last round. Set by `Timeouts`.
        seen_at: The time of the round that first saw this step, on trio's clock. Set by `Timeouts`.
        idle: The step did not change during a round. Set by `Timeouts`.
    """

    __slots__ = ("_timeouts", "idle", "limit", "seen_at", "seen_step", "step")

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self.limit = math.inf
        self.step = 0
        self.seen_step = -1
        self.seen_at = 0.0
        self.idle = False

    def start(self, seconds: float) -> None:
        """Begin a step with a limit."""
        self.limit = seconds
        self.step += 1
        if self.idle:
            self._timeouts.wake(self)

    def stop(self) -> None:
        """Remove the limit of the current step."""
        self.limit = math.inf


class NativeConnection:
    """One client's connection, from its acceptance to its end.

    Methods that return ``bool | None`` return None when another request may follow, and otherwise whether to linger: True after the
    last answer, False when the client has gone.

    Args:
        shared: The server's state.
        stream: The socket. Closed at the end of `run`.
        reserved: The connection is beyond the limit, and for requests about health only.

    Attributes:
        peer: The client's address, None where it has none.
        timer: Limits the time of the current step.
    """

    def __init__(self, shared: SharedState, stream: trio.SocketStream, *, reserved: bool = False) -> None:
        # Trio's own socket checks, and then waits, each time; here most operations need no waiting or nothing else.
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)
        self._shared = shared
        self._dispatcher = None if reserved else shared.dispatcher
        self._limits = shared.settings
        seconds = shared.settings.header_timeout_secs
        self._header_seconds = min(seconds, RESERVED_HEADER_SECONDS) if reserved else seconds
        self._reserved = reserved
        self._scope = trio.CancelScope()
        self._cancel_reason: _CancelReason | None = None
        self._buffer = bytearray()
        self._heads = HeadReader(shared.settings.max_head_bytes)
        self._receiving_head = False
        self._answering = False
        self._sent_continue = True
        self._watching = False  # within `NativeRequest.while_connected`
        self._reader: trio.CancelScope | None = None  # of the task that reads on during a call
        self._sleeper: trio.lowlevel.Task | None = None  # its own task, while the dispatcher serves the connection
        self._dispatched = False  # the dispatcher runs a call
        self._blocked_scope: trio.CancelScope | None = None  # of a dispatched call that has had to wait
        self._removed = False  # from the dispatcher, until the answer is written
        self._unsent: tuple[bytes, int] | None = None  # an answer, and how much of it has been sent
        self._ended: bool | None = None
        self.peer: str | None = None
        self.process: PeerProcess | None = None
        self.timer = Timer(shared.timeouts)
        self.timer.start(self._header_seconds)

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but the cancel of a scope round it, and a Ctrl-C.

        Leaves the socket closed, also when cancelled.
        """
        self._shared.timeouts.add(self.timer, self.on_timeout)
        try:
            name: tuple[object, ...] | str = self._socket.getpeername()
            self.peer = None if isinstance(name, str) else str(name[0])  # a path for unix sockets
            self.process = process_of(self._socket)
            lingers = False
            with self._scope:
                lingers = await self._serve()
            self.timer.stop()
            if self._cancel_reason is _CancelReason.LATE and self._buffer:
                lingers = await self._send(self._refusal(408, "the request's head did not arrive in time"))
            if lingers:
                await linger(self._socket, self._limits)
        except OSError:
            pass  # the client reset the connection
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection
            contain(error, self._shared.log, "a connection failed")
        finally:
            self._shared.timeouts.discard(self.timer)
            if self._socket.fileno() >= 0:
                trio.lowlevel.notify_closing(self._socket)
                self._socket.close()

    def drain(self) -> None:
        """Close the connection as soon as no answer is owed, because the server stops."""
        if not self._answering and not self._buffer:
            self.timer.start(self._limits.last_request_secs)

    def on_timeout(self) -> None:
        """Read on during a call that takes longer, or end a connection whose request is late. See `Timeouts.add`."""
        self.timer.stop()
        if self._watching:
            self._reader = trio.CancelScope()
            self._shared.timeouts.start(functools.partial(self._read_on, self._reader))
        elif not self._answering and not self._buffer and has_data(self._socket):
            self.timer.start(self._header_seconds)  # the server is late, not the client
        elif not self._answering:
            self._cancel(_CancelReason.LATE)

    # Requests, one after the other

    async def _serve(self) -> bool:
        while True:
            if not self._buffer and self._dispatcher is not None and (ended := await self._sleep()) is not None:
                return ended
            try:
                request = await self._next_request()
            except FramingError as error:
                return await self._send(self._refusal(error.status, error.reason))
            if request is None:
                return False
            ended = await self._reply(*request)
            if ended is not None:
                return ended
            if self._buffer:
                await trio.lowlevel.checkpoint()  # a client that pipelines must not keep others waiting

    async def _next_request(self) -> tuple[Head, NativeRequest] | None:
        """The next request; None when the client has left instead.

        Raises:
            FramingError: The bytes are not a request.
        """
        buffer = self._buffer
        while True:
            raw = self._heads.take(buffer)
            if raw is not None:
                head = self._shared.heads.parse(raw)
                self._begin_answer(head)
                body = BodyReader(head.length, self._limits.max_body_bytes)
                body.take(buffer)
                return head, NativeRequest(head, self, body)
            if not self._receiving_head and buffer.strip(b"\r"):  # empty lines do not extend the time
                self._receiving_head = True
                self.timer.start(self._header_seconds)
            data = await self._receive()
            if not data:
                return None
            buffer += data

    async def _reply(self, head: Head, request: NativeRequest) -> bool | None:
        """Answer a request."""
        try:
            answer = await (
                self._answer_reserved(request) if self._reserved else self._shared.endpoints.answer(request)
            )
        except _Refused as refused:
            return await self._send(self._refusal(refused.error.status, refused.error.reason))
        except Disconnected:
            return False
        # The unread rest of a body is not read, so the connection cannot be used again.
        ends = not head.keep_alive or not request.is_read or self._reserved or self._shared.is_draining()
        if isinstance(answer, Response):
            data: bytes | None = render_response(answer, with_body=head.method != "HEAD", ends=ends)
        else:
            log = self._shared.log
            data = await NativeBodyWriter(answer, head, self._send_piece, self._make_sink, ends=ends, log=log).write()
        if data is None or not (self._defer_send(data) or await self._send(data)):
            return False
        if ends:
            return True
        self._end_answer()
        return None

    async def _answer_reserved(self, request: NativeRequest) -> Answer:
        is_full = self._shared.is_full()
        route = self._shared.endpoints.find_route(request.head)
        if is_full and (route is None or not route.is_open):
            return self._shared.endpoints.refuse(_no_room(), self.peer)
        self._reserved = is_full
        return await self._shared.endpoints.answer(request)

    def _refusal(self, status: int, reason: str) -> bytes:
        return render_response(self._shared.endpoints.refusal(status, reason, self.peer), with_body=True, ends=True)

    def _begin_answer(self, head: Head) -> None:
        """A head is complete. From here on the endpoints bound the time."""
        self.timer.stop()
        self._answering = True
        self._receiving_head = False
        self._sent_continue = not head.expects_continue

    def _end_answer(self) -> None:
        """Another request may follow."""
        self._answering = False
        draining = self._shared.is_draining()  # since the answer was rendered, without "connection: close"
        self.timer.start(self._limits.last_request_secs if draining else self._limits.keep_alive_secs)

    async def next_chunk(self, body: BodyReader) -> bytes:
        """The next piece of the current request's body; empty at its end.

        Raises:
            Disconnected: The client left before the end, or sent bytes that are not a body.
            Refusal: The client has announced more bytes than are allowed.
        """
        while not body.pending and not body.complete:
            if body.is_too_large:
                raise body_too_large(self._limits.max_body_bytes)
            if not self._sent_continue and not self._buffer:
                self._sent_continue = True
                if not await self._send(b"HTTP/1.1 100 \r\n\r\n"):
                    raise Disconnected
            try:
                data = await self._receive()
            except OSError:
                raise Disconnected from None
            if not data:
                raise Disconnected
            if not self._buffer and body.passes(data):
                return data
            self._buffer += data
            try:
                body.take(self._buffer)
            except FramingError as error:
                raise _Refused(error) from None
        return body.read()

    # The dispatcher

    async def _sleep(self) -> bool | None:
        """Let the dispatcher serve the connection, until there is something for its own task to do."""
        assert self._dispatcher is not None
        self._ended = None
        descriptor = self._socket.fileno()
        try:
            while True:
                self._dispatcher.add(descriptor, self)
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort_sleep)
                if self._unsent is not None and not await self._send_unsent(*self._unsent):
                    return False
                if self._has_work():
                    return self._ended
        finally:
            self._dispatcher.remove(descriptor)
            if self._blocked_scope is not None:
                self._blocked_scope.cancel()

    def _abort_sleep(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _has_work(self) -> bool:
        return self._ended is not None or bool(self._buffer)

    def _wake(self) -> None:
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    def _remove(self) -> None:
        assert self._dispatcher is not None
        self._dispatcher.remove(self._socket.fileno())

    def on_readable(self) -> Coroutine[Any, Any, None] | None:
        """Return a call for a request that has arrived in one piece; wake the connection's own task for the rest. See `IdleConnection`."""
        if self._dispatched:
            if self._watching:
                self._read_ahead()
            else:
                self._remove()  # an answer is being written, and nothing is read meanwhile
                self._removed = True
            return None
        if self._sleeper is None:
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
                    head = self._shared.heads.parse(data[:end])
                except FramingError:
                    pass  # its own task parses the head again, and answers
                else:
                    if head.length == len(data) - end:
                        self._begin_answer(head)
                        self._dispatched = True
                        return self._reply_dispatched(head, NativeRequest(head, self, data[end:]))
            self._buffer += data
        self._wake()
        return None

    async def _reply_dispatched(self, head: Head, request: NativeRequest) -> None:
        try:
            self._ended = await self._reply(head, request)
        except trio.ClosedResourceError:
            self._ended = False  # its own task has been cancelled, and closed the socket
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection
            self._ended = False
            contain(error, self._shared.log, "a connection failed")
        finally:
            self._dispatched = False
            self._blocked_scope = None
        if self._has_work() or self._removed:
            self._removed = False
            self._wake()

    def on_failure(self) -> None:
        """See `IdleConnection`."""
        self._dispatched = False
        self._ended = False
        self._wake()

    def on_blocked(self, scope: trio.CancelScope) -> None:
        """See `IdleConnection`."""
        self._blocked_scope = scope
        if self._cancel_reason is not None:
            scope.cancel()

    def _defer_send(self, data: bytes) -> bool:
        return (
            self._dispatched
            and self._blocked_scope is None
            and self._dispatcher is not None
            and self._dispatcher.defer_send(self, data)
        )

    def send_deferred(self, data: bytes) -> None:
        """See `IdleConnection`. The connection's own task sends the bytes that cannot be sent at once."""
        sent = send_now(self._socket, data)
        if sent != len(data):
            self._unsent = data, sent
            self._answering = True
            self.timer.stop()
            self._wake()

    async def _send_unsent(self, data: bytes, sent: int) -> bool:
        """Send the rest of an answer. False when the client has gone."""
        self._unsent = None
        self._remove()
        if not await send_rest(self._socket, data, sent, self._limits.write_timeout_secs, self._shared.log):
            return False
        self._end_answer()
        return True

    # The socket

    async def _receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if self._cancel_reason is not None:
                await trio.lowlevel.checkpoint()  # cancelled at the moment when the bytes arrived
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue

    async def _send(self, data: bytes) -> bool:
        return await send_all(self._socket, data, self._limits.write_timeout_secs, self._shared.log)

    async def _send_piece(self, data: bytes) -> None:
        if not await self._send(data):
            self._cancel(_CancelReason.GONE)
            await trio.lowlevel.checkpoint()

    def _make_sink(self, frame: Callable[[bytes], bytes]) -> EventSink:
        cancel = functools.partial(self._cancel, _CancelReason.GONE)
        return EventSink(self._shared.event_writer, self._socket, frame, cancel)

    # The client's end

    def watch(self) -> None:
        """Cancel the connection when the client closes it, until `unwatch`."""
        self._watching = True
        if not self._dispatched:  # else the dispatcher reads
            self.timer.start(QUICK_SECONDS)

    def unwatch(self) -> None:
        """End what `watch` has begun."""
        self._watching = False
        if self._dispatched:
            return
        self.timer.stop()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read_on(self, scope: trio.CancelScope) -> None:
        """Read while a call runs: the next requests, within bounds, or the client's end."""
        try:
            with scope:
                while self._reader is scope:  # the call may have ended before this task has begun
                    await trio.lowlevel.wait_readable(self._socket)
                    if self._reader is scope:  # the call may have ended at the moment when the bytes arrived
                        self._read_ahead()
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection: others have the same nursery
            self._cancel(_CancelReason.GONE)
            contain(error, self._shared.log, "a connection failed")

    def _read_ahead(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        is_flood = len(self._buffer) > self._limits.max_pipelined_bytes
        if data and not is_flood:
            return
        if is_flood:
            self._shared.log.warning(
                "closing a connection: more than %d bytes behind a request", self._limits.max_pipelined_bytes
            )
        self._cancel(_CancelReason.GONE)
        self._reader = None  # nothing more is read

    def _cancel(self, reason: _CancelReason) -> None:
        self._cancel_reason = self._cancel_reason or reason
        self._scope.cancel()
        if self._blocked_scope is not None:
            self._blocked_scope.cancel()


def _no_room() -> AgentError:
    """The error of all but requests about health on a connection beyond the limit."""
    return AgentError.standard(
        "OVERLOADED",
        "the server has as many connections as it may (http.max_connections); only /health and /ready are answered",
        retry_after=FULL_RETRY_SECONDS,
    )
