"""Answers as the bytes of HTTP/1.1, each in one piece."""

from __future__ import annotations

import email.utils
import functools
import time

from ..message import WITHOUT_LENGTH, Headers, Response

MAX_CACHED_HEADS = 256
"""Rendered combinations of status and headers that are cached; answers differ in little but their bodies."""


def render_response(answer: Response, *, with_body: bool, ends: bool) -> bytes:
    """A complete answer.

    Args:
        answer: The answer.
        with_body: False for HEAD, which keeps the length.
        ends: The connection closes after it.
    """
    body = answer.body
    return b"".join(
        (
            render_head(answer.status, answer.headers, ends),
            http_date(),
            _END if answer.status in WITHOUT_LENGTH else b"\r\ncontent-length: %d\r\n\r\n" % len(body),
            body if with_body else b"",
        )
    )


_END = b"\r\n\r\n"


@functools.lru_cache(MAX_CACHED_HEADS)
def render_head(status: int, headers: Headers, ends: bool) -> bytes:
    """The status line and headers, up to the value of the header ``Date``."""
    lines = [b"HTTP/1.1 %d " % status, *(b"%b: %b" % header for header in headers)]
    if ends:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"date: "])


_last_date = (0, b"")


def http_date() -> bytes:
    """The value of ``Date`` (RFC 9110, 6.6.1), rendered once a second."""
    global _last_date  # noqa: PLW0603 - a cache of one entry
    now = int(time.time())
    if _last_date[0] != now:
        _last_date = (now, email.utils.formatdate(now, usegmt=True).encode())
    return _last_date[1]
