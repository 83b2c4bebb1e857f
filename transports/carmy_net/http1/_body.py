"""The body of a request, of known length or in chunks (RFC 9112, 6 and 7)."""

from __future__ import annotations

import enum
import math
import re

from ._error import NOT_HTTP, FramingError
from ._grammar import BARE_LINE_END, CONTROL, TOKEN

MAX_BODY_CHUNKS = 16 * 1024
"""Of one request. Each costs a parser far more than its bytes: a million of them would hold the event loop for seconds."""

MAX_EXTENSION_BYTES = 16 * 1024
"""Of all chunk extensions of one body, which are ignored."""

MAX_TRAILER_BYTES = 16 * 1024
"""Of all trailers of one body, which are ignored."""

_FORBIDDEN_TRAILERS = {b"content-length", b"host", b"transfer-encoding"}
"""Fields that affect framing or routing, which are decided before the trailers arrive (RFC 9110, 6.5.1)."""

_MAX_SIZE_DIGITS = 20
"""Of a chunk's size: more than any body that is accepted, and few enough to be read at once."""

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,%d}(?![0-9A-Fa-f])" % _MAX_SIZE_DIGITS)

# RFC 9112, 7.1.1. A quote without an end is refused too: to some parsers the line goes on behind it. Every repetition is possessive, so
# that nothing is matched twice.
_EXTENSIONS = re.compile(
    rb"(?:[ \t]*+;[ \t]*+%(token)b(?:[ \t]*+=[ \t]*+(?:%(token)b|\"(?:[^\x00-\x08\x0a-\x1f\x7f\"\\]|\\[\t\x20-\x7e\x80-\xff])*+\"))?+)++"
    % {b"token": rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"}
)


class _State(enum.Enum):
    """The next part of a chunked body."""

    SIZE = enum.auto()
    DATA = enum.auto()
    DATA_END = enum.auto()
    TRAILERS = enum.auto()


class BodyReader:
    """Takes the bytes of one body off the front of a connection's buffer.

    Chunk extensions and trailers are checked and dropped (RFC 9112, 7.1.1 and 7.1.2).

    Args:
        length: Its bytes; None when it comes in chunks.
        max_bytes: Of a body in chunks.

    Attributes:
        complete: The whole body has been taken.
        is_too_large: A chunk is announced that makes the body longer than `max_bytes`. Nothing more is taken.
        pending: Bytes that have been taken and not read yet.
    """

    __slots__ = (
        "_checked",
        "_chunked",
        "_chunks",
        "_extension_bytes",
        "_left",
        "_room",
        "_state",
        "complete",
        "is_too_large",
        "pending",
    )

    def __init__(self, length: int | None, max_bytes: float = math.inf) -> None:
        self._chunked = length is None
        self._left = length or 0  # of the body, or of the present chunk
        self._state = _State.SIZE
        self._room = max_bytes
        self._chunks = 0
        self._extension_bytes = 0
        self._checked = 0  # of the buffer, in a line that is not complete
        self.complete = length == 0
        self.is_too_large = False
        self.pending = bytearray()

    def read(self) -> bytes:
        """Return the pending bytes, and remove them."""
        data = bytes(self.pending)
        self.pending.clear()
        return data

    def passes(self, data: bytes) -> bool:
        """True if `data` belongs to this body and nothing is pending before it. It then counts as taken and read."""
        if self._chunked or self.pending or len(data) > self._left:
            return False
        self._left -= len(data)
        self.complete = self._left == 0
        return True

    def take(self, buffer: bytearray) -> None:
        """Remove the bytes of this body from a buffer; later bytes stay.

        Raises:
            FramingError: The chunks are malformed or too many.
        """
        if self._chunked:
            while not (self.complete or self.is_too_large) and self._step(buffer):
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
        """Parse the next part; False when the buffer is too short for it."""
        match self._state:
            case _State.SIZE:
                return self._take_size(buffer)
            case _State.DATA:
                if not buffer:
                    return False
                self._take_data(buffer)
                if self._left == 0:
                    self._state = _State.DATA_END
                return True
            case _State.DATA_END:
                if not b"\r\n".startswith(buffer[:2]):
                    raise FramingError(400, NOT_HTTP)
                if len(buffer) < 2:
                    return False
                del buffer[:2]
                self._state = _State.SIZE
                return True
            case _State.TRAILERS:
                return self._take_trailers(buffer)

    def _take_size(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\r\n", max(0, self._checked - 1))
        if end < 0:
            return self._wait(buffer, _MAX_SIZE_DIGITS + MAX_EXTENSION_BYTES - self._extension_bytes)
        line = bytes(buffer[: min(end, _MAX_SIZE_DIGITS + MAX_EXTENSION_BYTES + 1)])
        size = _SIZE.match(line)
        if size is None:
            raise FramingError(400, NOT_HTTP)
        if size.end() < end:
            self._check_extension(line[size.end() :])
        self._left = int(size[0], 16)
        self._checked = 0
        del buffer[: end + 2]
        if self._left == 0:
            self._state = _State.TRAILERS
            return True
        self._chunks += 1
        if self._chunks > MAX_BODY_CHUNKS:
            raise FramingError(400, f"the body comes in more than {MAX_BODY_CHUNKS} chunks")
        self._room -= self._left
        self.is_too_large = self._room < 0
        self._state = _State.DATA
        return True

    def _check_extension(self, extension: bytes) -> None:
        self._extension_bytes += len(extension)
        if self._extension_bytes > MAX_EXTENSION_BYTES:
            raise FramingError(431, f"the body has more than {MAX_EXTENSION_BYTES} bytes of chunk extensions")
        if _EXTENSIONS.fullmatch(extension) is None:
            raise FramingError(400, NOT_HTTP)

    def _take_trailers(self, buffer: bytearray) -> bool:
        if buffer.startswith(b"\r\n"):
            del buffer[:2]
            self.complete = True
            return True
        end = buffer.find(b"\r\n\r\n", max(0, self._checked - 3))
        if end < 0:
            return self._wait(buffer, MAX_TRAILER_BYTES)
        if end > MAX_TRAILER_BYTES:
            raise _too_many_trailers()
        for line in bytes(buffer[:end]).split(b"\r\n"):
            name, colon, _ = line.partition(b":")
            if not colon or TOKEN.fullmatch(name) is None or CONTROL.search(line):
                raise FramingError(400, NOT_HTTP)
            if name.lower() in _FORBIDDEN_TRAILERS:
                raise FramingError(400, "a trailer is one of the headers that say where a message ends or goes")
        del buffer[: end + 4]
        self.complete = True
        return True

    def _wait(self, buffer: bytearray, limit: int) -> bool:
        """Refuse the beginning of a line that no continuation can make good; else wait for more."""
        if len(buffer) > limit:
            if self._state is _State.TRAILERS:
                raise _too_many_trailers()
            raise FramingError(431, f"the body has more than {MAX_EXTENSION_BYTES} bytes of chunk extensions")
        if BARE_LINE_END.search(buffer, max(0, self._checked - 1)):
            raise FramingError(400, NOT_HTTP)
        self._checked = len(buffer)
        return False


def _too_many_trailers() -> FramingError:
    return FramingError(431, f"the body has more than {MAX_TRAILER_BYTES} bytes of trailers")
