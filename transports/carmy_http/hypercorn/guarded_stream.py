"""The stream between a socket and a borrowed HTTP/1.1 parser: framing, limits in time and bytes, and the client's end."""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from carmy_engine import HttpSettings
from carmy_net.http1 import BodyReader, FramingError, HeadReader, ParsedHead

from ..asgi_types import Message, Scope
from ..http1.request_head import read_request_head
from ..limits import LATE_SECONDS, READ_BYTES, WRITE_BYTES
from ..message import Response, render_response
from .admission import Admission
from .parser_stream import ParserStream
from .tls_stream import OverTls, TlsStream

_CONTINUE = b"HTTP/1.1 100 \r\n\r\n"


class _Phase(enum.Enum):
    """What the next bytes for the parser are."""

    HEAD = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()
    """None: the request is complete, and the next one waits until this one has been answered."""


class GuardedStream(ParserStream):
    """A stream that gives a parser one checked request at a time, rewritten in the plainest form.

    - Heads and bodies are read by `carmy_net.http1` first. The parser gets their content without chunk extensions, trailers,
      or offers to change the protocol.
    - The socket is read at all times, so the client's end is noticed while a tool is silent, and behind a pipelined request.
    - The parser gets the rest of a body only as the application asks for it (`ask`).
    - What the server writes is kept until a message is complete, so that an answer is one packet, and no write of the server blocks.
    - `aclose` ends reading and writing for the server. The owner sends what is left, and closes (`finish`).

    TLS belongs below this stream; HTTP/2 has a stream of its own (`GuardedHttp2Stream`).

    Args:
        stream: The connection.
        settings: Limits in time and bytes.
        is_draining: Whether the server is going away, so that the next answer is the last one.
        refusal: Makes the answer to what is no request, from its status and reason.
        admission: Decides when a request begins.
        log: For what a client does.

    Attributes:
        socket: The connection's socket, for its addresses.
    """

    def __init__(
        self,
        stream: trio.SocketStream | TlsStream,
        *,
        settings: HttpSettings,
        is_draining: Callable[[], bool],
        refusal: Callable[[int, str], Response],
        admission: Admission,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        super().__init__(stream, settings, log)
        self._is_draining = is_draining
        self._refusal = refusal
        self._admission = admission
        self._phase = _Phase.HEAD
        self._heads = HeadReader(settings.max_head_bytes)
        self._body = BodyReader(0)
        self._is_chunked = False
        self._is_wanted = False  # a piece of the body
        self._is_asked_for = False  # by the application
        self._owes_continue = False
        self._received = bytearray()
        self._checked = bytearray()  # for the parser
        self._is_first = True  # the next request, of this connection
        self._expecting = False  # the rest of a head
        self._deadline = trio.current_time() + settings.header_timeout_secs
        self._running = 0  # requests that the application works on, also behind its answer
        self._written = bytearray()  # by the server, and not sent
        self._answered = False
        self._sending = trio.StrictFIFOLock()

    # For the server

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes of a request; empty when there will be none.

        Raises:
            trio.BrokenResourceError: The client has reset the connection, or was given up.
            trio.ClosedResourceError: The server has closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._checked:
            self._check_open()
            try:
                begins = self._phase is _Phase.HEAD
                self._check_received()
                if self._checked:
                    if begins:
                        await self._admission.begin(is_first=self._is_first)
                        self._is_first = False
                    break
                if self._client_ended:
                    return self._end()
                await self._receive()
            except FramingError as error:
                if self._checked:  # its own head was good, and the parser has seen nothing of the request
                    self._checked.clear()
                    self._phase = _Phase.HEAD
                await self._refuse(error)
                return self._end()
        end = len(self._checked) if max_bytes is None else max_bytes
        data = bytes(self._checked[:end])
        del self._checked[:end]
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Keep bytes of an answer until `answer` sends them. After a refusal they are dropped.

        Raises:
            trio.ClosedResourceError: The server has closed.
            trio.BrokenResourceError: The client has gone.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        self._answered = True
        self._written += data

    async def aclose(self) -> None:
        """End reading and writing for the server. The connection stays open for `finish`."""
        self._closed = True
        self._reading.cancel()
        await trio.lowlevel.checkpoint()

    # For the application

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block in which the application answers a request, and does what it does after that."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._client_ended or self._broken:
                self._leave_idle_server()

    def exchange(self, _scope: Scope) -> GuardedStream:
        """The exchange that an application is called for: one at a time, so it is the connection itself."""
        return self

    async def ask(self) -> None:
        """Pass the next piece of the body to the parser, after sending ``100 Continue`` to a client that waits for it (RFC 9110, 10.1.1)."""
        if self._phase is not _Phase.BODY:
            return
        self._is_wanted = self._is_asked_for = True
        self._reading.cancel()
        if self._owes_continue:
            self._owes_continue = False
            if not self._answered:
                await self._send(_CONTINUE)

    async def answer(self, message: Message, send: Callable[[Message], Awaitable[None]]) -> None:
        """Pass a message of the answer to the server, and send what it writes, or give the connection up."""
        if self._broken:
            await trio.lowlevel.checkpoint()
            return
        is_start = message["type"] == "http.response.start"
        if is_start and (self._phase is _Phase.BODY or self._is_draining()):
            # Part of the body will not be read, or the server is going away.
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        try:
            await send(message)
        except trio.Cancelled:
            self.abort()  # the server may have taken it or not: nothing sensible can follow
            raise
        if is_start:
            return  # it leaves with what follows: ASGI allows it, and both are one packet
        await self._flush()
        if not message.get("more_body", False):
            self._end_answer()

    async def conclude(self, _send: Callable[[Message], Awaitable[None]]) -> None:
        """The application has ended; the server answers 500 if there was no answer."""

    async def _flush(self) -> None:
        if self._written:
            data, self._written = bytes(self._written), bytearray()
            await self._send(data)

    def _end_answer(self) -> None:
        """The answer is complete: the next request may be read."""
        if self._phase is _Phase.BODY:
            return  # the rest of it will not be read, and the server closes
        self._phase = _Phase.HEAD
        # While the server drains: since the answer, which does not say that it is the last one.
        self._set_deadline(self._settings.last_request_secs if self._is_draining() else self._settings.keep_alive_secs)
        self._reading.cancel()

    def abort(self) -> None:
        """Close at once. The server notices when it reads or writes."""
        self._broken = True
        self.socket.close()
        self._reading.cancel()
        self._leave_idle_server()

    # For the owner

    def drain(self) -> None:
        """The server is going away: close as soon as no answer is owed, and none asked for."""
        if self._phase is _Phase.HEAD and not self._expecting:
            self._set_deadline(self._settings.last_request_secs)

    async def serve(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run the server, until no request comes any more and the application has ended."""
        with self._serving:
            await run()

    async def finish(self) -> None:
        """Send what is left, take leave of the client within bounds, and close."""
        try:
            await self._flush()
            if self._lingers and not self._broken:
                await self._linger()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.socket.close()

    # Reading

    def _check_received(self) -> None:
        """Move what may go to the parser from `_received` to `_checked`.

        Raises:
            FramingError: It is no request.
        """
        if self._phase is _Phase.HEAD:
            raw = self._heads.take(self._received)
            if raw is not None:
                self._begin_request(read_request_head(raw, self._settings.max_head_bytes))
            elif not self._expecting and self._received.strip(b"\r"):  # empty lines buy no time
                self._expecting = True
                self._set_deadline(self._settings.header_timeout_secs)
        if self._phase is _Phase.BODY and (self._is_wanted or self._client_ended):
            self._body.take(self._received)
            self._pass_body()
            if self._body.is_too_large and self._is_asked_for:  # else the application may refuse it for another reason
                raise FramingError(413, "the body is too large")

    def _begin_request(self, head: ParsedHead) -> None:
        self._expecting = False
        self._deadline = math.inf  # from here on the application bounds the time
        self._answered = False
        self._body = BodyReader(head.length, self._settings.max_body_bytes)
        self._is_chunked = head.length is None
        self._phase = _Phase.ANSWER if self._body.complete else _Phase.BODY
        self._owes_continue = head.expects_continue
        self._is_asked_for = False
        self._is_wanted = not head.expects_continue or bool(self._received)
        self._checked += b"%b %b HTTP/1.%d\r\n" % (head.method, head.target, 0 if head.is_old else 1)
        for header in head.headers:
            if header[0] != b"expect":  # `ask` answers it
                self._checked += b"%b: %b\r\n" % header
        self._checked += b"\r\n"

    def _pass_body(self) -> None:
        data = self._body.read()
        if not self._is_chunked:
            self._checked += data
        elif data:
            self._checked += b"%x\r\n%b\r\n" % (len(data), data)
        if data:
            self._is_wanted = False
        if self._body.complete:
            self._phase = _Phase.ANSWER
            if self._is_chunked:
                self._checked += b"0\r\n\r\n"

    async def _receive(self) -> None:
        """Wait for bytes, the client's end, a reason to look at the state again, or the end of a time limit.

        Raises:
            FramingError: A head has not arrived in time.
        """
        data = await self._receive_until(self._deadline)
        if data is None and self._is_late() and not self._expecting:
            # What came in time may wait in the kernel, because other tasks have kept this one from running.
            data = await self._receive_until(trio.current_time() + LATE_SECONDS)
        if data:
            self._received += data
            if self._phase is _Phase.ANSWER and len(self._received) > self._settings.max_pipelined_bytes:
                self._log.warning(
                    "closing a connection: more than %d bytes behind a request", self._settings.max_pipelined_bytes
                )
                self.abort()
        elif data is not None:
            self._client_ended = True
            self._lingers = False
        elif self._is_late():
            if self._expecting:
                raise FramingError(408, "the request's head did not arrive in time")
            self._lingers = False  # no answer is on its way that closing could cut off
            self._client_ended = True

    async def _receive_until(self, deadline: float) -> bytes | None:
        """The next bytes, empty at the client's end; None when the wait was ended or the connection is broken."""
        with trio.CancelScope(deadline=deadline) as self._reading:
            if self._phase is _Phase.BODY and len(self._received) > self._settings.max_unread_bytes:
                await trio.sleep_forever()
            try:
                return bytes(await self._stream.receive_some(READ_BYTES))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.abort()
        return None

    def _is_late(self) -> bool:
        return self._phase is _Phase.HEAD and self._deadline <= trio.current_time()

    def _end(self) -> bytes:
        """The parser gets the end of the stream. Without a request in work, the server has nothing left to do."""
        if self._phase is _Phase.BODY:
            self._closed = True  # the parser would answer half a request
        elif self._phase is _Phase.HEAD:
            self._leave_idle_server()
        return b""

    def _leave_idle_server(self) -> None:
        """Between two requests the server waits for nothing but its own time limit, which is not used here."""
        if self._running == 0:
            self._serving.cancel()

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = trio.current_time() + seconds
        self._reading.deadline = self._deadline

    # Writing

    async def _refuse(self, error: FramingError) -> None:
        """Answer what is no request, unless an answer has begun. Nothing else is written any more."""
        self._closed = True
        if self._phase is _Phase.HEAD or not self._answered:
            self._written += render_response(self._refusal(error.status, error.reason), with_body=True, ends=True)
            await self._flush()

    async def _send(self, data: bytes) -> None:
        """Send everything, or give the connection up: after `WRITE_SECONDS` without progress, and when cancelled."""
        async with self._sending:
            view = memoryview(data)
            try:
                for start in range(0, len(view), WRITE_BYTES):
                    if self._broken:
                        return
                    if not await self._send_within_limit(view[start : start + WRITE_BYTES]):
                        self.abort()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.abort()
            except trio.Cancelled:
                # Part of a message may be out: nothing sensible can follow it.
                self.abort()
                raise


class GuardedTlsStream(OverTls, GuardedStream):
    """A `GuardedStream` over TLS."""
