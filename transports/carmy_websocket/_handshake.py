"""The opening handshake of a server (RFC 6455, 4.2), without I/O: the bytes of a head to a decision.

The WebSocket library raises on some heads that HTTP allows, and its refusals have no body. So the head is read here first, by
the strict rules of `carmy_net.http1`; the library gets the requests that pass, in their plainest form (`plain_request`).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping

import msgspec

from carmy_engine import AgentError
from carmy_engine.codec import invalid_request
from carmy_net import Headers
from carmy_net.http1 import FramingError, HeadReader, read_head

PATH = "/agent/ws"
SUBPROTOCOL = "carmy-frames.1"

MAX_HEAD_BYTES = 16 * 1024
"""Of a request's head. Browsers and proxies send a few kilobytes."""

_KEY_BYTES = 16

_REASONS: Mapping[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_STATUS = {
    "FORBIDDEN": 403,
    "UNAUTHENTICATED": 401,
    "ROUTE_NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "SHUTTING_DOWN": 503,
    "OVERLOADED": 503,
    "TOOL_PANIC": 500,
}


class Refused(Exception):  # noqa: N818 - an answer, not a fault of ours
    """A refused handshake, with its answer.

    Args:
        error: For the body.
        status: Overrides the status of the error's code.
        headers: Added to the answer.
    """

    def __init__(
        self, error: AgentError, *, status: int | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(error)
        self.error = error
        self.status = status or _STATUS.get(error.code, 400)
        self.headers = tuple(headers)

    def answer(self) -> bytes:
        """Render the HTTP answer, after which the connection closes."""
        body = b'{"error":%b}' % msgspec.json.encode(self.error.info)
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *self.headers,
        ]
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self.error.retry_after is not None:
            headers.append((b"retry-after", b"%d" % math.ceil(self.error.retry_after)))
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (self.status, _REASONS[self.status].encode(), lines, body)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A request's head.

    Attributes:
        method: As it was sent.
        target: As it was sent: path and query.
        is_old: The version is HTTP/1.0, which has no upgrades (RFC 9110, 7.8).
        headers: In order; names in lower case.
    """

    method: str
    target: str
    is_old: bool
    headers: Headers

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def every(self, name: bytes) -> list[bytes]:
        """Return the values of a header."""
        return [value for key, value in self.headers if key == name]

    def tokens(self, name: bytes) -> list[str]:
        """Return the elements of a list header, from all its lines.

        Raises:
            Refused: The header is not ASCII.
        """
        try:
            text = b",".join(self.every(name)).decode("ascii")
        except UnicodeDecodeError:
            raise Refused(invalid_request(f"the header {name.decode()} is not ASCII")) from None
        return [token.strip() for token in text.split(",") if token.strip()]


def too_slow(seconds: float) -> Refused:
    """Return the refusal of a head that is late."""
    return Refused(invalid_request(f"the request's head did not arrive within {seconds:g} seconds"), status=408)


class HandshakeReader:
    """Reads the head of one request, by the framing rules of HTTP."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._heads = HeadReader(MAX_HEAD_BYTES)

    def receive(self, data: bytes | bytearray) -> Head | None:
        """Take bytes from the peer; return the head once it is complete.

        Raises:
            Refused: It is not HTTP/1, too large, announces a body, or has bytes behind it that must wait for the answer.
        """
        self._buffer += data
        try:
            raw = self._heads.take(self._buffer)
            if raw is None:
                return None
            head = read_head(raw)
        except FramingError as error:
            raise Refused(invalid_request(error.reason), status=error.status) from None
        if head.length != 0:
            raise Refused(invalid_request("the request for a WebSocket has no body"))
        if self._buffer:
            raise Refused(
                invalid_request("there are bytes behind the request; a WebSocket client waits for the answer")
            )
        return Head(
            method=head.method.decode("ascii"),
            target=head.target.decode("ascii"),
            is_old=head.is_old,
            headers=head.headers,
        )


def check_route(head: Head, root: str = "") -> None:
    """Refuse a request for another resource or method.

    Args:
        head: The request.
        root: The prefix under which a proxy serves this server. A request may have it or not.

    Raises:
        Refused: 404, 405.
    """
    if head.path not in (PATH, root + PATH):
        error = AgentError.standard(
            "ROUTE_NOT_FOUND", "there is nothing at this address", suggested_action=f"Open a WebSocket at {root}{PATH}."
        )
        raise Refused(error)
    if head.method != "GET":
        error = AgentError.standard("METHOD_NOT_ALLOWED", "a WebSocket is opened with GET")
        raise Refused(error, headers=[(b"allow", b"GET")])


def check_upgrade(head: Head) -> str | None:
    """Check the handshake in a head whose route has been checked.

    Returns:
        The subprotocol for the answer; None when the client offers none.

    Raises:
        Refused: 426 for a request without an upgrade to version 13 of WebSocket, 400 for a malformed one.
    """
    connection = [token.lower() for token in head.tokens(b"connection")]
    upgrade = [token.lower() for token in head.tokens(b"upgrade")]
    if head.is_old or "upgrade" not in connection or "websocket" not in upgrade:
        raise _upgrade_required("this address speaks WebSocket only")
    if head.tokens(b"sec-websocket-version") != ["13"]:
        raise _upgrade_required("the version of a WebSocket is 13")
    keys = head.every(b"sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise Refused(invalid_request("the header Sec-WebSocket-Key must be 16 bytes in base64"))
    offered = head.tokens(b"sec-websocket-protocol")
    if offered and SUBPROTOCOL not in offered:
        raise Refused(invalid_request(f"the subprotocol of this address is {SUBPROTOCOL}"))
    if not all(_is_international(value) for value in head.every(b"host")):
        raise Refused(invalid_request("the header Host has a malformed international name"))
    return SUBPROTOCOL if offered else None


_CHOSEN = frozenset(
    (b"connection", b"upgrade", b"sec-websocket-version", b"sec-websocket-extensions", b"sec-websocket-protocol")
)


def plain_request(head: Head, subprotocol: str | None) -> bytes:
    """Render an accepted handshake for the library, with one value for each header that is a list of offers.

    The library reads a single line of these headers, where HTTP allows several (RFC 9110, 5.3).

    Args:
        head: Passed by `check_upgrade`.
        subprotocol: Its result.
    """
    headers = [header for header in head.headers if header[0] not in _CHOSEN]
    headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    if subprotocol is not None:
        headers.append((b"sec-websocket-protocol", subprotocol.encode()))
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (head.method.encode(), head.target.encode(), lines)


def _upgrade_required(reason: str) -> Refused:
    headers = [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    return Refused(invalid_request(reason), status=426, headers=headers)


def _is_international(host: bytes) -> bool:
    """True if the library can decode the name (RFC 3490)."""
    try:
        host.decode("idna")
    except UnicodeError:
        return False
    return True


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False
