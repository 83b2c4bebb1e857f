"""The head of a request: request line and headers (RFC 9112, 2 to 6)."""

from __future__ import annotations

import re
from typing import NamedTuple

from ._error import NOT_HTTP, FramingError
from ._grammar import BARE_LINE_END, CONTROL, TOKEN

MAX_HEAD_BYTES = 32 * 1024
"""Request line and headers, by default. Twice what common proxies let through."""

MAX_HEADER_LINES = 128
"""Header lines of one request; each costs a parser far more than its bytes."""

END_OF_HEAD = b"\r\n\r\n"

_MAX_LENGTH_DIGITS = 18
"""Of Content-Length: every integer type of 64 bits holds such a number."""

# Methods are case-sensitive (RFC 9110, 9.1), and a parser may make "get" a GET: a proxy's rules would not apply.
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Z-]+) ([\x21-\x7e]+) (HTTP/1\.[01])\r\n")


class ParsedHead(NamedTuple):
    """A request's head.

    Attributes:
        method: As it was sent.
        target: As it was sent: path and query, or in absolute form.
        is_old: The version is HTTP/1.0.
        headers: In order; names in lower case, values without the blanks around them.
        keep_alive: The connection may be used again.
        expects_continue: The client waits for "100 Continue" before it sends the body.
        length: Bytes of the body; None when it comes in chunks.
    """

    method: bytes
    target: bytes
    is_old: bool
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    expects_continue: bool
    length: int | None


class HeadReader:
    """Takes complete heads off the front of a connection's buffer, in time linear in their bytes however they arrive.

    Args:
        max_bytes: Of a head.
    """

    __slots__ = ("_checked", "_max")

    def __init__(self, max_bytes: int = MAX_HEAD_BYTES) -> None:
        self._max = max_bytes
        self._checked = 0

    def take(self, buffer: bytearray) -> bytes | None:
        """Remove a head, blank line included, and the empty lines before it (RFC 9112, 2.2). None until it is complete.

        Raises:
            FramingError: No continuation can make this a head: it is too long, or a line ends with a bare CR or LF.
        """
        if buffer.startswith(b"\r\n"):
            self._skip_empty_lines(buffer)
        end = buffer.find(END_OF_HEAD, max(0, self._checked - len(END_OF_HEAD) + 1))
        if end < 0:
            self._check_incomplete(buffer)
            return None
        end += len(END_OF_HEAD)
        self._checked = 0
        if end > self._max:
            raise self._too_long()
        head = bytes(buffer[:end])
        del buffer[:end]
        return head

    def _skip_empty_lines(self, buffer: bytearray) -> None:
        count = 0
        while buffer.startswith(b"\r\n", count):
            count += 2
        del buffer[:count]
        self._checked = 0

    def _check_incomplete(self, buffer: bytearray) -> None:
        if len(buffer) > self._max:
            raise self._too_long()
        # A CR at the end of what was checked before had to wait for what follows.
        if BARE_LINE_END.search(buffer, max(0, self._checked - 1)):
            raise FramingError(400, "the lines of a request's head must end with CR LF")
        self._checked = len(buffer)

    def _too_long(self) -> FramingError:
        return FramingError(431, f"the request's head is longer than {self._max} bytes")


def read_head(head: bytes, max_bytes: int = MAX_HEAD_BYTES) -> ParsedHead:
    """Parse a complete head, blank line included.

    Raises:
        FramingError: The head is too large, malformed or ambiguous.
    """
    if len(head) > max_bytes or head.count(b"\r\n") > MAX_HEADER_LINES + 2:
        raise FramingError(
            431, f"the request's head is longer than {max_bytes} bytes or {MAX_HEADER_LINES} header lines"
        )
    start = _REQUEST_LINE.match(head)
    if start is None:
        raise FramingError(400, "the request line is not that of HTTP/1.1 or HTTP/1.0")
    method, target, version = start.groups()
    if method == b"CONNECT":
        raise FramingError(400, "this server is not a proxy: the method CONNECT is not supported")
    fields = _Fields()
    if start.end() < len(head) - 2:
        for line in head[start.end() : -4].split(b"\r\n"):
            fields.add(line)
    is_old = version == b"HTTP/1.0"
    return ParsedHead(
        method=method,
        target=target,
        is_old=is_old,
        headers=fields.headers,
        keep_alive=not is_old and not fields.closes,
        expects_continue=not is_old and fields.expects_continue,
        length=fields.length_of_body(is_old),
    )


class _Fields:
    """The header lines of one head, and the framing that they declare."""

    __slots__ = ("_codings", "_hosts", "_lengths", "closes", "expects_continue", "headers")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.closes = False
        self.expects_continue = False
        self._hosts = 0
        self._lengths: list[bytes] = []
        self._codings: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Parse a line.

        Raises:
            FramingError: The line is not a header.
        """
        if CONTROL.search(line):
            if b"\r" in line or b"\n" in line:
                raise FramingError(400, "the lines of a request's head must end with CR LF")
            raise FramingError(400, "the request's head contains control characters")
        if line[:1] in b" \t":
            raise FramingError(400, "a header is folded over several lines")
        name, colon, value = line.partition(b":")
        if not colon or TOKEN.fullmatch(name) is None:
            raise FramingError(400, NOT_HTTP)
        name = name.lower()
        value = value.strip(b" \t")
        self.headers.append((name, value))
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._lengths.append(value)
        elif name == b"transfer-encoding":
            self._codings.append(value)
        elif name == b"connection":
            self.closes = self.closes or b"close" in _items(value)
        elif name == b"expect":
            self.expects_continue = self.expects_continue or b"100-continue" in _items(value)

    def length_of_body(self, is_old: bool) -> int | None:
        """Bytes of the body; None when it comes in chunks.

        Raises:
            FramingError: The headers are ambiguous, or Host is missing or repeated.
        """
        if self._lengths and self._codings:
            raise FramingError(400, "the request has both Content-Length and Transfer-Encoding")
        if len(self._lengths) > 1:
            raise FramingError(400, "the request has several Content-Length headers")
        if self._lengths and not (self._lengths[0].isdigit() and len(self._lengths[0]) <= _MAX_LENGTH_DIGITS):
            raise FramingError(400, "the header Content-Length is not one reasonable number")
        if self._codings and [coding.lower() for coding in self._codings] != [b"chunked"]:
            raise FramingError(400, "the only Transfer-Encoding that is understood is a single 'chunked'")
        if self._codings and is_old:
            raise FramingError(400, "HTTP/1.0 has no Transfer-Encoding")
        if self._hosts != 1 and not (is_old and self._hosts == 0):
            raise FramingError(400, NOT_HTTP)
        if self._codings:
            return None
        return int(self._lengths[0]) if self._lengths else 0


def _items(value: bytes) -> list[bytes]:
    return [item.strip() for item in value.lower().split(b",")]
