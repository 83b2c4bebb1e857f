"""Reading the head of an HTTP/1 request strictly, before any parser may be lenient with it.

Where two parties could disagree about where a message ends, one of them can be made to see a request that the other
did not (request smuggling). So everything of that kind is refused here, whatever the parser behind would make of it.
Pure functions: no sockets, no clocks.
"""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 32 * 1024
"""Request line and headers. Twice what common proxies let through."""

MAX_HEADER_LINES = 128
"""Header lines of one request; each costs a parser far more than its bytes."""

MAX_BODY_CHUNKS = 16 * 1024
"""Of one request. Each costs a parser far more than its bytes: a million of them would hold the event loop for seconds."""

END_OF_HEAD = b"\r\n\r\n"

_SUSPICIOUS = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n|\r\n[ \t]"
    rb"|\r\n(?:content-length|transfer-encoding|upgrade)[ \t]*:",
    re.IGNORECASE,
)
_LINE_END = re.compile(rb"\r(?!\n|\Z)|(?<!\r)\n")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Methods are case-sensitive (RFC 9110, 9.1), and the parser behind would make "get" a GET: a proxy's rules would not apply.
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Z-]+ [\x21-\x7e]+ HTTP/1\.[01]\r\n")
_UPGRADE_LINE = re.compile(rb"\r\nupgrade[ \t]*:([^\r\n]*)", re.IGNORECASE)
_LENGTH_LINE = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_CODING_LINE = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)


class FramingError(Exception):
    """A head that is refused; the connection closes after the answer.

    Attributes:
        status: Of the answer.
        reason: In words, for the answer's body.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_incomplete_head(head: bytes | bytearray, checked: int = 0) -> None:
    """Refuse the beginning of a head as soon as no continuation can make it good.

    Args:
        head: What has arrived.
        checked: How much of it was checked before; looking at all of it for every packet would cost quadratic time.

    Raises:
        FramingError: Too long, or with line ends other than CR LF.
    """
    if len(head) > MAX_HEAD_BYTES:
        raise FramingError(431, f"the request's head is longer than {MAX_HEAD_BYTES} bytes")
    if _LINE_END.search(head, max(0, checked - 1)):  # a CR at the end had to wait for what follows
        raise FramingError(400, "the lines of a request's head must end with CR LF")


def check_head(head: bytes) -> bytes:
    """Check a complete head, blank line included; return what the parser shall see.

    Offers to change the protocol are taken out, which is how a server declines them: HTTP/2 is never spoken in
    clear text. WebSocket is refused instead, because its client would not understand an ordinary answer.

    Raises:
        FramingError: It is too large, malformed, or could be read in two ways.
    """
    if len(head) > MAX_HEAD_BYTES or head.count(b"\r\n") > MAX_HEADER_LINES + 2:
        raise FramingError(
            431, f"the request's head is longer than {MAX_HEAD_BYTES} bytes or {MAX_HEADER_LINES} header lines"
        )
    if not _REQUEST_LINE.match(head):
        raise FramingError(400, "the request line is not that of HTTP/1.1 or HTTP/1.0")
    if head.startswith(b"CONNECT "):
        raise FramingError(400, "this server is not a proxy: the method CONNECT is not supported")
    if _SUSPICIOUS.search(head):
        return _check_closely(head)
    return head


def _check_closely(head: bytes) -> bytes:
    if _CONTROL.search(head):
        raise FramingError(400, "the request's head contains control characters")
    if _LINE_END.search(head):
        raise FramingError(400, "the lines of a request's head must end with CR LF")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise FramingError(400, "a header is folded over several lines")
    lengths = _LENGTH_LINE.findall(head)
    codings = _CODING_LINE.findall(head)
    if lengths and codings:
        raise FramingError(400, "the request has both Content-Length and Transfer-Encoding")
    if len(lengths) > 1:
        raise FramingError(400, "the request has several Content-Length headers")
    if lengths and (not lengths[0].rstrip(b" \t").isdigit() or len(lengths[0]) > 18):
        raise FramingError(400, "the header Content-Length is not one reasonable number")
    if len(codings) > 1 or (codings and codings[0].rstrip(b" \t").lower() != b"chunked"):
        raise FramingError(400, "the only Transfer-Encoding that is understood is a single 'chunked'")
    if codings and head[head.index(b"\r\n") - 1 : head.index(b"\r\n")] == b"0":
        raise FramingError(400, "HTTP/1.0 has no Transfer-Encoding")
    for offered in _UPGRADE_LINE.findall(head):
        if b"websocket" in offered.lower():
            raise FramingError(
                400, "WebSocket is not served at this address; the transport 'ws' has a listener of its own"
            )
    return _UPGRADE_LINE.sub(b"", head)
