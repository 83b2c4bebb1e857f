"""The head of an HTTP/2 request: the rules of RFC 9113, 8.2 and 8.3, and those of HTTP/1.1."""

from __future__ import annotations

import re
from typing import NamedTuple

from carmy_net.http1 import FramingError

from ..http1.request_head import read_request_head
from ..message import HeaderList

OF_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
"""Headers that HTTP/2 does not have (8.2.2)."""

_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_LINE_END = re.compile(rb"[\x00\r\n]")
_UPPER_CASE = re.compile(rb"[A-Z]")


class Http2Head(NamedTuple):
    """A checked head.

    Attributes:
        headers: Pseudo-headers first, without ``host`` and ``expect``.
        length: What Content-Length announces; None without one.
        expects_continue: The client waits for ``100 Continue``.
    """

    headers: list[tuple[bytes, bytes]]
    length: int | None
    expects_continue: bool


def read_http2_head(headers: HeaderList, max_bytes: int) -> Http2Head:
    """Check a decoded header block.

    The head is also read as one of HTTP/1.1, so that both versions accept the same requests.

    Raises:
        FramingError: It is no request, or HTTP/1.1 with these headers would be refused.
    """
    pseudo: dict[bytes, bytes] = {}
    fields: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if _LINE_END.search(name + value) or value != value.strip(b" \t"):
            raise FramingError(400, "a header contains line ends, or begins or ends with white space")
        if name.startswith(b":"):
            if fields or name in pseudo or name not in _PSEUDO:
                raise FramingError(400, "the pseudo-headers are not those of a request")
            pseudo[name] = value
        elif _UPPER_CASE.search(name) or name in OF_CONNECTION or (name == b"te" and value != b"trailers"):
            raise FramingError(400, "a header is not allowed in HTTP/2")
        else:
            fields.append((name, value))
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if method != b"CONNECT" and (not path.startswith(b"/") and (method, path) != (b"OPTIONS", b"*")):
        raise FramingError(400, "the path of the request is missing, or does not begin with a slash")
    if method != b"CONNECT" and not pseudo.get(b":scheme"):
        raise FramingError(400, "the scheme of the request is missing")
    hosts = [value for name, value in fields if name == b"host"]
    authority = pseudo.get(b":authority")
    if authority is None:
        authority = hosts[0] if len(hosts) == 1 else None
    if authority is None or any(host != authority for host in hosts):
        raise FramingError(400, "the request has no authority, or several")
    fields = [header for header in fields if header[0] != b"host"]
    lines = [
        b"%b %b HTTP/1.1" % (method, path or b"/"),
        b"host: " + authority,
        *(b"%b: %b" % field for field in fields),
    ]
    head = read_request_head(b"\r\n".join([*lines, b"", b""]), max_bytes)
    has_length = any(name == b"content-length" for name, _ in fields)
    plain = [(b":method", method), (b":scheme", pseudo[b":scheme"]), (b":authority", authority), (b":path", path)]
    plain += [field for field in fields if field[0] != b"expect"]
    return Http2Head(plain, head.length if has_length else None, head.expects_continue)
