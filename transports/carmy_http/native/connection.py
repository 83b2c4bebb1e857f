"""The native front end: HTTP/1.1 on trio's sockets, for our own endpoints and nothing else.

One task for each connection reads a request, has it answered and writes the answer: one parse, one send, and no task,
timer, channel or scope for each request. What a request needs only when it takes longer is begun only then, by the
`Keeper`: a task that reads on, which notices the client's end and what is pipelined. On Linux that task sleeps most of the
time, and the `Pump` serves the requests that come in one piece: see `_native_parked`.

The rules are those of the other front end: heads and bodies are read by `carmy_net.http1`, every write has
a time limit, and a connection's failure is its own.
"""

from __future__ import annotations

import enum
import functools
import math
import socket

import trio

from carmy_engine.transport import contain
from carmy_net.http1 import BodyReader, FramingError, HeadReader

from .. import limits
from ..api.endpoints import Endpoints, route_of
from ..api.event_response import EventResponse
from ..http1.response_bytes import whole
from ..message import Answer, Disconnected, Response
from .event_writer import Outlet
from .head import Head
from .request import NativeRequest
from .responses import no_room, stream_head, write_stream
from .socket_io import READ_BYTES, has_come, linger, send_all
from .surroundings import Surroundings
from .timeouts import Keeper

QUICK_SECONDS = 0.005
"""A call that is over by then, or before the keeper has been there twice, needs nobody to notice that its client has gone."""

RESERVED_HEADER_SECONDS = 1.0
"""For a head on a connection beyond the limit. Such connections are few, and there for quick questions about health."""


class _End(enum.Enum):
    """Why a connection's scope was cancelled."""

    LATE = enum.auto()
    GONE = enum.auto()


class _Refused(Disconnected):
    """A body that is no valid HTTP: for the connection, and not for the endpoints."""

    def __init__(self, error: FramingError) -> None:
        super().__init__(error)
        self.error = error


