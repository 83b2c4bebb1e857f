"""Answers of the native front end as bytes, each in one piece."""

from __future__ import annotations

import logging

from carmy_engine.codec import invalid_request
from carmy_engine.errors import AgentError

from ._date import http_date
from ._errors import error_body, error_response
from ._message import Disconnected, Response, SendChunk, StreamResponse
from ._native_head import Head
from ._render import whole

log = logging.getLogger("carmy_http")

FULL_RETRY_SECONDS = 1
"""After being told that there are too many connections."""


def stream_head(answer: StreamResponse, head: Head, *, ends: bool) -> bytes:
    """The head of an answer that is made while it is sent: in chunks, or for HTTP/1.0 up to the connection's end."""
    lines = [b"HTTP/1.1 %d \r\n" % answer.status]
    lines += [b"%b: %b\r\n" % header for header in answer.headers]
    lines.append(b"date: %b\r\n" % http_date())
    if not head.is_old:
        lines.append(b"transfer-encoding: chunked\r\n")
    lines.append(b"connection: close\r\n\r\n" if ends else b"\r\n")
    return b"".join(lines)


async def write_stream(answer: StreamResponse, head: Head, send: SendChunk, *, ends: bool) -> bytes | None:
    """Write an answer while it is made. Returns what is still to be sent, None when it broke off.

    The head waits for the first piece, which follows at once, so that both are one packet.

    Args:
        answer: The answer.
        head: Of the request.
        send: Sends to the client.
        ends: The connection closes after it.
    """
    begun = False

    async def write(chunk: bytes) -> None:
        nonlocal begun
        before = b"" if begun else stream_head(answer, head, ends=ends)
        begun = True
        await send(before + chunk if head.is_old else b"%b%x\r\n%b\r\n" % (before, len(chunk), chunk))

    try:
        complete = await answer.run(write)
    except Disconnected:
        return None
    except Exception:
        # The boundary of one call. The head is out, so the body just ends, without its last event and without a
        # proper end, which is how a client can tell.
        log.exception("a stream broke off")
        return None
    if complete is not None:
        return whole(complete, with_body=True, ends=ends)
    held = b"" if begun else stream_head(answer, head, ends=ends)
    return held if head.is_old else held + b"0\r\n\r\n"


def refusal(status: int, reason: str, extra: bytes) -> bytes:
    """The answer to what is no request; the connection closes after it.

    Args:
        status: The status code.
        reason: What is wrong.
        extra: More header lines.
    """
    body = error_body(invalid_request(reason).info)
    return (
        b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncache-control: no-store\r\n%b"
        b"date: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, extra, http_date(), len(body), body)
    )


def no_room() -> Response:
    """The answer to all but questions about health on a connection beyond the limit."""
    return error_response(
        AgentError.standard(
            "OVERLOADED",
            "the server has as many connections as it may (http.max_connections); only /health and /ready are answered",
            retry_after=FULL_RETRY_SECONDS,
        )
    )
