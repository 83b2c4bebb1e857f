"""An execution as server-sent events (WHATWG HTML, 9.2)."""

from __future__ import annotations

from carmy_engine import BoundEngine, ExecutionEvent, ExecutionRequest
from carmy_engine.codec import event_body, one_line

from ..message import BodyWriter, HeaderList, Request, StreamResponse

HEARTBEAT = b": still running\n\n"

EVENT_STREAM: HeaderList = (
    (b"content-type", b"text/event-stream"),
    # no-transform: a proxy that compresses would hold events back.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class EventResponse(StreamResponse):
    """The answer that runs a request and sends its events. Its status is 200 whatever the outcome.

    Args:
        request: The HTTP request; the execution is cancelled when its client leaves.
        engine: The engine for this caller.
        wanted: The request to execute.
    """

    __slots__ = ("_engine", "_request", "_wanted")

    def __init__(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        super().__init__(200, EVENT_STREAM, self._run)
        self._request = request
        self._engine = engine
        self._wanted = wanted

    async def _run(self, writer: BodyWriter) -> None:
        await writer.send_events(self._request, self._engine, self._wanted)


def frame(event: ExecutionEvent) -> bytes:
    """One event as bytes: ``event``, one line of ``data``, ``id``."""
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.kind.encode(), one_line(event_body(event)), event.seq)
