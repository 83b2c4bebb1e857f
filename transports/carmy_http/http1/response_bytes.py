"""Answers as the bytes of HTTP/1.1, each in one piece."""

from __future__ import annotations

import functools

from ..message import WITHOUT_LENGTH, Headers, Response
from .date import http_date

MAX_KNOWN_HEADS = 256
"""Status and headers whose rendering is remembered; answers differ in little but their bodies."""


def whole(answer: Response, *, with_body: bool, ends: bool) -> bytes:
    """A complete answer.

    Args:
        answer: The answer.
        with_body: False for HEAD; the length stands.
        ends: The connection closes after it.
    """
    body = answer.body
    return b"".join(
        (
            head_of(answer.status, answer.headers, ends),
            http_date(),
            _END if answer.status in WITHOUT_LENGTH else b"\r\ncontent-length: %d\r\n\r\n" % len(body),
            body if with_body else b"",
        )
    )


_END = b"\r\n\r\n"


@functools.lru_cache(MAX_KNOWN_HEADS)
def head_of(status: int, headers: Headers, ends: bool) -> bytes:
    """Everything up to the value of the header Date."""
    lines = [b"HTTP/1.1 %d " % status, *(b"%b: %b" % header for header in headers)]
    if ends:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"date: "])
