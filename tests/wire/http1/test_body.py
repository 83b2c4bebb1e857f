"""Bodies of requests: what is taken, and what is refused."""

from __future__ import annotations

import random

import pytest

from carmy_net.http1 import MAX_BODY_CHUNKS, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES, BodyReader, FramingError

PIECES = [1, 2, 3, 7, 100_000]


def take(data: bytes, size: int, length: int | None = None) -> tuple[bytes, bool, bytes]:
    """Feed a reader with pieces; return the body, whether it is complete, and what is left in the buffer."""
    reader, buffer, body = BodyReader(length), bytearray(), b""
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        reader.take(buffer)
        body += reader.read()
    return body, reader.complete, bytes(buffer)


@pytest.mark.parametrize("size", PIECES)
def test_a_body_of_known_length(size: int) -> None:
    """Exactly the announced bytes are taken."""
    assert take(b"hello, world", size, 5) == (b"hello", True, b", world")
    assert take(b"hell", size, 5) == (b"hell", False, b"")


def test_an_empty_body_is_complete() -> None:
    """A request without a body waits for nothing."""
    assert BodyReader(0).complete


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize(
    "chunks",
    [
        b"5\r\nhello\r\n0\r\n\r\n",
        b"00005\r\nhello\r\n000\r\n\r\n",
        b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"5;a\r\nhello\r\n0;b=c\r\n\r\n",
        b'5 ; a = "b;c"; d\r\nhello\r\n0\r\n\r\n',
        b'5;a="\xe9\t;\\\\"\r\nhello\r\n0\r\n\r\n',
        b"5\r\nhello\r\n0\r\na: b\r\n\r\n",
        b"5\r\nhello\r\n0\r\na: b\r\nc:\t d \r\ne:\r\n\r\n",
    ],
)
def test_a_chunked_body(chunks: bytes, size: int) -> None:
    """Sizes, extensions and trailers are read as RFC 9112 has them, and only the content is left."""
    assert take(chunks + b"GET", size) == (b"hello", True, b"GET")


REFUSED = {
    "no size": b"\r\n",
    "a blank before the size": b" 5\r\nhello",
    "a sign": b"+5\r\nhello",
    "a prefix": b"0x5\r\nhello",
    "an underscore": b"1_0\r\n",
    "too many digits": b"0" * 21 + b"\r\n",
    "a word behind the size": b"5 hello\r\n",
    "a comma behind the size": b"5,a\r\n",
    "a bare LF behind the size": b"5\nhello\r\n0\r\n\r\n",
    "a bare CR behind the size": b"5\rhello\r\n0\r\n\r\n",
    "a bare LF in an extension": b"5;a\nb\r\nhello",
    "a bare CR in an extension": b"5;a\rb\r\nhello",
    "two CRs behind an extension": b"5;a\r\r\nhello",
    "blanks behind the size": b"5 \r\nhello",
    "blanks behind an extension": b"5;a \r\nhello",
    "an extension without a name": b"5;\r\nhello",
    "an extension without a value": b"5;a=\r\nhello",
    "an extension with a name beyond ASCII": b"5;\xe9\r\nhello",
    "a quote without an end": b'5;a="b\r\nhello',
    "a quote that ends with a backslash": b'5;a="b\\"\r\nhello',
    "a word behind a quote": b'5;a="b"c\r\nhello',
    "a length as a trailer": b"0\r\nContent-Length: 5\r\n\r\n",
    "a coding as a trailer": b"0\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n",
    "a host as a trailer": b"0\r\nHOST: a\r\n\r\n",
    "a NUL in an extension": b"5;a\0b\r\nhello",
    "a vertical tab in an extension": b"5;a\x0bb\r\nhello",
    "a delete in an extension": b"5;a\x7fb\r\nhello",
    "data beyond its size": b"5\r\nhello!\r\n0\r\n\r\n",
    "a bare LF behind data": b"5\r\nhello\n0\r\n\r\n",
    "a bare CR behind data": b"5\r\nhello\r0\r\n\r\n",
    "a bare LF instead of trailers": b"0\r\n\nGET /smuggled HTTP/1.1\r\n\r\n",
    "a bare CR instead of trailers": b"0\r\n\rGET /smuggled HTTP/1.1\r\n\r\n",
    "a bare LF in a trailer": b"0\r\na: b\nc: d\r\n\r\n",
    "a bare CR in a trailer": b"0\r\na: b\rc: d\r\n\r\n",
    "a NUL in a trailer": b"0\r\na: b\0\r\n\r\n",
    "a control character in a trailer": b"0\r\na: b\x1b\r\n\r\n",
    "a folded trailer": b"0\r\na: b\r\n c\r\n\r\n",
    "a trailer without a colon": b"0\r\na\r\n\r\n",
    "a trailer without a name": b"0\r\n: a\r\n\r\n",
    "a blank before the colon of a trailer": b"0\r\na : b\r\n\r\n",
    "a request instead of trailers": b"0\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_chunked_body(name: str, size: int) -> None:
    """Whatever two parsers could read differently is refused with 400, however it arrives."""
    with pytest.raises(FramingError) as refused:
        take(REFUSED[name], size)
    assert refused.value.status == 400


LONG = {
    "an extension": b"5;" + b"a" * MAX_EXTENSION_BYTES + b"\r\n",
    "an extension of blanks": b"5;" + b" " * MAX_EXTENSION_BYTES + b"\0\r\n",
    "an extension without an end": b"5;" + b"a" * (MAX_EXTENSION_BYTES + 100),
    "extensions together": b"1;aaaaaaaa\r\nx\r\n" * (MAX_EXTENSION_BYTES // 8),
    "a trailer": b"0\r\na:" + b" " * MAX_TRAILER_BYTES + b"\0\r\n\r\n",
    "a trailer without an end": b"0\r\na:" + b"a" * (MAX_TRAILER_BYTES + 100),
    "trailers together": b"0\r\n" + b"a: b\r\n" * (MAX_TRAILER_BYTES // 4),
}


@pytest.mark.parametrize("size", [1, 1000, 100_000])
@pytest.mark.parametrize("name", LONG)
def test_what_means_nothing_has_a_limit(name: str, size: int) -> None:
    """Extensions and trailers beyond their limit are refused with 431, complete or not."""
    with pytest.raises(FramingError) as refused:
        take(LONG[name], size)
    assert refused.value.status == 431


def test_chunks_have_a_limit() -> None:
    """A body in very many chunks is refused."""
    assert take(b"1\r\nx\r\n" * MAX_BODY_CHUNKS + b"0\r\n\r\n", 65536)[1]
    with pytest.raises(FramingError):
        take(b"1\r\nx\r\n" * (MAX_BODY_CHUNKS + 1) + b"0\r\n\r\n", 65536)


@pytest.mark.parametrize("seed", range(200))
def test_any_bytes_are_a_body_or_refused_however_they_are_cut(seed: int) -> None:
    """The outcome for any bytes is the same however they arrive."""
    rng = random.Random(seed)
    parts = [b"5", b"0", b"\r\n", b"hello", b";a", b"\n", b"\r", b"a: b", b"\0", b" ", b"x"]
    data = b"5\r\nhello\r\n" * rng.randrange(2) + b"".join(rng.choices(parts, k=rng.randrange(1, 12)))
    outcomes = set()
    for size in (1, 2, 5, 1000):
        try:
            body, complete, rest = take(data, size)
        except FramingError as error:
            outcomes.add((error.status, "refused"))
        else:
            outcomes.add((body, complete, rest))  # type: ignore[arg-type]
    assert len(outcomes) == 1, (data, outcomes)
