"""Messages out of a stream of bytes: server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carmy_net import EventReader, ServerSentEvent

STREAM = (
    b"\xef\xbb\xbf: hello\n\nevent: a\ndata: {}\nid: 0\n\n"
    b'event:b\r\ndata:{"x":"\xe2\x80\xa8\xc2\x85"}\r\nid: 1\r\n\r\n'
    b"data: one\rdata:  two\rdata\r\r: ping\nunknown: field\n\nevent: lost\n\ndata: d\n\ndata: broken off\n"
)
EVENTS = [
    ServerSentEvent(event="a", data=b"{}", id="0"),
    ServerSentEvent(event="b", data=b'{"x":"\xe2\x80\xa8\xc2\x85"}', id="1"),
    ServerSentEvent(event="message", data=b"one\n two\n", id="1"),
    ServerSentEvent(event="message", data=b"d", id="1"),
]


def read(pieces: list[bytes]) -> list[ServerSentEvent]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


def test_whole() -> None:
    """Lines end with LF, CR or CRLF only; comments, unknown fields and what is broken off are dropped."""
    assert read([STREAM]) == EVENTS


def test_byte_by_byte() -> None:
    """It makes no difference when every byte comes alone."""
    assert read([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_chunking_does_not_matter(cuts: list[int]) -> None:
    """The same bytes give the same events, however they are cut."""
    cuts.sort()
    assert read([STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]) == EVENTS


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Any bytes can be read."""
    EventReader().feed(data)


def test_bounded() -> None:
    """An event over the limit is an error; comments do not add up to one."""
    reader = EventReader(100)
    for _ in range(100):
        reader.feed(b": still running\n\n")
    with pytest.raises(ValueError, match="more than 100 bytes"):
        reader.feed(b"data: " + b"a" * 100)
