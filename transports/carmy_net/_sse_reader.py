"""Reads server-sent events (WHATWG HTML, 9.2.6), for clients."""

from __future__ import annotations

import re

import msgspec

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Of one event's bytes. The largest outputs that tools are allowed by default have an eighth of it."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


class ServerSentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event.

    Attributes:
        event: Its kind; ``message`` where the stream names none.
        data: Its data, UTF-8, several lines joined by LF.
        id: The last id that the stream has set; empty before.
    """

    event: str
    data: bytes
    id: str


class EventReader:
    """Takes bytes, however they are cut, and gives the events that they complete. Linear in what it is given.

    Lines end with LF, CR or CRLF and with nothing else: not with U+2028, which is a character like others. Comments,
    unknown fields and an event that the stream breaks off are dropped, as the standard has it.

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
        self.comments = 0
        """Comments so far: a server that sends them lives, but they extend no deadline."""

    @property
    def last_id(self) -> str:
        """The last id that the stream has set, by an event without data as well; empty before."""
        return self._id

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take bytes; give the events that they complete.

        Raises:
            ValueError: An event is over the limit. The reader is of no use from then on.
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
            line = line.removeprefix(b"\xef\xbb\xbf")  # the one place where a BOM is allowed
        if not line:
            self._dispatch(events)
            return
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not name and colon:
            self.comments += 1
            self._size -= len(line)
        elif name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            data = bytes(self._data[:-1])
            events.append(ServerSentEvent(event=self._kind or "message", data=data, id=self._id))
        self._kind = ""
        self._data.clear()
        self._size = 0
