"""An execution as server-sent events (WHATWG HTML, 9.2)."""

from __future__ import annotations

import trio

from carmy_engine import BoundEngine, ExecutionEvent, ExecutionRequest
from carmy_engine.codec import event_body
from carmy_engine.transport import EventBuffer

from ..message import HeaderList, Request, SendChunk, StreamResponse

HEARTBEAT_SECONDS = 15.0
"""Silence after which a comment is sent. Common proxies cut a silent connection after 30 to 100 seconds."""

HEARTBEAT = b": still running\n\n"

EVENT_STREAM: HeaderList = (
    (b"content-type", b"text/event-stream"),
    # no-transform: a proxy that compresses would hold events back.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class EventResponse(StreamResponse):
    """The answer that runs a request and tells about it. Its status is 200 whatever the outcome.

    Args:
        request: Whom to tell.
        engine: As the caller may use it.
        wanted: What is asked for.
    """

    __slots__ = ("_engine", "_request", "_wanted")

    def __init__(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        super().__init__(200, EVENT_STREAM, self._run)
        self._request = request
        self._engine = engine
        self._wanted = wanted

    async def _run(self, send: SendChunk) -> None:
        async with self._request.cancelled_when_gone(), self._engine.stream(self._wanted) as events:
            await _forward(events, send)

    async def execute_into(self, events: EventBuffer) -> None:
        """Instead of `run`, for a front end that watches its clients and writes what is in the buffer: run the request."""
        self._request.watch()
        try:
            await self._engine.execute_into(events, self._wanted)
        finally:
            self._request.unwatch()


async def _forward(events: trio.abc.ReceiveChannel[ExecutionEvent], send: SendChunk) -> None:
    """Send every event. Heartbeats say that the connection lives; they extend no deadline."""
    while True:
        event: ExecutionEvent | None = None
        with trio.move_on_after(HEARTBEAT_SECONDS):
            try:
                event = await events.receive()
            except trio.EndOfChannel:
                return
        await send(HEARTBEAT if event is None else frame(event))


def frame(event: ExecutionEvent) -> bytes:
    """One event on the wire: ``event``, one line of ``data``, ``id``."""
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.kind.encode(), _one_line(event_body(event)), event.seq)


def _one_line(document: bytes) -> bytes:
    """The same JSON without anything that some reader of events takes for a line's end.

    CR and LF can only stand between tokens. The others (U+2028, U+2029, U+0085) are legal in strings, but widely used
    clients split there.
    """
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\n", b" ").replace(b"\r", b" ")
    if not document.isascii():
        document = (
            document.replace("\u2028".encode(), b"\\u2028")
            .replace("\u2029".encode(), b"\\u2029")
            .replace("\u0085".encode(), b"\\u0085")
        )
    return document
