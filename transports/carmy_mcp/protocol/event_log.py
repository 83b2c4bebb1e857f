"""The events of one stream, with ids, kept for a client that loses its connection (2025-11-25, "Resumability and Redelivery")."""

from __future__ import annotations

from collections import deque

from carmy_engine.codec import escape_line_ends


class EventLog:
    """The newest events of one stream, bounded in bytes.

    The newest event is always kept, however large it is: it is the response.

    Args:
        stream: The name of the stream in its session.
        max_bytes: Of the events that are kept.
    """

    def __init__(self, stream: str, max_bytes: int) -> None:
        self.stream = stream
        self._max_bytes = max_bytes
        self._bytes = 0
        self._events: deque[tuple[int, bytes]] = deque()
        self.newest = 0
        """The number of the newest event; 0 before the first."""

    def append(self, message: bytes) -> int:
        """Add a message. Returns the number of its event."""
        self.newest += 1
        event = render_event(message, b"%b-%d" % (self.stream.encode(), self.newest))
        self._events.append((self.newest, event))
        self._bytes += len(event)
        while self._bytes > self._max_bytes and len(self._events) > 1:
            self._bytes -= len(self._events.popleft()[1])
        return self.newest

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """The events after one, as numbers and bytes. Those that were dropped are left out."""
        if number >= self.newest:
            return []
        return [(one, event) for one, event in self._events if one > number]

    def opening(self, retry_ms: int) -> bytes:
        """The first event of a stream: no message, but an id, and the time after which a client connects again."""
        return b"id: %b-0\nretry: %d\ndata:\n\n" % (self.stream.encode(), retry_ms)


def render_event(message: bytes, event_id: bytes | None = None) -> bytes:
    """A message as one server-sent event. Widely used readers split lines where Unicode, but not the standard, has their ends."""
    data = message if message.isascii() else escape_line_ends(message)
    if event_id is None:
        return b"event: message\ndata: %b\n\n" % data
    return b"id: %b\nevent: message\ndata: %b\n\n" % (event_id, data)


def parse_event_id(value: bytes) -> tuple[str, int] | None:
    """The stream and the number in a ``Last-Event-ID``; None if it is none of ours."""
    stream, dash, number = value.partition(b"-")
    if not dash or not number.isdigit() or len(number) > 18 or not stream.isascii():
        return None
    return stream.decode("ascii"), int(number)
