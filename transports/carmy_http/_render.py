"""Answers as the bytes of HTTP/1.1, each in one piece."""

from __future__ import annotations

import functools

from ._date import http_date
from ._message import Response

MAX_KNOWN_HEADS = 256
"""Status and headers whose rendering is remembered; answers differ in little but their bodies."""


def whole(answer: Response, *, with_body: bool, ends: bool) -> bytes:
    """A complete answer.

    Args:
        answer: The answer.
        with_body: False for HEAD; the length stands.
        ends: The connection closes after it.
    """
    return b"%b%bdate: %b\r\n%b\r\n%b" % (
        _head(answer.status, tuple(answer.headers)),
        b"content-length: %d\r\n" % len(answer.body) if answer.has_length else b"",
        http_date(),
        b"connection: close\r\n" if ends else b"",
        answer.body if with_body else b"",
    )


@functools.lru_cache(MAX_KNOWN_HEADS)
def _head(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"HTTP/1.1 %d \r\n%b" % (status, b"".join([b"%b: %b\r\n" % header for header in headers]))
