"""Reading a request's head as every front end of HTTP does: the rules of `carmy_net.http1`, and no change of protocol."""

from __future__ import annotations

from carmy_net.http1 import MAX_HEAD_BYTES, FramingError, ParsedHead, read_head


def read_request_head(raw: bytes, max_bytes: int = MAX_HEAD_BYTES) -> ParsedHead:
    """Parse a complete head, blank line included, without its offers to change the protocol.

    Leaving an offer out is how a server declines it (RFC 9110, 7.8): HTTP/2 is never spoken in clear text. WebSocket is refused
    instead, because its client would not understand an ordinary answer.

    Raises:
        FramingError: It is no head of a request, or asks for a WebSocket.
    """
    head = read_head(raw, max_bytes)
    offers = [value for name, value in head.headers if name == b"upgrade"]
    if not offers:
        return head
    if any(b"websocket" in offer.lower() for offer in offers):
        raise FramingError(400, "WebSocket is not served at this address; the transport 'ws' has a listener of its own")
    return head._replace(headers=[header for header in head.headers if header[0] != b"upgrade"])