class NativeConnection:
    """One client's connection, from its acceptance to its end.

    Args:
        stream: The socket. Closed at the end of `run`.
        endpoints: What answers.
        keeper: Looks after the connection.
        around: The server.
        header_seconds: For the head of a request.
        reserved: It is beyond the limit of connections, and there for health only.

    Attributes:
        step: See `Kept`; so are the next four.
        limit: …
        seen_step: …
        seen_at: …
        still: …
        peer: The client's address, None where there is none.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        endpoints: Endpoints,
        keeper: Keeper,
        around: Surroundings,
        *,
        header_seconds: float,
        reserved: bool = False,
    ) -> None:
        # Trio's own socket checks, and then waits, each time; here most operations need no waiting or nothing else.
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)
        self._endpoints = endpoints
        self._keeper = keeper
        self._around = around
        self._header_seconds = min(header_seconds, RESERVED_HEADER_SECONDS) if reserved else header_seconds
        self._reserved = reserved
        self._scope = trio.CancelScope()
        self._end: _End | None = None
        self._buffer = bytearray()
        self._heads = HeadReader()
        self._expecting = False
        self._answering = False
        self._asked_to_continue = True
        self._waiting = False  # in the watched block
        self._watcher: trio.CancelScope | None = None
        self.peer: str | None = None
        self.step = 0
        self.limit = self._header_seconds
        self.seen_step = -1
        self.seen_at = 0.0
        self.still = False

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but the cancel of a scope round it, and a Ctrl-C.

        Leaves the socket closed, also when cancelled.
        """
        self._keeper.add(self)
        try:
            name: tuple[object, ...] | str = self._socket.getpeername()
            self.peer = None if isinstance(name, str) else str(name[0])  # a path for unix sockets
            last = False
            with self._scope:
                last = await self._serve()
            self.limit = math.inf
            if self._end is _End.LATE and self._buffer:
                last = await self._send(self._refusal(408, "the request's head did not arrive in time"))
            if last:
                await linger(self._socket)
        except OSError:
            pass  # the client reset the connection
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection
            contain(error, self._around.log, "a connection failed")
        finally:
            self._keeper.discard(self)
            self._close()

    def _close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    # Requests, one after the other

    async def _serve(self) -> bool:
        """Answer requests until an answer is the last one (True), or the client has left."""
        while True:
            if not self._buffer and (ended := await self._idle()) is not None:
                return ended
            try:
                request = await self._next_request()
            except FramingError as error:
                return await self._send(self._refusal(error.status, error.reason))
            if request is None:
                return False
            ended = await self._reply(request)
            if ended is not None:
                return ended
            if self._buffer:
                await trio.lowlevel.checkpoint()  # whoever pipelines must not keep others waiting

    async def _idle(self) -> bool | None:
        """Nothing has come yet. May wait until something has, or return what `_serve` is to return."""

    async def _reply(self, request: NativeRequest) -> bool | None:
        """Answer a request. None when another one may follow; else what `_serve` is to return."""
        try:
            answer = await self._answer(request) if self._reserved else await self._endpoints.answer(request)
        except _Refused as refused:
            return await self._send(self._refusal(refused.error.status, refused.error.reason))
        except Disconnected:
            return False
        head = request.head
        # The rest of a body that nobody has waited for will not be read.
        ends = not head.keep_alive or not request.is_read or self._reserved or self._around.is_draining()
        if isinstance(answer, Response):
            data: bytes | None = whole(answer, with_body=head.method != "HEAD", ends=ends)
        elif isinstance(answer, EventResponse):
            data = await self._outlet(stream_head(answer, head, ends=ends), head).follow(answer)
        else:
            data = await write_stream(answer, head, self._send_piece, ends=ends)
        if data is None:
            return False
        if not self._hold(data) and not await self._send(data):
            return False
        if ends:
            return True
        self._answer_ends()
        return None

    def _hold(self, data: bytes) -> bool:
        """Have an answer sent before any task runs again, if somebody does that here."""
        return False

    async def _answer(self, request: NativeRequest) -> Answer:
        if self._reserved:
            route = route_of(request.path)
            if (route is None or route.open is None) and self._around.is_full():
                return no_room()
            self._reserved = self._around.is_full()
        return await self._endpoints.answer(request)

    def _refusal(self, status: int, reason: str) -> bytes:
        return self._endpoints.refuse(status, reason, self.peer)

    async def _next_request(self) -> NativeRequest | None:
        """The next request; None when the client has left instead.

        Raises:
            FramingError: What has come is no request.
        """
        buffer = self._buffer
        while True:
            raw = self._heads.take(buffer)
            if raw is not None:
                head = self._around.read(raw)
                self._answer_begins(head)
                body = BodyReader(head.length)
                body.take(buffer)
                return NativeRequest(head, self, body)
            if not self._expecting and buffer.strip(b"\r"):  # empty lines buy no time
                self._expecting = True
                self._begin(self._header_seconds)
            data = await self._receive()
            if not data:
                return None
            buffer += data

    def _answer_begins(self, head: Head) -> None:
        """A head is complete. From here on the endpoints bound the time."""
        self.limit = math.inf
        self._answering = True
        self._expecting = False
        self._asked_to_continue = not head.expects_continue

    def _answer_ends(self) -> None:
        """Another request may follow."""
        self._answering = False
        draining = self._around.is_draining()  # since the answer, which does not say that it is the last one
        self._begin(limits.LAST_REQUEST_SECONDS if draining else limits.KEEP_ALIVE_SECONDS)

    def _begin(self, seconds: float) -> None:
        """Something new begins, and may go on for so long."""
        self.limit = seconds
        self.step += 1
        if self.still:
            self._keeper.wake(self)

    async def next_chunk(self, body: BodyReader) -> bytes:
        """The next piece of the present request's body; empty at its end.

        Raises:
            Disconnected: The client left before the end, or sent what is no body.
        """
        while not body.pending and not body.complete:
            if not self._asked_to_continue and not self._buffer:
                self._asked_to_continue = True
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

    # The socket

    async def _receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if self._end is not None:
                await trio.lowlevel.checkpoint()  # cancelled in the very moment in which something came
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue

    async def _send(self, data: bytes) -> bool:
        return await send_all(self._socket, data, self._around.log)

    async def _send_piece(self, data: bytes) -> None:
        if not await self._send(data):
            self._gone()
            await trio.lowlevel.checkpoint()

    def _outlet(self, before: bytes, head: Head) -> Outlet:
        return Outlet(self._around.teller, self._socket, before, chunked=not head.is_old, gone=self._gone)

    # The client's end

    def watch(self) -> trio.CancelScope:
        """From here on the connection ends when the client does."""
        self._waiting = True
        self._begin(QUICK_SECONDS)
        return self._scope

    def unwatch(self) -> None:
        """The client's end cancels nothing any more."""
        self._waiting = False
        self.limit = math.inf
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _read_on(self, scope: trio.CancelScope) -> None:
        """Read what comes while a call runs: the next requests, within bounds, or the client's end."""
        try:
            with scope:
                while self._watcher is scope:  # the call may have ended before this task has begun
                    await trio.lowlevel.wait_readable(self._socket)
                    if self._watcher is scope:  # not in the very moment in which something came
                        self._take_news()
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection: others have the same nursery
            self._gone()
            contain(error, self._around.log, "a connection failed")

    def _take_news(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        if not data:
            self._leave()
        elif len(self._buffer) > limits.MAX_PIPELINED_BYTES:
            self._around.log.warning(
                "closing a connection: more than %d bytes behind a request", limits.MAX_PIPELINED_BYTES
            )
            self._leave()

    def _leave(self) -> None:
        self._gone()
        self._watcher = None  # nothing more is read

    def _gone(self) -> None:
        self._end = self._end or _End.GONE
        self._scope.cancel()

    # What the keeper and the server say

    def attend(self) -> None:
        """See `Kept`: a call takes longer, or a request is late."""
        self.limit = math.inf
        if self._waiting:
            self._watcher = trio.CancelScope()
            self._keeper.start(functools.partial(self._read_on, self._watcher))
        elif not self._answering and not self._buffer and has_come(self._socket):
            self._begin(self._header_seconds)  # it is the server that is late
        elif not self._answering:
            self._end = self._end or _End.LATE
            self._scope.cancel()

    def drain(self) -> None:
        """The server is going away: close as soon as no answer is owed, and none asked for."""
        if not self._answering and not self._buffer:
            self._begin(limits.LAST_REQUEST_SECONDS)
