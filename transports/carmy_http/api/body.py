"""Reading a request's body: whole, bounded in bytes and in time."""

from __future__ import annotations

import trio

from carmy_engine.codec import invalid_request
from carmy_engine.errors import AgentError

from ..message import Request
from .errors import Refusal

MAX_BODY_BYTES = 1024 * 1024
"""Exactly this many bytes still pass. Arguments of a tool are a few kilobytes; files do not belong in them."""


def _too_large() -> AgentError:
    return AgentError.standard(
        "PAYLOAD_TOO_LARGE",
        f"the body is larger than {MAX_BODY_BYTES} bytes",
        suggested_action="Send large content by reference, for example as a URL or a path.",
        details={"limit_bytes": MAX_BODY_BYTES},
    )


def body_at_hand(request: Request) -> bytes | None:
    """The whole body, if it is here already: most are. None otherwise, and then `read_body` gets it.

    Raises:
        Refusal: 413.
    """
    whole = request.body_at_hand()
    if whole is not None and len(whole) > MAX_BODY_BYTES:
        raise Refusal(_too_large())
    return whole


async def read_body(request: Request, seconds: float) -> bytes:
    """Read the body to its end.

    Args:
        request: The request.
        seconds: For the whole body, however steadily it trickles in.

    Raises:
        Refusal: 413 as soon as the body is known to be too large, 408 when it is too slow.
        AgentError: ``INVALID_REQUEST`` for a length that is no number.
        Disconnected: The client left before the end.
    """
    declared = request.first(b"content-length")
    if declared is not None:
        if not declared.isdigit():
            raise invalid_request("the header Content-Length is not a number")
        if len(declared) > 18 or int(declared) > MAX_BODY_BYTES:
            raise Refusal(_too_large())
    whole = body_at_hand(request)
    if whole is not None:
        return whole
    body: bytes | bytearray = b""
    with trio.move_on_after(seconds):
        while chunk := await request.next_chunk():
            if len(body) + len(chunk) > MAX_BODY_BYTES:
                raise Refusal(_too_large())
            if not body:
                body = chunk  # mostly all of it
            elif isinstance(body, bytes):
                body = bytearray(body) + chunk
            else:
                body += chunk  # tiny chunks cost no more than their bytes
        return bytes(body)
    raise Refusal(invalid_request(f"the body did not arrive within {seconds:g} seconds"), status=408)
