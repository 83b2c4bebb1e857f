"""The body of one HTTP/1 request, out of the bytes that have arrived. Pure: no sockets, no clocks."""

from __future__ import annotations

import re

from ._framing import MAX_BODY_CHUNKS, FramingError
from ._native_head import NOT_HTTP

MAX_LINE_BYTES = 16 * 1024
"""The size of a chunk with its extensions, or all trailers together: as much as the other front end buffers for them."""

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\n]*)?[ \t]*\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?[ \t]*")


class Body:
    """Takes the bytes of one body off the front of a connection's buffer.

    Args:
        length: Its bytes; None when it comes in chunks.

    Attributes:
        complete: All of it has been taken.
        pending: What has been taken and not been read yet.
    """

    __slots__ = ("_chunked", "_chunks", "_left", "_mode", "complete", "pending")

    def __init__(self, length: int | None) -> None:
        self._chunked = length is None
        self._left = length or 0  # of the body, or of the present chunk
        self._mode = "size"
        self._chunks = 0
        self.complete = length == 0
        self.pending = bytearray()

    def read(self) -> bytes:
        """What is pending."""
        data = bytes(self.pending)
        self.pending.clear()
        return data

    def passes(self, data: bytes) -> bool:
        """Whether something that has come is of this body and nothing else, in which case it is as good as taken and read."""
        if self._chunked or self.pending or len(data) > self._left:
            return False
        self._left -= len(data)
        self.complete = self._left == 0
        return True

    def take(self, buffer: bytearray) -> None:
        """Take what belongs to this body; what is behind it stays.

        Raises:
            FramingError: The chunks are malformed or too many.
        """
        if self._chunked:
            while not self.complete and self._step(buffer):
                pass
        elif not self.complete:
            self._take_data(buffer)
            self.complete = self._left == 0

    def _take_data(self, buffer: bytearray) -> None:
        data = buffer[: self._left]
        del buffer[: len(data)]
        self._left -= len(data)
        self.pending += data

    def _step(self, buffer: bytearray) -> bool:
        """Go one step; False when there is too little for it."""
        if self._mode == "data":
            if not buffer:
                return False
            self._take_data(buffer)
            if self._left == 0:
                self._mode = "end"
            return True
        if self._mode == "end":
            if not b"\r\n".startswith(buffer[:2]):
                raise FramingError(400, NOT_HTTP)
            if len(buffer) < 2:
                return False
            del buffer[:2]
            self._mode = "size"
            return True
        return self._take_size(buffer) if self._mode == "size" else self._take_trailers(buffer)

    def _take_size(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\r\n") + 2
        if end < 2:
            return self._wait(buffer)
        match = _CHUNK_LINE.fullmatch(buffer, 0, end)
        if match is None:
            raise FramingError(400, NOT_HTTP)
        self._left = int(match[1], 16)
        del match  # it holds the buffer, which could not be resized
        del buffer[:end]
        if self._left == 0:
            self._mode = "trailers"
            return True
        self._chunks += 1
        if self._chunks > MAX_BODY_CHUNKS:
            raise FramingError(400, f"the body comes in more than {MAX_BODY_CHUNKS} chunks")
        self._mode = "data"
        return True

    def _take_trailers(self, buffer: bytearray) -> bool:
        if buffer.startswith(b"\r\n"):
            del buffer[:2]
            self.complete = True
            return True
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return self._wait(buffer)
        for line in bytes(buffer[:end]).split(b"\r\n"):
            if _TRAILER.fullmatch(line) is None:
                raise FramingError(400, NOT_HTTP)
        del buffer[: end + 4]
        self.complete = True
        return True

    def _wait(self, buffer: bytearray) -> bool:
        if len(buffer) > MAX_LINE_BYTES:
            raise FramingError(431, NOT_HTTP)
        return False
