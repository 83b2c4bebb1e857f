"""The stream between TLS and a borrowed parser of HTTP/2: checked requests, bounded floods, and one answer for each request.

Reading follows RFC 9113; sections are given as numbers. Frames are read and written by hyperframe, header blocks by hpack.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

import trio
from hpack import Decoder, Encoder, HPACKError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from carmy_engine import HttpSettings
from carmy_net.http1 import FramingError

from ..asgi_types import Scope
from ..limits import READ_BYTES, WRITE_BYTES
from ..message import Response
from .admission import Admission
from .http2_budget import ENHANCE_YOUR_CALM, Budget, Http2Error
from .http2_exchange import CANCEL, MAX_FRAME_BYTES, NO_ERROR, PROTOCOL_ERROR, Http2Exchange
from .http2_head import read_http2_head
from .parser_stream import ParserStream
from .tls_stream import OverTls, TlsStream

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

MAX_STREAMS = 100
"""Requests of one connection at one time, which the server announces; a reset one counts until its application has ended."""

BLOCK_FACTOR = 2
"""A header block may have so many times ``max_head_bytes``, compressed and decompressed. A longer head is refused, and beyond this the
connection ends."""

CONNECTION_WINDOW_BYTES = 1024 * 1024
"""Unread bodies of all streams together. A single one is bounded by the window of 65,535 bytes that each stream has."""

CONTROL_BURST = 1000
CONTROL_PER_SECOND = 100
"""Frames that cost an answer or bookkeeping but carry no request: SETTINGS, PING, PRIORITY, CONTINUATION, empty DATA."""

RESET_BURST = 100
RESETS_PER_SECOND = 20
"""Requests that the client cancels or that break a rule. Cancelling faster is the attack "rapid reset" (CVE-2023-44487)."""

MAX_BACKLOG_BYTES = 256 * 1024
"""Written by the server and not sent; an application that writes more waits."""

RETURN_BYTES = 16 * 1024
"""Of discarded bodies, after which the client gets the window back."""

FRAMES_AT_ONCE = 32
"""Read before other tasks run."""

STREAM_HEADER = b"carmy-http2-stream"
"""Carries the number of the stream from the parser's input to the application's scope. A client's own is dropped."""

FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, COMPRESSION_ERROR = 0x3, 0x6, 0x7, 0x9

_HEADER_TABLE_SIZE, _ENABLE_CONNECT_PROTOCOL = 0x1, 0x8
_MAX_TABLE_BYTES = 4096
_LAST_STREAM = 2**31 - 1
_FRAME_HEADER_BYTES = 9
_CONTINUE = b"\x08\x03100"
"""``:status: 100``, in a form that leaves the client's table of headers alone."""


