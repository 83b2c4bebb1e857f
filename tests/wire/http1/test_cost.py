"""What reading costs: bytes that are looked at, counted, for messages that arrive byte by byte."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from carmy_net.http1 import BodyReader, FramingError, HeadReader, _body, _head
from carmy_net.http1._grammar import BARE_LINE_END


class Counting(bytearray):
    """A buffer that counts the bytes that searches look at, and those that are copied out of it."""

    seen = 0

    def find(self, sub: Any, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        found = super().find(sub, start)
        self.seen += (len(self) if found < 0 else found + len(sub)) - start
        return found

    def __getitem__(self, index: Any) -> Any:
        taken = super().__getitem__(index)
        self.seen += len(taken) if isinstance(index, slice) else 1
        return taken


class CountingPattern:
    """A regular expression that counts the bytes of a buffer that its searches may look at."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self._pattern = pattern

    def search(self, buffer: bytes | Counting, start: int = 0) -> re.Match[bytes] | None:
        if isinstance(buffer, Counting):
            buffer.seen += len(buffer) - start
        return self._pattern.search(buffer, start)


def read_head_of(size: int) -> int:
    """The cost of a head of one long header."""
    return _feed(HeadReader().take, b"GET / HTTP/1.1\r\nx: " + b" " * size + b"\r\n\r\n")


def read_lines_of(size: int) -> int:
    """The cost of a head of many short headers."""
    return _feed(HeadReader().take, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (size // 6) + b"\r\n")


def read_empty_lines(size: int) -> int:
    """The cost of empty lines before a head."""
    return _feed(HeadReader().take, b"\r\n" * (size // 2))


def read_extension_of(size: int) -> int:
    """The cost of one long chunk extension."""
    return _feed(BodyReader(None).take, b"1;" + b" " * size + b"a\r\nx\r\n")


def read_trailers_of(size: int) -> int:
    """The cost of many trailers."""
    return _feed(BodyReader(None).take, b"0\r\n" + b"a: b\r\n" * (size // 6) + b"\r\n")


def read_chunks_of(size: int) -> int:
    """The cost of many small chunks."""
    return _feed(BodyReader(None).take, b"1\r\nx\r\n" * (size // 6) + b"0\r\n\r\n")


def _feed(take: Callable[[bytearray], object], data: bytes) -> int:
    buffer = Counting()
    with contextlib.suppress(FramingError):
        for byte in data:
            buffer.append(byte)
            take(buffer)
    return buffer.seen


@pytest.mark.parametrize(
    "cost", [read_head_of, read_lines_of, read_empty_lines, read_extension_of, read_trailers_of, read_chunks_of]
)
def test_twice_the_bytes_cost_twice_the_work(cost: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading is linear in the bytes that come, however they are cut: nothing is searched again from its beginning."""
    for module in (_body, _head):
        monkeypatch.setattr(module, "BARE_LINE_END", CountingPattern(BARE_LINE_END))
    assert 0 < cost(14_000) < 2.2 * cost(7_000) + 100
    assert cost(14_000) < 10 * 14_000
