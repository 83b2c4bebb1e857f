"""What is known to end hypercorn under trio, or to make it serve what it should not: one case each."""

from __future__ import annotations

import base64
from typing import NamedTuple

import pytest
import trio

from tests.hostile.siege import HEALTH, LAST, besieged, converse, front_end, no_fault, parse
from tests.hostile.tools import ALL
from tests.support.http import render

__all__ = ["front_end", "no_fault"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HELLO = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(180))
POST = b"POST /agent/execute HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
BODY = b'{"tool":"echo"}'
TOOLS = b"GET /agent/tools HTTP/1.1"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def upgrade(protocol: str = "websocket", method: str = "GET", extra: dict[str, str] | None = None) -> bytes:
    headers = {
        "connection": "Upgrade",
        "upgrade": protocol,
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    return render(method, "/health", {**headers, **(extra or {})})


def h2c(settings: str | None) -> bytes:
    headers = {"connection": "Upgrade, HTTP2-Settings, close", "upgrade": "h2c"}
    return render("GET", "/health", headers if settings is None else {**headers, "http2-settings": settings})


def head(*lines: bytes, start: bytes = b"GET /health HTTP/1.1", host: bytes = b"host: 127.0.0.1") -> bytes:
    return b"\r\n".join([start, *([host] if host else []), *lines, b"", b""])


def chunked(body: bytes) -> bytes:
    return POST + b"transfer-encoding: chunked\r\n\r\n" + body


class Killer(NamedTuple):
    """What a peer sends on one connection, and the statuses of all that it gets before the connection is closed."""

    data: bytes | tuple[bytes, ...]
    statuses: tuple[int, ...]


KILLERS = {
    # WebSocket (hypercorn: the bytes after the handshake reach a parser that is not there yet)
    "upgrade": Killer(upgrade(), (400,)),
    "upgrade and an extra byte": Killer(upgrade() + b"\x00", (400,)),
    "upgrade and an extra byte, later": Killer((upgrade(), b"\x00"), (400,)),
    "upgrade and a pipelined request": Killer(upgrade() + HEALTH, (400,)),
    "upgrade with a body of known length": Killer(upgrade(extra={"content-length": "5"}) + b"hello", (400,)),
    "upgrade with a chunked body": Killer(
        upgrade(extra={"transfer-encoding": "chunked"}) + b"5\r\nhello\r\n0\r\n\r\n", (400,)
    ),
    "upgrade and a frame": Killer(upgrade() + b"\x81\x85\x00\x00\x00\x00hello", (400,)),
    "upgrade by POST": Killer(upgrade(method="POST", extra={"content-length": "0"}), (400,)),
    "upgrade without a key": Killer(
        head(b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13"), (400,)
    ),
    "upgrade of version 12": Killer(upgrade(extra={"sec-websocket-version": "12"}), (400,)),
    "upgrade to several protocols": Killer(upgrade("h2c, WebSocket"), (400,)),
    "upgrade, a byte of 0x80 in Connection": Killer(
        upgrade().replace(b"connection: Upgrade", b"connection: Upgrade, \x80"), (400,)
    ),
    "upgrade, a byte of 0xff in the subprotocols": Killer(upgrade(extra={"sec-websocket-protocol": "\xff"}), (400,)),
    "upgrade, bad extensions": Killer(
        upgrade(extra={"sec-websocket-extensions": "permessage-deflate; ;;=\x80"}), (400,)
    ),
    # Bytes from 0x80 on, elsewhere
    "a byte of 0x80 in Connection": Killer(head(b"connection: close, \x80"), (200,)),
    "a byte of 0xff in a header": Killer(head(b"x-any: \xff\xfe", b"connection: close"), (200,)),
    "a byte of 0xff in a header's name": Killer(head(b"x-\xff: 1"), (400,)),
    "a byte of 0xff in the target": Killer(head(start=b"GET /\xff HTTP/1.1"), (400,)),
    "a byte of 0xff in the method": Killer(head(start=b"G\xffT / HTTP/1.1"), (400,)),
    "bad UTF-8 by percent signs": Killer(head(b"connection: close", start=b"GET /%ff%00%ed%a0%80 HTTP/1.1"), (404,)),
    # HTTP/2
    "h2c with settings that are no base64": Killer(h2c("!"), (200,)),
    "h2c with settings of a wrong length": Killer(h2c("AAA"), (200,)),
    "h2c without settings": Killer(h2c(None), (200,)),
    "h2c with good settings": Killer(h2c(base64.urlsafe_b64encode(b"\x00\x03\x00\x00\x00\x64").decode()), (200,)),
    "h2c, and the preface at once": Killer(h2c("AAMAAABk") + PREFACE + SETTINGS, (200,)),
    "the preface of HTTP/2": Killer(PREFACE, (400,)),
    "the preface of HTTP/2 and frames": Killer(
        PREFACE + SETTINGS + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\x82\x84\x86\x41\x80", (400,)
    ),
    "frames without a preface": Killer(SETTINGS * 3 + b"\r\n\r\n", (400,)),
    "TLS on a port without it": Killer(HELLO + b"\r\n\r\n", (400,)),
    # Methods and targets
    "CONNECT": Killer(head(start=b"CONNECT 127.0.0.1:22 HTTP/1.1"), (400,)),
    "CONNECT with a body": Killer(head(b"content-length: 4", start=b"CONNECT a:1 HTTP/1.1") + b"SSH-", (400,)),
    "OPTIONS of everything": Killer(head(b"connection: close", start=b"OPTIONS * HTTP/1.1"), (204,)),
    "an unknown method": Killer(head(b"connection: close", start=b"BREW /health HTTP/1.1"), (405,)),
    "a method in small letters": Killer(head(start=b"post /agent/execute HTTP/1.1"), (400,)),
    "a target in absolute form": Killer(
        head(b"connection: close", start=b"GET http://localhost/health HTTP/1.1"), (200,)
    ),
    "a target of another host": Killer(
        head(b"connection: close", start=b"GET http://evil.example/agent/tools HTTP/1.1"), (403,)
    ),
    "a target without a host": Killer(head(b"connection: close", start=b"GET http:///agent/tools HTTP/1.1"), (403,)),
    "a target without a slash": Killer(head(b"connection: close", start=b"GET health HTTP/1.1"), (404,)),
    "a target that is too long": Killer(head(start=b"GET /" + b"a" * 40_000 + b" HTTP/1.1"), (431,)),
    "HTTP/0.9": Killer(b"GET /health\r\n\r\n", (400,)),
    "HTTP/1.0": Killer(head(start=b"GET /health HTTP/1.0"), (200,)),
    "HTTP/1.2": Killer(head(start=b"GET /health HTTP/1.2"), (400,)),
    "nonsense": Killer(b"\x00\x01\x02\r\n\r\n", (400,)),
    "a space too many": Killer(head(start=b"GET  /health HTTP/1.1"), (400,)),
    # Where a message ends
    "both kinds of length": Killer(
        POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, (400,)
    ),
    "both kinds of length, the other way round": Killer(
        POST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED, (400,)
    ),
    "two lengths that differ": Killer(
        POST + b"content-length: 15\r\ncontent-length: 0\r\n\r\n" + BODY + SMUGGLED, (400,)
    ),
    "two lengths that agree": Killer(POST + b"content-length: 15\r\ncontent-length: 15\r\n\r\n" + BODY, (400,)),
    "a list of lengths": Killer(POST + b"content-length: 15, 15\r\n\r\n" + BODY, (400,)),
    "a length with a sign": Killer(POST + b"content-length: +15\r\n\r\n" + BODY, (400,)),
    "a negative length": Killer(POST + b"content-length: -1\r\n\r\n" + BODY, (400,)),
    "a length in hexadecimal": Killer(POST + b"content-length: 0xf\r\n\r\n" + BODY, (400,)),
    "an empty length": Killer(POST + b"content-length: \r\n\r\n" + BODY, (400,)),
    "a length beyond 64 bits": Killer(POST + b"content-length: 18446744073709551617\r\n\r\n" + BODY, (400,)),
    "a space before the colon": Killer(POST + b"content-length : 15\r\n\r\n" + BODY, (400,)),
    "chunked twice": Killer(POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", (400,)),
    "chunked, but not last": Killer(POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", (400,)),
    "chunked, misspelt": Killer(POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", (400,)),
    "chunked, with a vertical tab": Killer(POST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", (400,)),
    "two codings in two lines": Killer(
        POST + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n", (400,)
    ),
    "chunked in HTTP/1.0": Killer(chunked(b"0\r\n\r\n").replace(b"1.1", b"1.0", 1), (400,)),
    "a chunk size that is no number": Killer(chunked(b"zz\r\nhello\r\n0\r\n\r\n"), (400,)),
    "a negative chunk size": Killer(chunked(b"-5\r\nhello\r\n0\r\n\r\n"), (400,)),
    "a chunk size with a prefix": Killer(chunked(b"0x5\r\nhello\r\n0\r\n\r\n"), (400,)),
    "an empty chunk size": Killer(chunked(b"\r\nhello\r\n0\r\n\r\n"), (400,)),
    "a huge chunk size": Killer(chunked(b"f" * 40 + b"\r\nhello"), (400,)),
    "a chunk size that says 2^80": Killer(chunked(b"1" + b"0" * 19 + b"\r\nhello" + b"x" * 2_000_000), (413,)),
    "a chunk longer than its size": Killer(chunked(b"3\r\nhello\r\n0\r\n\r\n"), (400,)),
    "a chunk without its end": Killer(chunked(b"5\r\nhello0\r\n\r\n"), (400,)),
    "a chunk extension with a bare LF": Killer(chunked(b"5;a\nhello\r\n0\r\n\r\n"), (400,)),
    "an endless chunk extension": Killer(chunked(b"5;" + b"a" * 100_000), (431,)),
    "a bad trailer": Killer(chunked(b"f\r\n" + BODY + b"\r\n0\r\nno trailer\r\n\r\n"), (400,)),
    "a folded trailer": Killer(chunked(b"f\r\n" + BODY + b"\r\n0\r\na: b\r\n c\r\n \x00\r\n\r\n"), (400,)),
    "a trailer of blanks": Killer(chunked(b"f\r\n" + BODY + b"\r\n0\r\na:" + b" " * 60_000 + b"\x00\r\n\r\n"), (431,)),
    "a chunk extension of blanks": Killer(chunked(b"f;" + b" " * 32_000 + b"\n\r\n" + BODY + b"\r\n0\r\n\r\n"), (431,)),
    "a header of blanks": Killer(head(b"x:" + b" " * 16_200 + b"\x00"), (400,)),
    "a header of blanks and words": Killer(head(b"x: " + b"a " * 16_000, b"connection: close"), (200,)),
    "a request behind a bare LF": Killer(chunked(b"f\r\n" + BODY + b"\r\n0\r\n\n" + SMUGGLED), (400,)),
    "endless trailers": Killer(chunked(b"f\r\n" + BODY + b"\r\n0\r\n" + b"a: b\r\n" * 20_000), (431,)),
    # Hosts
    "no Host": Killer(head(host=b""), (400,)),
    "two Hosts": Killer(head(b"host: localhost"), (400,)),
    "an empty Host": Killer(head(b"connection: close", start=TOOLS, host=b"host:"), (403,)),
    "a Host with a user": Killer(head(b"connection: close", start=TOOLS, host=b"host: a@127.0.0.1"), (403,)),
    "a Host with a path": Killer(head(b"connection: close", start=TOOLS, host=b"host: 127.0.0.1/x"), (403,)),
    "a Host with a bad port": Killer(head(b"connection: close", start=TOOLS, host=b"host: 127.0.0.1:99999999"), (403,)),
    "a Host with a byte of 0xff": Killer(head(b"connection: close", start=TOOLS, host=b"host: \xff"), (403,)),
    "a Host with half a bracket": Killer(head(b"connection: close", start=TOOLS, host=b"host: [::1"), (403,)),
    "another Host": Killer(head(b"connection: close", start=TOOLS, host=b"host: evil.example"), (403,)),
    # Headers
    "too many headers": Killer(head(*[b"a: b"] * 200), (431,)),
    "too many bytes of headers": Killer(head(*[b"a: " + b"b" * 1000] * 40), (431,)),
    "a header without an end": Killer(b"GET /health HTTP/1.1\r\na: " + b"b" * 100_000, (431,)),
    "an endless request line": Killer(b"G" * 100_000, (431,)),
    "a NUL in a header": Killer(head(b"x-any: a\x00b"), (400,)),
    "a NUL in a header's name": Killer(head(b"x-\x00: a"), (400,)),
    "a NUL in the target": Killer(head(start=b"GET /\x00 HTTP/1.1"), (400,)),
    "a folded header": Killer(head(b"x-any: a", b" b"), (400,)),
    "a folded length": Killer(POST + b"content-length:\r\n 15\r\n\r\n" + BODY, (400,)),
    "a header before the first": Killer(b"GET /health HTTP/1.1\r\n host: 127.0.0.1\r\n\r\n", (400,)),
    "a bare LF": Killer(b"GET /health HTTP/1.1\nhost: 127.0.0.1\n\n", (400,)),
    "a bare CR": Killer(head(b"x-any: a\rb"), (400,)),
    "a header without a colon": Killer(head(b"nonsense"), (400,)),
    "a header without a name": Killer(head(b": nonsense"), (400,)),
    "an unknown expectation": Killer(head(b"expect: the-unexpected", b"connection: close"), (200,)),
    "an endless stream of empty lines": Killer((b"\r\n" * 30_000, LAST), (200,)),
    # Answers that do not wait for the body
    "an early answer to a body of known length": Killer(
        (render("POST", "/health", {"content-length": "1000000000"}), *[b"x" * 100_000] * 5), (405,)
    ),
    "an early answer to a chunked body": Killer(
        (render("POST", "/health", {"transfer-encoding": "chunked"}), *[b"186a0\r\n" + b"x" * 100_000 + b"\r\n"] * 5),
        (405,),
    ),
    "an early answer to a length that is too large": Killer(
        (POST + b"content-length: 1048577\r\n\r\n", b"x" * 1_000_000), (413,)
    ),
    "a body to a GET": Killer(render("GET", "/health", {"connection": "close"}, b"hello"), (200,)),
    "a second request inside a body": Killer(render("GET", "/health", body=SMUGGLED) + LAST, (200, 200)),
}


@pytest.mark.parametrize("name", KILLERS)
async def test_killers(name: str) -> None:
    """A request that is known to end other servers gets its documented answer, and the next client gets its own."""
    killer = KILLERS[name]
    parts = (killer.data,) if isinstance(killer.data, bytes) else killer.data
    async with besieged(*ALL) as siege:
        answers = await siege.exchange(*parts)
        assert tuple(answer.status for answer in answers) == killer.statuses
        for answer in answers:
            if answer.status >= 400:
                assert answer.code
                assert answer.headers["cache-control"] == "no-store"
                if answer.status in {400, 431}:
                    assert answer.code == "INVALID_REQUEST"
                    assert answer.headers["connection"] == "close"


# An answer to a request whose body is still on the way closes the connection.
AT_ONCE = {"a body to a GET", "a second request inside a body"}


@pytest.mark.parametrize(
    "name", [name for name, killer in KILLERS.items() if isinstance(killer.data, bytes) and name not in AT_ONCE]
)
async def test_killers_byte_by_byte(name: str) -> None:
    """However a request is cut into packets, its answer is the same."""
    killer = KILLERS[name]
    assert isinstance(killer.data, bytes)
    pieces = [killer.data[i : i + 1] for i in range(min(len(killer.data), 300))] + [killer.data[300:]]
    async with besieged(*ALL) as siege, siege.server.client() as client:
        answers = parse(await converse(client, *[piece for piece in pieces if piece]))
        assert tuple(answer.status for answer in answers) == killer.statuses


async def test_all_killers_at_once() -> None:
    """They do not end the server together either, nor a call that runs beside them."""
    async with besieged(*ALL) as siege, siege.busy() as busy:
        async with trio.open_nursery() as nursery:
            for killer in KILLERS.values():
                parts = (killer.data,) if isinstance(killer.data, bytes) else killer.data
                nursery.start_soon(siege.exchange, *parts)
        assert siege.hold.running == 1
        busy.reset()


def test_there_are_enough() -> None:
    """No case gets lost when the list is edited."""
    assert len(KILLERS) >= 100
