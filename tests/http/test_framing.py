"""Heads that could be read in two ways, and limits on heads; first as pure functions, then over a socket."""

from __future__ import annotations

import pytest

from carmy_net.http1 import MAX_HEAD_BYTES, MAX_HEADER_LINES
from tests.http.tools import echo
from tests.support.http import render, serving

START = b"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"

REFUSED = {
    "length and coding": START + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n",
    "two lengths": START + b"content-length: 4\r\ncontent-length: 5\r\n\r\n",
    "two equal lengths": START + b"content-length: 4\r\ncontent-length: 4\r\n\r\n",
    "a list of lengths": START + b"content-length: 4, 4\r\n\r\n",
    "a signed length": START + b"content-length: +4\r\n\r\n",
    "a length beyond all bounds": START + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
    "a negative length": START + b"content-length: -1\r\n\r\n",
    "two codings": START + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n",
    "a list of codings": START + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "an unknown coding": START + b"transfer-encoding: xchunked\r\n\r\n",
    "a coding in HTTP/1.0": START.replace(b"HTTP/1.1", b"HTTP/1.0") + b"transfer-encoding: chunked\r\n\r\n",
    "space before the colon": START + b"content-length : 4\r\n\r\n",
    "a folded header": START + b"x: a\r\n b\r\n\r\n",
    "a bare line feed": START + b"x: a\ny: b\r\n\r\n",
    "a bare carriage return": START + b"x: a\ry: b\r\n\r\n",
    "a null byte": START + b"x: a\0b\r\n\r\n",
    "line feeds only": b"GET /health HTTP/1.1\nhost: localhost\n\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another version": b"GET /health HTTP/3.0\r\nhost: localhost\r\n\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    "a space in the target": b"GET /health x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
    "a WebSocket upgrade": b"GET /agent/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n",
    "a WebSocket upgrade and a byte": b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, \xff\r\n"
    b"upgrade: WebSocket\r\nsec-websocket-protocol: \xff\r\n\r\nx",
    "a bad chunk size": START + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
    "a negative chunk size": START + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
    "a bad chunk end": START + b"transfer-encoding: chunked\r\n\r\n1\r\n{xx\r\n",
    "a bare line feed behind a chunk size": CHUNKED + b"1\n \r\n0\r\n\r\n",
    "a bare line feed in a chunk extension": CHUNKED + b"1;a\nb\r\n \r\n0\r\n\r\n",
    "a bare carriage return in a chunk extension": CHUNKED + b"1;a\rb\r\n \r\n0\r\n\r\n",
    "a null byte in a chunk extension": CHUNKED + b"1;a\0\r\n \r\n0\r\n\r\n",
    "a control character in a chunk extension": CHUNKED + b"1;a\x0b\r\n \r\n0\r\n\r\n",
    "a bare line feed for the end of trailers": CHUNKED + b"1\r\n \r\n0\r\n\n",
    "a bare line feed in a trailer": CHUNKED + b"1\r\n \r\n0\r\na: b\nc: d\r\n\r\n",
    "a bare carriage return in a trailer": CHUNKED + b"1\r\n \r\n0\r\na: b\rc\r\n\r\n",
    "a null byte in a trailer": CHUNKED + b"1\r\n \r\n0\r\na: \0\r\n\r\n",
    "a control character in a trailer": CHUNKED + b"1\r\n \r\n0\r\na: \x1b\r\n\r\n",
    "a trailer of blanks and a null byte": CHUNKED + b"1\r\n \r\n0\r\na:" + b" " * 16_000 + b"\0\r\n\r\n",
    "a chunk extension of blanks and a line feed": CHUNKED + b"1;" + b" " * 16_000 + b"\n\r\n \r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_and_closed(name: str) -> None:
    """Ambiguous framing is answered with a JSON 400 and the connection closes: no second request is found in it."""
    smuggled = render("GET", "/agent/tools")
    async with serving(echo) as server:
        async with server.client() as client:
            await client.send(REFUSED[name] + smuggled)
            answer = await client.answer()
            assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
            assert answer.headers["connection"] == "close"
            assert client.buffer == b""
            assert await client.is_closed()
        assert (await server.get("/health")).status == 200


@pytest.mark.parametrize("offer", ["h2c", "h2c, websockets/x", "TLS/1.3", "\xff"])
async def test_other_upgrades_are_declined(offer: str) -> None:
    """Offers of other protocols, HTTP/2 in clear text above all, are passed over and the request is served."""
    headers = {"connection": "Upgrade, HTTP2-Settings", "upgrade": offer, "http2-settings": "not base64!"}
    if "websocket" in offer:
        headers["upgrade"] = "h2c"
    async with serving(echo) as server, server.client() as client:
        assert (await client.request("GET", "/health", headers)).status == 200
        assert (await client.call("echo", headers)).status == 200


async def test_bytes_beyond_ascii_in_headers_are_harmless() -> None:
    """Header values with any bytes neither fail the connection nor reach a route they should not."""
    async with serving(echo) as server, server.client() as client:
        assert (
            await client.request("GET", "/health", {"connection": "\xe9", "accept": "\xff", "x": "\x80"})
        ).status == 200


@pytest.mark.parametrize("split", [1, 2, 7])
async def test_a_request_in_small_pieces(split: int) -> None:
    """However a request is cut into packets, it is understood the same."""
    raw = render("POST", "/agent/execute", {"content-type": "application/json"}, b'{"tool":"echo"}')
    async with serving(echo) as server, server.client() as client:
        for start in range(0, len(raw), split):
            await client.send(raw[start : start + split])
        assert (await client.answer()).status == 200


async def test_heads_have_a_limit() -> None:
    """A head over the limit is answered with 431, in one packet and in many, before and after its end."""
    for extra in ({"x": "a" * MAX_HEAD_BYTES}, {f"x{number}": "" for number in range(MAX_HEADER_LINES + 1)}):
        async with serving(echo) as server, server.client() as client:
            answer = await client.request("GET", "/health", extra)
            assert (answer.status, answer.code) == (431, "INVALID_REQUEST")
            assert await client.is_closed()
    async with serving(echo) as server, server.client() as client:
        await client.send(b"GET /health HTTP/1.1\r\nx: " + b"a" * MAX_HEAD_BYTES)
        assert (await client.answer()).status == 431


async def test_empty_lines_before_a_request() -> None:
    """Empty lines between requests are passed over."""
    async with serving(echo) as server, server.client() as client:
        await client.send(b"\r\n\r\n" + render("GET", "/health"))
        assert (await client.answer()).status == 200


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Requests that come in one packet are answered one after the other, each checked on its own."""
    async with serving(echo) as server, server.client() as client:
        await client.send(render("GET", "/health") + render("GET", "/nowhere") + REFUSED["two equal lengths"])
        assert [(await client.answer()).status for _ in range(3)] == [200, 404, 400]
        assert await client.is_closed()


async def test_http_1_0() -> None:
    """A client of HTTP/1.0 is answered, and the connection closes."""
    async with serving(echo) as server, server.client() as client:
        await client.send(b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n")
        answer = await client.answer()
        assert answer.status == 200
        assert await client.is_closed()


async def test_a_client_that_waits_for_100_continue() -> None:
    """A client that expects 100 is answered with it when its body is wanted, and refused at once when it is not."""
    body = b'{"tool":"echo"}'
    head = b"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: %d\r\n" % len(
        body
    )
    async with serving(echo) as server:
        async with server.client() as client:
            await client.send(head + b"content-type: application/json\r\n\r\n")
            assert (await client.answer()).status == 100
            await client.send(body)
            assert (await client.answer()).status == 200
        async with server.client() as client:
            await client.send(head + b"content-type: text/plain\r\n\r\n")
            assert (await client.answer()).status == 400
