"""Messages out of a stream of bytes: lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_frames.protocol import LineBuffer

STREAM = (
    b'{"a":1}\r\n\n  \t\n{"b":"\xe2\x80\xa8"}\n\r\n' + b"x" * 30 + b"\n" + b"y" * 20 + b"\n" + b"z" * 20 + b"\r\nlast"
)
LINES = [b'{"a":1}', b'{"b":"\xe2\x80\xa8"}', b"x" * 21, b"y" * 20, b"z" * 20, b"last"]


def split(pieces: list[bytes], limit: int = 20) -> list[bytes]:
    buffer = LineBuffer(limit)
    lines = [line for piece in pieces for line in buffer.feed(piece)]
    return lines + buffer.finish()


def test_whole() -> None:
    """One piece gives the lines without their ends; blank ones do not count, long ones are cut."""
    assert split([STREAM]) == LINES


def test_byte_by_byte() -> None:
    """It makes no difference when every byte comes alone."""
    assert split([STREAM[i : i + 1] for i in range(len(STREAM))]) == LINES


def test_with_a_tail() -> None:
    """A line is given as soon as its end is there, whatever follows."""
    buffer = LineBuffer(20)
    assert buffer.feed(b"one\ntw") == [b"one"]
    assert buffer.feed(b"o\n") == [b"two"]
    assert buffer.feed(b"three") == []
    assert buffer.finish() == [b"three"]
    assert buffer.finish() == []


def test_too_long_is_told_before_its_end() -> None:
    """A line over the limit is given at once, one byte over, and skipped to its end; nothing of it is kept."""
    buffer = LineBuffer(20)
    assert buffer.feed(b"a" * 21) == []
    assert buffer.feed(b"a") == [b"a" * 21]
    for _ in range(1000):
        assert buffer.feed(b"a" * 1000) == []
    assert buffer.feed(b"a\nb\n") == [b"b"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("length", [19, 20, 21, 22])
def test_limit(length: int, end: bytes) -> None:
    """The limit itself passes, with any end of line; one byte more is cut there."""
    assert split([b"a" * length + end]) == [b"a" * min(length, 21)]


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b" ", b"abcdefghij", b"\xff"]), max_size=60), st.data())
def test_chunking_does_not_matter(parts: list[bytes], data: st.DataObject) -> None:
    """The same bytes give the same lines, however they are cut."""
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(pieces) == split([stream])


def test_linear() -> None:
    """Ten megabytes that come byte by byte, or as a million short lines, take no more than one look at each byte."""
    buffer = LineBuffer(20_000_000)
    byte = b"a"
    for _ in range(1_000_000):
        buffer.feed(byte)
    assert buffer.feed(b"\n") == [b"a" * 1_000_000]
    assert len(buffer.feed(b"ab\n" * 1_000_000)) == 1_000_000
