"""Requests whose end two parties could see in two places: the variants that attackers try, all against all."""

from __future__ import annotations

import itertools

import pytest

from carmy_net.http1 import BodyReader, FramingError, HeadReader, ParsedHead, read_head

CODING_NAMES = [
    b"Transfer-Encoding", b"transfer-encoding", b"TRANSFER-ENCODING", b"Transfer_Encoding", b"Transfer Encoding", b"Transfer-Encoding ",
    b"Transfer-Encoding\t", b" Transfer-Encoding", b"\tTransfer-Encoding", b"\x0bTransfer-Encoding", b"Transfer-Encoding\x0b",
    b"Transfer-Encoding\x0c", b"Transfer-Encoding\x00", b"Transfer-Encoding\xa0", b"\xefTransfer-Encoding", b"Transfer-\x00Encoding",
    b"X: y\rTransfer-Encoding", b"X: y\nTransfer-Encoding", b"X:\r\n Transfer-Encoding", b"Transfer-Encoding\r\n ", b"'Transfer-Encoding'",
    b"Transfer-Encoding:", b"Transfer%2DEncoding", b"X-Transfer-Encoding",
]  # fmt: skip

CODING_VALUES = [
    b"chunked", b"Chunked", b" chunked ", b"\tchunked\t", b"xchunked", b"chunkedx", b"chunk", b"x", b"", b"identity", b"gzip", b"chunked, identity",
    b"identity, chunked", b"chunked, chunked", b"gzip, chunked", b", chunked", b"chunked,", b"chunked;q=1", b"'chunked'", b'"chunked"', b"\x0bchunked",
    b"chunked\x0b", b"chunked\x0c", b"\x00chunked", b"chunked\x00", b"\xa0chunked", b"chunked\xff", b"chunked\r\n x", b"\r\n chunked", b"\n chunked",
    b"chunked\rx", b"chunked\nx", b"chunked\r", b"chu\tnked", b"%63hunked", b"chunked\r\nTransfer-Encoding: x", b"x\r\nTransfer-Encoding: chunked",
    "ch\u016bnked".encode(),
]  # fmt: skip

LENGTH_LINES = [
    b"", b"Content-Length: 4\r\n", b"content-length:4\r\n", b"Content-Length: 0\r\n", b"Content-Length : 4\r\n", b" Content-Length: 4\r\n",
    b"Content-Length: 4\r\nContent-Length: 6\r\n", b"Content-Length: 4, 6\r\n", b"Content-Length: +4\r\n", b"Content-Length: 4\x00\r\n",
]  # fmt: skip


def outcome(head: bytes) -> ParsedHead | None:
    """The head as it is read, None when it is refused."""
    try:
        return read_head(head)
    except FramingError:
        return None


@pytest.mark.parametrize("length_line", LENGTH_LINES)
@pytest.mark.parametrize("is_last", [False, True])
def test_no_head_has_two_readings(length_line: bytes, is_last: bool) -> None:
    """A head that is accepted has one length or one coding, spelt as the standard has it, and nothing that looks like another."""
    accepted = 0
    for name, value in itertools.product(CODING_NAMES, CODING_VALUES):
        coding_line = name + b": " + value + b"\r\n"
        lines = length_line + coding_line if is_last else coding_line + length_line
        head = outcome(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        if head is None:
            continue
        accepted += 1
        codings = [found for key, found in head.headers if key == b"transfer-encoding"]
        lengths = [found for key, found in head.headers if key == b"content-length"]
        assert len(codings) + len(lengths) <= 1, lines
        if codings:
            assert codings[0].lower() == b"chunked", lines
            assert head.length is None
        else:
            # What looks like a coding here is the name of another header: proxies pass it on as it is.
            assert name.lower() in {
                b"transfer_encoding",
                b"'transfer-encoding'",
                b"transfer%2dencoding",
                b"x-transfer-encoding",
            }, lines
            assert head.length == (int(lengths[0]) if lengths else 0)
    assert accepted < len(CODING_NAMES) * len(CODING_VALUES) / 4


SIZES = [
    b"5", b"05", b"0x5", b"5 ", b" 5", b"5\t", b"\t5", b"+5", b"-5", b"5;", b"5;a", b"5;a=b", b'5;a="b"', b'5;a="b', b"5\x0b", b"5\x00", b"5\xa0",
    b"5;a\x00", b"5;\x0ba", b"5,5", b"5 5", b"5_0", b"5\n", b"5;a\nb", b"5;a\rb", b"", b"g", b"0" * 20 + b"5", b"5" + b"0" * 20,
    "\u0665".encode(),
]  # fmt: skip
LINE_ENDS = [b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r", b"", b" \r\n", b"\x00\r\n"]


@pytest.mark.parametrize("size", SIZES)
def test_no_chunks_have_two_readings(size: bytes) -> None:
    """Chunks that are accepted use CR LF wherever a line ends, and what is behind the last one stays untouched."""
    accepted = []
    for after_size, after_data, after_last, at_end in itertools.product(LINE_ENDS, repeat=4):
        buffer = bytearray(
            size + after_size + b"hello" + after_data + b"0" + after_last + at_end + b"GET /smuggled HTTP/1.1\r\n\r\n"
        )
        body = BodyReader(None)
        try:
            body.take(buffer)
        except FramingError:
            continue
        if body.complete:
            accepted.append((after_size, after_data, after_last, at_end))
            assert bytes(buffer) == b"GET /smuggled HTTP/1.1\r\n\r\n"
            assert body.read() == b"hello"
    good = size in {b"5", b"05", b"5;a", b"5;a=b", b'5;a="b"'}
    assert accepted == ([(b"\r\n",) * 4] if good else [])


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x00\r\n"])
def test_heads_end_with_two_line_ends_only(end: bytes) -> None:
    """Nothing but CR LF ends a line of a head: what is smuggled behind another end is no request."""
    for first, second in itertools.product([end, b"\r\n"], repeat=2):
        if (first, second) == (b"\r\n", b"\r\n"):
            continue
        buffer = bytearray(
            b"GET / HTTP/1.1\r\nHost: localhost" + first + second + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        try:
            raw = HeadReader().take(buffer)
            head = None if raw is None else read_head(raw)
        except FramingError:
            continue
        assert head is not None
        assert b"smuggled" in b"".join(value for _, value in head.headers), (
            "it is part of the head, and of no other request"
        )
