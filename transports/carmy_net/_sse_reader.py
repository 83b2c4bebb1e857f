"""A parser of server-sent events (WHATWG HTML, 9.2.6), for clients."""

from __future__ import annotations

import re

import msgspec

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Limit of one event: eight times the default limit of a tool's output."""

MAX_RETRY_DIGITS = 9
"""Of ``retry``, in milliseconds: eleven days."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerSentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event.

    Attributes:
        event: Its kind; ``message`` if the stream names none.
        data: Its data, UTF-8; several lines are joined by LF.
        id: The last id that the stream has set; empty before the first.
    """

    event: str
    data: bytes
    id: str


class EventReader:
    """An incremental parser: takes chunks of bytes, returns the events that they complete, in linear time.

    Lines end with LF, CR or CRLF only; U+2028 is an ordinary character. Comments, unknown fields and an incomplete last event are
    dropped, as the standard requires.

    Args:
        limit: Bytes of one event.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._size = 0
        self._kind = ""
        self._data = bytearray()
        self._id = ""
        self._retry: float | None = None

    @property
    def retry_secs(self) -> float | None:
        """Seconds to wait before connecting again, as the stream has set them; None before that."""
        return self._retry

    @property
    def last_id(self) -> str:
        """The last id that the stream has set, also in an event without data; empty before the first."""
        return self._id

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Parse bytes; return the events that they complete.

        Raises:
            ValueError: An event exceeds the limit. The reader cannot be used any more.
        """
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        events: list[ServerSentEvent] = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._grow(data[start : end.start()])
            self._take_line(events)
            start = end.end()
        self._after_cr = data.endswith(b"\r") if data else self._after_cr
        self._grow(data[start:])
        return events

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ValueError(f"an event has more than {self._limit} bytes")
        self._line += piece

    def _take_line(self, events: list[ServerSentEvent]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")  # the standard allows a BOM here only
        if not line:
            self._dispatch(events)
            return
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name and colon:
            self._size -= len(line)  # a comment
        elif name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
            self._retry = int(value) / 1000

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            data = bytes(self._data[:-1])
            events.append(ServerSentEvent(event=self._kind or "message", data=data, id=self._id))
        self._kind = ""
        self._data.clear()
        self._size = 0