class GuardedHttp2Stream(OverTls, ParserStream):
    """A stream that gives a parser of HTTP/2 the frames of checked requests, with header blocks in their plainest form.

    - A request that breaks a rule gets an answer of its own, and the parser none of it. Only what leaves the state of the
      connection in doubt ends the connection.
    - The parser gets a body only as the application asks for it, so that an unread one holds up no other stream.
    - Once an answer is complete, the rest of its request's body is discarded, and the client gets RST_STREAM with NO_ERROR (8.1).
    - Frames that carry no request, and resets, have a budget. PRIORITY and unknown frames are dropped.
    - What the parser writes is sent by a task of this stream, so that no write of the parser blocks.

    Args:
        stream: The connection; its handshake has chosen ``h2``.
        settings: Limits in time and bytes.
        is_draining: Whether the server is going away.
        refusal: Makes the answer to what is no request, from its status and reason.
        admission: Decides when a request begins.
        log: For what a client does.

    Attributes:
        socket: The connection's socket, for its addresses.
        write_seconds: Without progress. A client that takes nothing for so long counts as gone.
    """

    alpn_protocol = "h2"

    def __init__(
        self,
        stream: TlsStream,
        *,
        settings: HttpSettings,
        is_draining: Callable[[], bool],
        refusal: Callable[[int, str], Response],
        admission: Admission,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        super().__init__(stream, settings, log)
        self.write_seconds = settings.write_timeout_secs
        self._max_block_bytes = BLOCK_FACTOR * settings.max_head_bytes
        self._refusal = refusal
        self._admission = admission
        self._decoder = Decoder(self._max_block_bytes)
        self._decoder.max_allowed_table_size = _MAX_TABLE_BYTES
        self._encoder = Encoder()
        self._control = Budget(CONTROL_BURST, CONTROL_PER_SECOND)
        self._resets = Budget(RESET_BURST, RESETS_PER_SECOND)
        self._exchanges: dict[int, Http2Exchange] = {}
        self._last_number = 0
        self._block: HeadersFrame | None = None  # until its last CONTINUATION
        self._received = bytearray()
        self._has_preface = False
        self._passed = bytearray()  # for the parser
        self._begins = False  # `_passed` has a new request
        self._due: list[RstStreamFrame] = []  # to the client, once the parser has taken `_passed`
        self._held_bytes = 0
        self._discarded_bytes = 0
        self._has_announced = False
        self._deadline = trio.current_time() + settings.header_timeout_secs
        self._goaway_at = math.inf
        self._refuses_new = False
        self._outgoing = bytearray()
        self._has_outgoing = trio.Event()
        self._room = trio.lowlevel.ParkingLot()
        self._is_finishing = False
        if is_draining():
            self.drain()

    # For the server

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for frames; empty when there will be none.

        Raises:
            trio.BrokenResourceError: The client has reset the connection, or was given up.
            trio.ClosedResourceError: The server has closed.
        """
        await trio.lowlevel.checkpoint()
        taken = 0
        while not self._passed:
            self._check_open()
            try:
                frame = self._next_frame()
                if frame is not None:
                    self._take(frame)
                    taken += 1
                    if taken % FRAMES_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                elif self._client_ended or self._is_done():
                    return self._end()
                else:
                    await self._receive()
            except Http2Error as error:
                self._log.info("closing a connection: %s", error.reason)
                self._go_away(error.code, error.reason)
                return self._end()
        if self._begins:
            self._begins = False
            await self._admission.begin(is_first=self._last_number == 1)
        data = bytes(self._passed)
        self._passed.clear()
        # The parser takes the data before any other task runs, and writes nothing to these streams from then on.
        for frame in self._due:
            self.write(frame)
        self._due.clear()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Keep whole frames for the writing task.

        Raises:
            trio.ClosedResourceError: The server has closed.
            trio.BrokenResourceError: The client has gone.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        view = memoryview(data)
        over: list[Http2Exchange] = []
        while view:
            frame, length = Frame.parse_frame_header(view[:_FRAME_HEADER_BYTES])
            end = _FRAME_HEADER_BYTES + length
            if isinstance(frame, SettingsFrame) and not self._has_announced:
                frame.parse_body(view[_FRAME_HEADER_BYTES:end])
                self._announce(frame)
            else:
                exchange = self._exchanges.get(frame.stream_id)
                if exchange is not None and isinstance(frame, DataFrame | HeadersFrame):
                    exchange.progress()
                    if "END_STREAM" in frame.flags:
                        over.append(exchange)
                if exchange is None or not exchange.is_over or not isinstance(frame, DataFrame):
                    self._outgoing += view[:end]
            view = view[end:]
        for exchange in over:
            self._end_exchange(exchange)
        self._has_outgoing.set()

    async def aclose(self) -> None:
        """End reading and writing for the server. The connection stays open for `finish`."""
        self._closed = True
        self._reading.cancel()
        self._leave_idle_server()
        await trio.lowlevel.checkpoint()

    # For the owner

    def exchange(self, scope: Scope) -> Http2Exchange:
        """The exchange that an application is called for. Removes from its scope what is not offered."""
        scope["extensions"] = {}
        number = next(int(value) for name, value in scope["headers"] if name == STREAM_HEADER)
        scope["headers"] = [header for header in scope["headers"] if header[0] != STREAM_HEADER]
        return self._exchanges[number]

    def drain(self) -> None:
        """Announce that the server is going away; refuse new requests a moment later, and close when all are answered (6.8)."""
        if self._goaway_at == math.inf:
            self.write(_goaway(_LAST_STREAM, NO_ERROR))
            self._goaway_at = trio.current_time() + self._settings.last_request_secs
            self._reading.cancel()

    async def serve(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run the server, and send what it writes. Leaves the connection aborted when cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_outgoing)
            with self._serving:
                await run()
            self._is_finishing = True
            self._has_outgoing.set()

    async def finish(self) -> None:
        """Take leave of the client within bounds, and close."""
        try:
            if self._lingers and not self._broken:
                await self._linger()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.socket.close()

    def abort(self) -> None:
        """Close at once. The server notices when it reads or writes."""
        self._broken = True
        self.socket.close()
        self._reading.cancel()
        self._has_outgoing.set()
        self._room.unpark_all()
        self._leave_idle_server()

    # For exchanges

    @property
    def is_broken(self) -> bool:
        """Nothing that is written reaches the client any more."""
        return self._broken or self._closed

    def write(self, frame: Frame) -> None:
        """Send a frame to the client."""
        self._outgoing += frame.serialize()
        self._has_outgoing.set()

    def send_continue(self, number: int) -> None:
        """Send the status 100 on a stream."""
        frame = HeadersFrame(number, flags=["END_HEADERS"])
        frame.data = _CONTINUE
        self.write(frame)

    def pass_data(self, number: int, data: bytes, *, is_last: bool) -> None:
        """Give the parser a piece of a body that was held."""
        self._held_bytes -= len(data)
        frame = DataFrame(number, flags=["END_STREAM"] if is_last else [])
        frame.data = data
        self.pass_on(frame)

    def pass_on(self, frame: Frame) -> None:
        """Give the parser a frame."""
        self._passed += frame.serialize()
        self._reading.cancel()

    def discard(self, length: int, *, held: bool = False) -> None:
        """Return bytes of bodies that the parser does not get to the window of the connection."""
        if held:
            self._held_bytes -= length
        self._discarded_bytes += length
        if self._discarded_bytes >= RETURN_BYTES:
            self.write(_window(0, self._discarded_bytes))
            self._discarded_bytes = 0

    def reset(self, number: int, code: int | None) -> None:
        """Reset a stream for the parser and, with a code, for the client."""
        self.pass_on(RstStreamFrame(number, CANCEL))
        if code is not None:
            self._due.append(RstStreamFrame(number, code))

    def violate(self, exchange: Http2Exchange) -> None:
        """Reset the stream of a request that breaks a rule.

        Raises:
            Http2Error: There were too many.
        """
        exchange.reset(PROTOCOL_ERROR)
        self._resets.spend("requests that break a rule")

    def settle(self, exchange: Http2Exchange) -> None:
        """Forget an exchange that has ended on both sides."""
        if exchange.is_over and not exchange.is_running:
            self._exchanges.pop(exchange.number, None)
            if not self._exchanges:
                self._deadline = trio.current_time() + self._settings.keep_alive_secs
                self._reading.cancel()
        if self._client_ended or self._broken or self._closed:
            self._leave_idle_server()

    async def wait_for_room(self) -> None:
        """Wait until most of what was written has been sent. A checkpoint only if it has to wait."""
        while len(self._outgoing) > MAX_BACKLOG_BYTES and not self._broken:
            await self._room.park()

    # Reading

    def _next_frame(self) -> Frame | None:
        """Remove a complete frame from what was received.

        Raises:
            Http2Error: It is none.
        """
        buffer = self._received
        if not self._has_preface:
            if not PREFACE.startswith(buffer[: len(PREFACE)]):
                raise Http2Error(PROTOCOL_ERROR, "the connection does not begin like HTTP/2")
            if len(buffer) < len(PREFACE):
                return None
            del buffer[: len(PREFACE)]
            self._has_preface = True
            self._deadline = trio.current_time() + self._settings.keep_alive_secs
            self._passed += PREFACE
        if len(buffer) < _FRAME_HEADER_BYTES:
            return None
        try:
            frame, length = Frame.parse_frame_header(memoryview(bytes(buffer[:_FRAME_HEADER_BYTES])))
            if length > MAX_FRAME_BYTES:
                raise Http2Error(FRAME_SIZE_ERROR, f"a frame has more than {MAX_FRAME_BYTES} bytes")
            end = _FRAME_HEADER_BYTES + length
            if len(buffer) < end:
                return None
            frame.parse_body(memoryview(bytes(buffer[_FRAME_HEADER_BYTES:end])))
        except HyperframeError as error:
            raise Http2Error(PROTOCOL_ERROR, f"a frame is malformed: {error}") from None
        del buffer[:end]
        return frame

    def _take(self, frame: Frame) -> None:
        """Check a frame, and pass on what the parser should see of it.

        Raises:
            Http2Error: It ends the connection.
        """
        if self._block is not None:
            self._take_continuation(self._block, frame)
        elif isinstance(frame, HeadersFrame):
            self._take_headers(frame)
        elif isinstance(frame, DataFrame):
            self._take_data(frame)
        elif isinstance(frame, RstStreamFrame):
            self._take_reset(frame)
        elif isinstance(frame, WindowUpdateFrame):
            if frame.stream_id == 0 or self._live(frame.stream_id) is not None:
                self.pass_on(frame)
        elif isinstance(frame, ContinuationFrame | PushPromiseFrame):
            raise Http2Error(PROTOCOL_ERROR, "a frame of this type is not expected here")
        elif isinstance(frame, SettingsFrame):
            self._control.spend("frames without a request")
            table = frame.settings.get(_HEADER_TABLE_SIZE)
            if table is not None:  # what the parser keeps for a client has a bound
                frame.settings[_HEADER_TABLE_SIZE] = min(table, _MAX_TABLE_BYTES)
            self.pass_on(frame)
        elif isinstance(frame, GoAwayFrame | PingFrame):
            self._control.spend("frames without a request")
            self.pass_on(frame)
        else:
            self._control.spend("frames without a request")

    def _live(self, number: int) -> Http2Exchange | None:
        """The exchange of a stream; None after its end.

        Raises:
            Http2Error: The stream has never begun.
        """
        if number > self._last_number or number % 2 == 0:
            raise Http2Error(PROTOCOL_ERROR, "a frame belongs to a stream that has not begun")
        exchange = self._exchanges.get(number)
        return None if exchange is None or exchange.is_over else exchange

    def _take_headers(self, frame: HeadersFrame) -> None:
        if frame.stream_id % 2 == 0:
            raise Http2Error(PROTOCOL_ERROR, "a client's streams have odd numbers")
        if "END_HEADERS" in frame.flags:
            self._take_block(frame)
        else:
            self._block = frame
            self._deadline = trio.current_time() + self._settings.header_timeout_secs

    def _take_continuation(self, block: HeadersFrame, frame: Frame) -> None:
        if not isinstance(frame, ContinuationFrame) or frame.stream_id != block.stream_id:
            raise Http2Error(PROTOCOL_ERROR, "a header block is interrupted")
        self._control.spend("frames without a request")
        block.data += frame.data
        if len(block.data) > self._max_block_bytes:
            raise Http2Error(ENHANCE_YOUR_CALM, f"a header block has more than {self._max_block_bytes} bytes")
        if "END_HEADERS" in frame.flags:
            self._block = None
            self._deadline = math.inf if self._exchanges else trio.current_time() + self._settings.keep_alive_secs
            self._take_block(block)

    def _take_block(self, frame: HeadersFrame) -> None:
        try:
            headers: list[tuple[bytes, bytes]] = [
                (bytes(name), bytes(value)) for name, value in self._decoder.decode(frame.data, raw=True)
            ]
        except HPACKError as error:
            raise Http2Error(COMPRESSION_ERROR, f"a header block cannot be read: {error}") from None
        number, is_last = frame.stream_id, "END_STREAM" in frame.flags
        if number <= self._last_number:
            self._take_trailers(number, is_last=is_last)
            return
        if self._refuses_new:
            return  # GOAWAY refused it
        self._last_number = number
        if len(self._exchanges) >= MAX_STREAMS:
            self.write(RstStreamFrame(number, REFUSED_STREAM))
            self._resets.spend("requests at one time")
            return
        try:
            head = read_http2_head(headers, self._settings.max_head_bytes)
            if is_last and head.length:
                raise FramingError(400, "the request has no body, but announces one")
        except FramingError as error:
            self._refuse(number, error, is_last=is_last)
            return
        self._deadline = math.inf  # from here on the application bounds the time
        exchange = Http2Exchange(self, number, head.length, head.expects_continue and not is_last)
        exchange.client_ended = exchange.end_passed = is_last
        self._exchanges[number] = exchange
        kept = [header for header in head.headers if header[0] != STREAM_HEADER]
        block = self._encoder.encode([*kept, (STREAM_HEADER, b"%d" % number)], huffman=False)
        first = HeadersFrame(number, flags=["END_STREAM"] if is_last else [])
        pieces = [block[start : start + MAX_FRAME_BYTES] for start in range(0, len(block), MAX_FRAME_BYTES)]
        frames: list[HeadersFrame | ContinuationFrame] = [first, *(ContinuationFrame(number) for _ in pieces[1:])]
        frames[-1].flags.add("END_HEADERS")
        for part, piece in zip(frames, pieces, strict=True):
            part.data = piece
            self.pass_on(part)
        self._begins = True

    def _take_trailers(self, number: int, *, is_last: bool) -> None:
        exchange = self._live(number)
        self._control.spend("frames without a request")
        if exchange is None:
            return
        if exchange.client_ended or not is_last:
            self.violate(exchange)
        else:
            exchange.take_data(b"", is_last=True)

    def _take_data(self, frame: DataFrame) -> None:
        exchange = self._live(frame.stream_id)
        data, is_last = bytes(frame.data), "END_STREAM" in frame.flags
        padding = frame.flow_controlled_length - len(data)
        if not data and not is_last:
            self._control.spend("frames without a request")
        if padding:
            self._control.spend("frames without a request")
            self.discard(padding)
            if exchange is not None and not is_last:
                self.write(_window(frame.stream_id, padding))
        if exchange is None:
            self.discard(len(data))
            return
        self._held_bytes += len(data)
        if self._held_bytes > CONNECTION_WINDOW_BYTES + self._settings.max_unread_bytes:
            raise Http2Error(FLOW_CONTROL_ERROR, "the client sends more than it may")
        if exchange.client_ended:
            exchange.take_data(data, is_last=True)
            self.violate(exchange)
        else:
            exchange.take_data(data, is_last=is_last)

    def _take_reset(self, frame: RstStreamFrame) -> None:
        exchange = self._live(frame.stream_id)
        if exchange is None:
            self._control.spend("frames without a request")
            return
        exchange.close()
        self.reset(frame.stream_id, None)
        self.settle(exchange)
        self._resets.spend("cancelled requests")

    def _refuse(self, number: int, error: FramingError, *, is_last: bool) -> None:
        """Answer what is no request. The block leaves the client's table of headers alone."""
        answer = self._refusal(error.status, error.reason)
        headers = [(b":status", b"%d" % answer.status), *answer.headers, (b"content-length", b"%d" % len(answer.body))]
        frame = HeadersFrame(number, flags=["END_HEADERS"])
        frame.data = Encoder().encode([(name, value, True) for name, value in headers])
        self.write(frame)
        body = DataFrame(number, flags=["END_STREAM"])
        body.data = answer.body
        self.write(body)
        if not is_last:
            self.write(RstStreamFrame(number, NO_ERROR))
        self._resets.spend("requests that break a rule")

    async def _receive(self) -> None:
        """Wait for bytes, the client's end, a reason to look at the state again, or the end of a time limit.

        Raises:
            Http2Error: A header block or the preface has not arrived in time.
        """
        deadline = min(self._deadline, self._goaway_at)
        with trio.CancelScope(deadline=deadline) as self._reading:
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.abort()
                return
            self._received += data
            self._client_ended = not data
            self._lingers = self._lingers and bool(data)
            return
        now = trio.current_time()
        if self._goaway_at <= now and not self._refuses_new:
            self._refuses_new = True
            self._goaway_at = math.inf
            self.write(_goaway(self._last_number, NO_ERROR))
        if self._deadline <= now:
            if self._block is not None or not self._has_preface:
                raise Http2Error(NO_ERROR, "a header block or the connection's preface did not arrive in time")
            if not self._exchanges:
                raise Http2Error(NO_ERROR, "idle")

    def _is_done(self) -> bool:
        """The server is going away, and every request has its answer."""
        return self._refuses_new and not self._exchanges

    def _end(self) -> bytes:
        """The parser gets the end of the stream."""
        self._client_ended = True
        self._leave_idle_server()
        return b""

    def _leave_idle_server(self) -> None:
        """Without a running application, the server waits for nothing but its own time limit, which is not used here."""
        if not any(exchange.is_running for exchange in self._exchanges.values()):
            self._serving.cancel()

    # Writing

    def _announce(self, frame: SettingsFrame) -> None:
        """Send the server's settings, without what is not offered, and widen the window of the connection."""
        self._has_announced = True
        frame.settings.pop(_ENABLE_CONNECT_PROTOCOL, None)
        self._outgoing += frame.serialize()
        self.write(_window(0, CONNECTION_WINDOW_BYTES))

    def _end_exchange(self, exchange: Http2Exchange) -> None:
        """The answer is complete: discard the rest of the request."""
        if exchange.is_over:
            return
        if exchange.end_passed:
            exchange.close(stops_writing=False)
            self.settle(exchange)
        else:
            exchange.reset(NO_ERROR)

    def _go_away(self, code: int, reason: str) -> None:
        self.write(_goaway(self._last_number, code, reason))
        self._closed = True

    async def _send_outgoing(self) -> None:
        """Send what is written, until the server has ended, or give the connection up."""
        try:
            while not self._broken:
                if not self._outgoing:
                    if self._is_finishing:
                        return
                    self._has_outgoing = trio.Event()
                    await self._has_outgoing.wait()
                    continue
                piece = bytes(self._outgoing[:WRITE_BYTES])
                del self._outgoing[:WRITE_BYTES]
                if not await self._send_within_limit(piece):
                    self.abort()
                self._room.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.abort()
        except trio.Cancelled:
            self.abort()
            raise


def _window(number: int, length: int) -> WindowUpdateFrame:
    return WindowUpdateFrame(number, length)


def _goaway(last: int, code: int, reason: str = "") -> GoAwayFrame:
    return GoAwayFrame(0, last, code, reason.encode())
