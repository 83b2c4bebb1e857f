"""Answers of the native front end as bytes, each in one piece."""

from __future__ import annotations

import logging

from carmy_engine.errors import AgentError
from carmy_engine.transport import contain

from ..api.errors import error_response
from ..http1.date import http_date
from ..http1.response_bytes import head_of, whole
from ..message import Disconnected, Response, SendChunk, StreamResponse
from .head import Head

log = logging.getLogger("carmy.http")

FULL_RETRY_SECONDS = 1
"""After being told that there are too many connections."""


def stream_head(answer: StreamResponse, head: Head, *, ends: bool) -> bytes:
    """The head of an answer that is made while it is sent: in chunks, or for HTTP/1.0 up to the connection's end."""
    end = b"\r\n\r\n" if head.is_old else b"\r\ntransfer-encoding: chunked\r\n\r\n"
    return head_of(answer.status, answer.headers, ends) + http_date() + end


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
    except BaseException as error:  # noqa: BLE001 - see below
        # The boundary of one call. The head is out, so the body just ends, without its last event and without a
        # proper end, which is how a client can tell.
        contain(error, log, "a stream broke off")
        return None
    if complete is not None:
        return whole(complete, with_body=True, ends=ends)
    held = b"" if begun else stream_head(answer, head, ends=ends)
    return held if head.is_old else held + b"0\r\n\r\n"


def no_room() -> Response:
    """The answer to all but questions about health on a connection beyond the limit."""
    return error_response(
        AgentError.standard(
            "OVERLOADED",
            "the server has as many connections as it may (http.max_connections); only /health and /ready are answered",
            retry_after=FULL_RETRY_SECONDS,
        )
    )
