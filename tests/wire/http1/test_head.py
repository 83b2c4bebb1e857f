"""Heads of requests: what is taken, what is refused, and what that costs."""

from __future__ import annotations

import pytest

from carmy_net.http1 import MAX_HEAD_BYTES, FramingError, HeadReader, read_head

GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"


def refusal(raw: bytes) -> int:
    """The status with which a complete head is refused."""
    with pytest.raises(FramingError) as refused:
        read_head(raw)
    return refused.value.status


def test_a_head_is_parsed() -> None:
    """Names are in lower case, blanks round values are dropped, and the order stays."""
    head = read_head(b"POST /a?b HTTP/1.1\r\nHost:  a \r\nX-One:\t1\r\nx-one: 2\r\nContent-Length: 5\r\n\r\n")
    assert (head.method, head.target, head.is_old, head.length) == (b"POST", b"/a?b", False, 5)
    assert head.headers == [(b"host", b"a"), (b"x-one", b"1"), (b"x-one", b"2"), (b"content-length", b"5")]
    assert (head.keep_alive, head.expects_continue) == (True, False)


@pytest.mark.parametrize(
    ("lines", "length", "keep_alive", "expects_continue"),
    [
        (b"", 0, True, False),
        (b"content-length: 0\r\n", 0, True, False),
        (b"transfer-encoding: CHUNKED\r\n", None, True, False),
        (b"connection: keep-alive, Close\r\n", 0, False, False),
        (b"expect: 100-Continue\r\ncontent-length: 3\r\n", 3, True, True),
    ],
)
def test_what_a_head_announces(lines: bytes, length: int | None, keep_alive: bool, expects_continue: bool) -> None:
    """Length, reuse of the connection and the wait for 100 Continue follow from the headers."""
    head = read_head(GET + lines + b"\r\n")
    assert (head.length, head.keep_alive, head.expects_continue) == (length, keep_alive, expects_continue)


def test_http_1_0() -> None:
    """HTTP/1.0 needs no Host, and neither keeps a connection nor waits for 100 Continue."""
    head = read_head(b"GET / HTTP/1.0\r\nexpect: 100-continue\r\n\r\n")
    assert (head.is_old, head.keep_alive, head.expects_continue) == (True, False, False)


REFUSED = {
    "control character": b"x: a\x01b\r\n",
    "delete": b"x: a\x7fb\r\n",
    "form feed": b"x: a\x0cb\r\n",
    "NUL": b"x: a\0b\r\n",
    "bare CR": b"x: a\rb\r\n",
    "bare LF": b"x: a\nb: c\r\n",
    "folded": b"x: a\r\n b\r\n",
    "folded at once": b"x:\r\n\ta\r\n",
    "no colon": b"x\r\n",
    "no name": b": a\r\n",
    "blank before the colon": b"x : a\r\n",
    "a name with a bracket": b"x(: a\r\n",
    "a name beyond ASCII": b"\xe9: a\r\n",
    "two hosts": b"Host: localhost\r\n",
    "two lengths": b"content-length: 1\r\ncontent-length: 1\r\n",
    "a list of lengths": b"content-length: 1,1\r\n",
    "a signed length": b"content-length: +1\r\n",
    "a length with an underscore": b"content-length: 1_0\r\n",
    "a length in other digits": "content-length: \u0661\r\n".encode(),
    "an empty length": b"content-length:\r\n",
    "a length of many digits": b"content-length: " + b"0" * 19 + b"\r\n",
    "length and coding": b"content-length: 1\r\ntransfer-encoding: chunked\r\n",
    "an empty coding": b"transfer-encoding:\r\n",
    "two codings": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "a list of codings": b"transfer-encoding: gzip, chunked\r\n",
    "a coding with a parameter": b"transfer-encoding: chunked;a=b\r\n",
    "a quoted coding": b'transfer-encoding: "chunked"\r\n',
}


@pytest.mark.parametrize("name", REFUSED)
def test_header_lines_that_are_refused(name: str) -> None:
    """A line that two parsers could read differently is refused, wherever it stands."""
    assert refusal(GET + REFUSED[name] + b"\r\n") == 400
    assert refusal(GET + REFUSED[name] + b"z: z\r\n\r\n") == 400


@pytest.mark.parametrize(
    "line",
    [
        b"GET /",
        b"GET / HTTP/0.9",
        b"GET / HTTP/1.2",
        b"GET / HTTP/2.0",
        b"GET / HTTP/9.9",
        b"GET / http/1.1",
        b"GET / HTTP/1.1 ",
        b"GET  / HTTP/1.1",
        b"GET /\t HTTP/1.1",
        b"GET / a HTTP/1.1",
        b"get / HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET /\x80 HTTP/1.1",
        b"CONNECT a:1 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"",
    ],
)
def test_request_lines_that_are_refused(line: bytes) -> None:
    """Anything but one method, one target and a version 1.0 or 1.1, with single spaces between, is refused."""
    assert refusal(line + b"\r\nhost: localhost\r\n\r\n") == 400


def test_a_head_without_headers() -> None:
    """HTTP/1.0 allows it, HTTP/1.1 needs a Host."""
    assert read_head(b"GET / HTTP/1.0\r\n\r\n").headers == []
    assert refusal(b"GET / HTTP/1.1\r\n\r\n") == 400


def take(data: bytes, size: int, max_bytes: int = MAX_HEAD_BYTES) -> tuple[bytes | None, bytes]:
    """Feed a reader with pieces; return the head and what is left in the buffer."""
    reader, buffer, head = HeadReader(max_bytes), bytearray(), None
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        if head is None:
            head = reader.take(buffer)
    return head, bytes(buffer)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_head_in_pieces(size: int) -> None:
    """However a head arrives, it is taken whole, without the empty lines before it, and the rest stays."""
    raw = GET + b"\r\n"
    assert take(b"\r\n\r\n" + raw + b"rest", size) == (raw, b"rest")


@pytest.mark.parametrize("beginning", [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nx: a\n", b"a\rb", b"\n", b"\r\r"])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_beginning_that_cannot_end_well(beginning: bytes, size: int) -> None:
    """A head that no continuation can save is refused before its end."""
    with pytest.raises(FramingError) as refused:
        take(beginning, size)
    assert refused.value.status == 400


@pytest.mark.parametrize("beginning", [b"", b"\r", b"G", b"GET / HTTP/1.1\r", b"GET / HTTP/1.1\r\n\r"])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_beginning_that_may_end_well(beginning: bytes, size: int) -> None:
    """A head that merely is not complete yet is waited for."""
    assert take(beginning, size) == (None, beginning)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_a_head_that_is_too_long(end: bytes, size: int) -> None:
    """A head over the limit is refused with 431, complete or not."""
    with pytest.raises(FramingError) as refused:
        take(GET + b"x: " + b"a" * 200 + end, size, max_bytes=200)
    assert refused.value.status == 431
