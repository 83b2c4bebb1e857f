"""The opening handshake of a server (RFC 6455, 4.2), without a loop: the bytes of a head to what they ask for.

The WebSocket library never sees a peer's head. Some heads that HTTP allows raise in it, and its refusals have no body; so
the head is read here, by the strict rules of `carmy_net.http1`, and the library gets one that is written here (`library_head`).
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
"""Of a request's head; browsers and proxies send a few kilobytes."""

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
    """A handshake that gets no further, with the answer it gets.

    Args:
        error: What the body says.
        status: Where the code alone would give another one.
        headers: To add to the answer.
    """

    def __init__(
        self, error: AgentError, *, status: int | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(error)
        self.error = error
        self.status = status or _STATUS.get(error.code, 400)
        self.headers = tuple(headers)

    def answer(self) -> bytes:
        """The whole HTTP answer; the connection ends after it."""
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
        path: Without the query.
        is_old: The version is HTTP/1.0, which has no upgrades (RFC 9110, 7.8).
        headers: In order; names in lower case.
    """

    method: str
    path: str
    is_old: bool
    headers: Headers

    def every(self, name: bytes) -> list[bytes]:
        """The values of a header."""
        return [value for key, value in self.headers if key == name]

    def tokens(self, name: bytes) -> list[str]:
        """The elements of a list header, in all its lines.

        Raises:
            Refused: It is not ASCII.
        """
        try:
            text = b",".join(self.every(name)).decode("ascii")
        except UnicodeDecodeError:
            raise Refused(invalid_request(f"the header {name.decode()} is not ASCII")) from None
        return [token.strip() for token in text.split(",") if token.strip()]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A handshake that may be accepted.

    Attributes:
        key: Its ``Sec-WebSocket-Key``, well formed.
        subprotocol: What the answer names; None when the client named none.
    """

    key: bytes
    subprotocol: str | None


def too_slow(seconds: float) -> Refused:
    """The refusal of a head that does not come."""
    return Refused(invalid_request(f"the request's head did not arrive within {seconds:g} seconds"), status=408)


class HandshakeReader:
    """Reads the head of one request, by the framing rules of HTTP."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._heads = HeadReader(MAX_HEAD_BYTES)

    def receive(self, data: bytes | bytearray) -> Head | None:
        """Take bytes from the peer; return the head once it is complete.

        Raises:
            Refused: It is not HTTP/1, too large, announces a body, or is followed by bytes that had to wait for the answer.
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
            path=head.target.decode("ascii").partition("?")[0],
            is_old=head.is_old,
            headers=head.headers,
        )


def check_route(head: Head) -> None:
    """Refuse what asks for something else than this address has.

    Raises:
        Refused: 404, 405.
    """
    if head.path != PATH:
        error = AgentError.standard(
            "ROUTE_NOT_FOUND", "there is nothing at this address", suggested_action=f"Open a WebSocket at {PATH}."
        )
        raise Refused(error)
    if head.method != "GET":
        error = AgentError.standard("METHOD_NOT_ALLOWED", "a WebSocket is opened with GET")
        raise Refused(error, headers=[(b"allow", b"GET")])


def check_upgrade(head: Head) -> Offer:
    """The handshake in a head whose route has been checked.

    Raises:
        Refused: 426 if it asks for no WebSocket or for another version, 400 if it does so wrongly.
    """
    connection = [token.lower() for token in head.tokens(b"connection")]
    upgrade = [token.lower() for token in head.tokens(b"upgrade")]
    if head.is_old or "upgrade" not in connection or "websocket" not in upgrade:
        raise Refused(
            invalid_request("this address speaks WebSocket only"),
            status=426,
            headers=[(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")],
        )
    if head.tokens(b"sec-websocket-version") != ["13"]:
        raise Refused(
            invalid_request("the version of a WebSocket is 13"),
            status=426,
            headers=[(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")],
        )
    keys = head.every(b"sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise Refused(invalid_request("the header Sec-WebSocket-Key must be 16 bytes in base64"))
    offered = head.tokens(b"sec-websocket-protocol")
    if offered and SUBPROTOCOL not in offered:
        raise Refused(invalid_request(f"the subprotocol of this address is {SUBPROTOCOL}"))
    return Offer(key=keys[0], subprotocol=SUBPROTOCOL if offered else None)


def library_head(offer: Offer) -> bytes:
    """The head that the library gets in the place of the peer's: the same handshake, in words that it takes."""
    subprotocol = b"" if offer.subprotocol is None else b"Sec-WebSocket-Protocol: %b\r\n" % offer.subprotocol.encode()
    return (
        b"GET %b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n%b\r\n"
    ) % (PATH.encode(), offer.key, subprotocol)


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False
