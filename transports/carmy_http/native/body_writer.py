"""The bodies of streamed answers on the native front end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from carmy_engine import BoundEngine, ExecutionRequest
from carmy_engine.transport import RateLimitedLogger, contain

from ..message import BodyWriter, Disconnected, Request, StreamResponse, http_date, render_head, render_response
from .event_writer import EventSink
from .request import Head

MakeSink: TypeAlias = Callable[[Callable[[bytes], bytes]], EventSink]


class NativeBodyWriter(BodyWriter):
    """Writes one `StreamResponse`: in chunks, or for HTTP/1.0 up to the connection's end.

    The head waits for the first piece, which follows at once, so that both are one packet.

    Args:
        answer: The answer.
        head: The head of the request.
        send: Sends to the client. When the client has gone, it cancels the connection.
        make_sink: Makes the sink for events, with a function that frames them.
        ends: The connection closes after the answer.
        log: For failures.
    """

    __slots__ = ("_answer", "_begun", "_chunked", "_ends", "_last_pieces", "_log", "_make_sink", "_send")

    def __init__(
        self,
        answer: StreamResponse,
        head: Head,
        send: Callable[[bytes], Awaitable[None]],
        make_sink: MakeSink,
        *,
        ends: bool,
        log: RateLimitedLogger,
    ) -> None:
        self._answer = answer
        self._chunked = not head.is_old
        self._send = send
        self._make_sink = make_sink
        self._ends = ends
        self._log = log
        self._begun = False
        self._last_pieces = b""

    async def write(self) -> bytes | None:
        """Write the answer while it is made. Returns the bytes that are still to be sent, None when it broke off."""
        try:
            complete = await self._answer.run(self)
        except Disconnected:
            return None
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one call. The head has been sent, so the body ends without its last event and without a
            # proper end, by which the client detects the failure.
            contain(error, self._log, "a stream broke off")
            return None
        if complete is not None:
            return render_response(complete, with_body=True, ends=self._ends)
        return self._last_pieces + self._frame(b"")

    async def send(self, chunk: bytes) -> None:
        """See `BodyWriter`."""
        await self._send(self._frame(chunk))

    async def send_events(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        """See `BodyWriter`."""
        self._last_pieces = await self._make_sink(self._frame).execute(request, engine, wanted)

    def _frame(self, data: bytes) -> bytes:
        """A piece of the body as sent, after the head if it is the first one. Without data, the end of the body."""
        before = b""
        if not self._begun:
            self._begun = True
            end = b"\r\ntransfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n\r\n"
            before = render_head(self._answer.status, self._answer.headers, self._ends) + http_date() + end
        return b"%b%x\r\n%b\r\n" % (before, len(data), data) if self._chunked else before + data
