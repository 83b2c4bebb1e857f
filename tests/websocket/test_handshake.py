"""The opening handshake: which requests get a WebSocket, and the answers to the others."""

from __future__ import annotations

import logging
import socket
import struct
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, BearerTokens, ConfigurationError, HttpSettings, Settings, open_engine
from carmy_engine.abc import Credentials
from carmy_websocket import serve
from tests.support.http_fixtures import FIXTURES, is_refused
from tests.support.websocket import frame, request, serving

PAGE = "https://app.example"


async def test_it_says_where_it_listens() -> None:
    """The line for people ends in an address that can be connected to."""
    async with serving() as server:
        assert server.line.startswith("ws listening on ws://127.0.0.1:")
        assert server.line.endswith("/agent/ws")


async def test_upgrade() -> None:
    """A handshake gets 101 with the accept token of RFC 6455 and the subprotocol, then the frame 'ready'."""
    async with serving() as server, server.peer() as peer:
        headers = await peer.upgrade({"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert headers["sec-websocket-protocol"] == "carmy-frames.1"
        ready = await peer.told()
    assert ready["event"] == "ready"
    assert ready["protocol"] == "carmy-frames/1"
    assert ready["server"] == "shop"


async def test_below_the_prefix_of_a_proxy() -> None:
    """With ``http.root_path``, the address is served with and without the prefix, and a refusal names it with the prefix."""
    async with serving(http={"root_path": "/shop"}) as server:
        for path in ("/shop/agent/ws", "/agent/ws"):
            async with server.peer() as peer:
                await peer.send(request(path))
                assert (await peer.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101"), path
        for path in ("/shop/shop/agent/ws", "/shopagent/ws", "/shop"):
            async with server.peer() as peer:
                await peer.send(request(path))
                refusal = await peer.refusal()
                assert (refusal.status, refusal.body["error"]["code"]) == (404, "ROUTE_NOT_FOUND"), path
                assert "/shop/agent/ws" in refusal.body["error"]["suggested_action"]


async def test_upgrade_in_other_words() -> None:
    """Case, lists, several lines, a query and no subprotocol at all are fine, as RFC 6455 has it."""
    cases: list[tuple[dict[str, str | None], str | None]] = [
        ({"Connection": "keep-alive, UPGRADE", "Upgrade": "WebSocket"}, "carmy-frames.1"),
        ({"Sec-WebSocket-Protocol": "other, carmy-frames.1"}, "carmy-frames.1"),
        ({"Sec-WebSocket-Protocol": None}, None),
        ({"Sec-WebSocket-Extensions": "permessage-deflate"}, "carmy-frames.1"),
        ({"Cookie": "name=\xe9"}, "carmy-frames.1"),
        ({"Connection": "Upgrade\r\nConnection: keep-alive"}, "carmy-frames.1"),
        ({"Upgrade": "websocket, h2c"}, "carmy-frames.1"),
        ({"Upgrade": "websocket\r\nUpgrade: h2c"}, "carmy-frames.1"),
        ({"Sec-WebSocket-Version": "13,"}, "carmy-frames.1"),
        ({"Sec-WebSocket-Extensions": "\xff"}, "carmy-frames.1"),
        ({"Sec-WebSocket-Protocol": "other\r\nSec-WebSocket-Protocol: carmy-frames.1"}, "carmy-frames.1"),
    ]
    async with serving() as server:
        for headers, subprotocol in cases:
            async with server.peer() as peer:
                answer = await peer.upgrade(headers)
                assert answer.get("sec-websocket-protocol") == subprotocol
                assert "sec-websocket-extensions" not in answer
                assert (await peer.told())["event"] == "ready"
        async with server.peer() as peer:
            await peer.send(request("/agent/ws?x=1"))
            assert (await peer.until(b"\r\n")).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(
    ("path", "method", "headers", "status", "code"),
    [
        ("/", "GET", {}, 404, "ROUTE_NOT_FOUND"),
        ("/agent/ws/", "GET", {}, 404, "ROUTE_NOT_FOUND"),
        ("/agent/execute", "POST", {}, 404, "ROUTE_NOT_FOUND"),
        ("/agent/ws", "POST", {}, 405, "METHOD_NOT_ALLOWED"),
        ("/agent/ws", "GET", {"Upgrade": None, "Connection": None}, 426, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Upgrade": "h2c"}, 426, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Sec-WebSocket-Version": "8"}, 426, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Sec-WebSocket-Version": None}, 426, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Sec-WebSocket-Key": None}, 400, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Sec-WebSocket-Key": "short"}, 400, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Sec-WebSocket-Protocol": "mqtt"}, 400, "INVALID_REQUEST"),
        ("/agent/ws", "GET", {"Host": "evil.example"}, 403, "FORBIDDEN"),
        ("/agent/ws", "GET", {"Host": "127.0.0.1.evil.example"}, 403, "FORBIDDEN"),
        ("/agent/ws", "GET", {"Host": "xn--\xff"}, 403, "FORBIDDEN"),
        ("/agent/ws", "GET", {"Origin": "https://evil.example"}, 403, "FORBIDDEN"),
        ("/agent/ws", "GET", {"Origin": "null"}, 403, "FORBIDDEN"),
        ("/agent/ws", "GET", {"Origin": "http://localhost"}, 403, "FORBIDDEN"),
    ],
)
async def test_refusals(path: str, method: str, headers: dict[str, str | None], status: int, code: str) -> None:
    """A refused handshake gets an HTTP answer with the reason in JSON, before any upgrade."""
    async with serving() as server, server.peer() as peer:
        await peer.send(request(path, method, headers))
        with trio.fail_after(5):
            answer = await peer.refusal()
    assert answer.status == status
    assert answer.body["error"]["code"] == code
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    if status == 426:
        assert answer.headers["sec-websocket-version"] == "13"
        assert answer.headers["upgrade"] == "websocket"


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
        b"GET /agent/ws HTTP/1.1\r\n\r\n",
        b"GET /agent/ws HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /agent/ws HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /agent\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        request(headers={"Connection": "Upgr\xe4de"}),
        request(headers={"Sec-WebSocket-Protocol": "carmy-frames.1\xff"}),
        request(headers={"Upgrade": "\x80"}),
        request(headers={"Sec-WebSocket-Version": "13\xff"}),
        request(headers={"Sec-WebSocket-Key": "\xff" * 24}),
        request() + frame(1, b"too early"),
        request(headers={"Content-Length": "3"}) + b"abc",
    ],
    ids=range(12),
)
async def test_heads_that_are_none(head: bytes) -> None:
    """Bytes that are no handshake, those beyond ASCII in any header included, cost one refusal and no other connection."""
    async with serving() as server, server.upgraded() as other:
        async with server.peer() as peer:
            await peer.send(head)
            with trio.fail_after(5):
                answer = await peer.refusal()
        assert answer.status in {400, 403, 426, 431}
        assert answer.body["error"]["code"] in {"INVALID_REQUEST", "FORBIDDEN"}
        assert await other.ask(id=1, op="ping") == {"id": 1, "ok": True, "result": {}}


GOOD = request()
FIRST, _, REST = GOOD.partition(b"\r\n")


def first_line(version: bytes) -> bytes:
    """The handshake with another version of HTTP."""
    return b"GET /agent/ws%b\r\n%b" % (version, REST)


def with_line(line: bytes) -> bytes:
    """The handshake with one more line."""
    return FIRST + b"\r\n" + line + b"\r\n" + REST


FRAMING = {
    "HTTP/1.0, which has no upgrades": (first_line(b" HTTP/1.0"), 426),
    "HTTP/0.9": (first_line(b""), 400),
    "HTTP/1.2": (first_line(b" HTTP/1.2"), 400),
    "HTTP/2.0": (first_line(b" HTTP/2.0"), 400),
    "HTTP/9.9": (first_line(b" HTTP/9.9"), 400),
    "a method in small letters": (b"get" + GOOD[3:], 400),
    "a length": (with_line(b"Content-Length: 5"), 400),
    "a length with a sign": (with_line(b"Content-Length: +0"), 400),
    "two lengths": (with_line(b"Content-Length: 0\r\nContent-Length: 0"), 400),
    "a body": (with_line(b"Content-Length: 5") + b"hello", 400),
    "a coding": (with_line(b"Transfer-Encoding: chunked"), 400),
    "a coding and a body": (with_line(b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "an unknown coding": (with_line(b"Transfer-Encoding: identity"), 400),
    "a folded header": (with_line(b"X: a\r\n b"), 400),
    "a bare LF": (with_line(b"X: a\nY: b"), 400),
    "bare LFs only": (GOOD.replace(b"\r\n", b"\n"), 400),
    "a bare CR": (with_line(b"X: a\rY: b"), 400),
    "a NUL": (with_line(b"X: a\0"), 400),
    "a header of blanks and a NUL": (with_line(b"X:" + b" " * 15_000 + b"\0"), 400),
    "a blank before the colon": (with_line(b"X : a"), 400),
    "a head of 17 KiB": (with_line(b"X: " + b"a" * 17 * 1024), 431),
    "a head of 17 KiB of blanks": (with_line(b"X:" + b" " * 17 * 1024 + b"\0"), 431),
    "a head of 24 KiB": (with_line(b"X: " + b"a" * 24 * 1024), 431),
    "too many headers": (with_line(b"\r\n".join([b"X: a"] * 200)), 431),
}


@pytest.mark.parametrize("name", FRAMING)
async def test_framing(name: str) -> None:
    """The rules of HTTP hold for the head of a handshake: what they refuse gets no upgrade, and the connection closes."""
    head, status = FRAMING[name]
    async with serving() as server, server.peer() as peer:
        await peer.send(head)
        with trio.fail_after(5):
            answer = await peer.refusal()
    assert (answer.status, answer.body["error"]["code"]) == (status, "INVALID_REQUEST")
    assert answer.headers["connection"] == "close"


async def test_fixtures_of_other_projects_get_no_websocket() -> None:
    """Requests from the tests of other HTTP projects, which offer no such WebSocket, are refused in HTTP, each on its own."""
    async with serving(http={"header_timeout_secs": 0.3}) as server:

        async def check(name: str, data: bytes) -> None:
            async with server.peer() as peer:
                await peer.send(data)
                status = int((await peer.until(b"\r\n")).split(b" ")[1])
                assert status in {400, 403, 404, 405, 408, 426, 431}, name
                if is_refused(data) and data.count(b"HTTP/1.") == 1 and b"chunked" not in data.lower():
                    assert status in {400, 431}, name

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for name, fixture in FIXTURES.items():
                    nursery.start_soon(check, name, fixture.data)


async def test_a_length_of_zero() -> None:
    """A handshake may say that it has no body."""
    async with serving() as server, server.peer() as peer:
        await peer.upgrade({"Content-Length": "0"})


async def test_resets_during_the_handshake_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that resets its connection at any point of the handshake leaves no line above debug."""
    caplog.set_level(logging.INFO)
    async with serving() as server:
        for steps in range(40):
            async with server.peer() as peer:
                await peer.send(GOOD[: len(GOOD) - steps % 2])
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.stream.socket.close()
        async with server.peer() as peer:
            await peer.upgrade()
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_head_in_pieces() -> None:
    """A handshake may come byte by byte."""
    async with serving() as server, server.peer() as peer:
        for byte in request():
            await peer.send(bytes([byte]))
        with trio.fail_after(5):
            assert (await peer.until(b"\r\n")).startswith(b"HTTP/1.1 101")


async def test_a_head_that_does_not_come() -> None:
    """A peer that does not finish its handshake in time gets 408."""
    async with serving(http={"header_timeout_secs": 0.05}) as server, server.peer() as peer:
        await peer.send(b"GET /agent/ws HTTP/1.1\r\n")
        with trio.fail_after(5):
            assert (await peer.refusal()).status == 408


async def test_allowed_origin_and_host() -> None:
    """A page and a name that the settings list get their WebSocket; look-alikes do not, and the setting is named."""
    async with serving(http={"allowed_origins": [PAGE], "allowed_hosts": ["tools.example"]}) as server:
        async with server.peer() as peer:
            await peer.upgrade({"Origin": PAGE, "Host": "tools.example"})
        async with server.peer() as peer:
            await peer.upgrade({"Origin": "http://tools.example", "Host": "tools.example"})
        for name, value, setting in [
            ("Origin", PAGE + ".evil.example", "allowed_origins"),
            ("Host", "tools.example.evil.example", "allowed_hosts"),
        ]:
            async with server.peer() as peer:
                await peer.send(request(headers={name: value}))
                answer = await peer.refusal()
            assert answer.status == 403
            assert setting in answer.body["error"]["message"]


async def test_authentication() -> None:
    """Without valid credentials there is no upgrade but a 401; with them, the connection calls as their owner."""
    tokens = BearerTokens({"secret": AgentContext(principal="ana")})
    async with serving(authenticator=tokens) as server:
        for value in (None, "Bearer wrong", "Basic secret"):
            async with server.peer() as peer:
                await peer.send(request(headers={"Authorization": value}))
                answer = await peer.refusal()
            assert (answer.status, answer.body["error"]["code"]) == (401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == "Bearer"
        async with server.peer() as peer:
            await peer.upgrade({"Authorization": "Bearer secret"})
            await peer.told()
            await peer.ask(id=1, op="call", tool="echo", arguments={"text": "a"})
    record, *refusals = server.engine.audit.newest()
    assert (record.principal, record.tool, record.transport) == ("ana", "echo", "websocket")
    assert [(refusal.error_code, refusal.principal) for refusal in refusals] == [("UNAUTHENTICATED", None)] * 3


async def test_what_an_authenticator_gets() -> None:
    """Credentials name the transport, the peer, and every header."""
    seen: list[Credentials] = []

    async def authenticate(credentials: Credentials) -> AgentContext | None:
        await trio.lowlevel.checkpoint()
        seen.append(credentials)
        return AgentContext(principal="ana")

    async with serving(authenticator=authenticate) as server, server.peer() as peer:
        await peer.upgrade({"Authorization": "Bearer abc", "X-Other": "\xe9"})
    (credentials,) = seen
    assert credentials.transport == "websocket"
    assert credentials.bearer == "abc"
    assert credentials.peer == "127.0.0.1"
    assert credentials.headers["x-other"] == "\xe9"


async def test_an_authenticator_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """An exception of the host's authenticator is a 500 without details, and ends no other connection."""

    def authenticate(credentials: Credentials) -> AgentContext:
        if credentials.bearer == "crash":
            raise ValueError("hunter2")
        return AgentContext()

    async with serving(authenticator=authenticate) as server, server.upgraded() as other:
        async with server.peer() as peer:
            await peer.send(request(headers={"Authorization": "Bearer crash"}))
            answer = await peer.refusal()
        assert answer.status == 500
        assert "hunter2" not in str(answer.body)
        assert (await other.ask(id=1, op="ping"))["ok"]
    assert "hunter2" in caplog.text


async def test_a_handshake_during_shutdown() -> None:
    """A handshake during shutdown gets SHUTTING_DOWN; a connection without a complete request is closed."""
    reached, go_on = trio.Event(), trio.Event()

    async def authenticate(credentials: Credentials) -> AgentContext:
        reached.set()
        await go_on.wait()
        return AgentContext()

    async with serving(authenticator=authenticate) as server, server.peer() as silent, server.peer() as peer:
        await silent.send(b"GET")
        await peer.send(request())
        with trio.fail_after(5):
            await reached.wait()
            server.engine.stop()
            assert await silent.stream.receive_some(1) == b""
            go_on.set()
            answer = await peer.refusal()
    assert (answer.status, answer.body["error"]["code"]) == (503, "SHUTTING_DOWN")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(("host", "is_served"), [("xn--bcher-kva.example", True), ("xn--zckzah\u00ff.example", False)])
async def test_international_names(host: str, is_served: bool) -> None:
    """An international name that the settings list is served in its ASCII form; a malformed one gets an answer in HTTP."""
    async with serving(http={"allowed_hosts": ["xn--bcher-kva.example"]}) as server, server.peer() as peer:
        await peer.send(request(headers={"Host": host}))
        with trio.fail_after(5):
            status = int((await peer.until(b"\r\n")).split(b" ")[1])
    assert (status == 101) is is_served


@pytest.mark.parametrize(
    ("settings", "http", "named"),
    [
        ({}, {"allowed_hosts": ["*.example"]}, "allowed_hosts"),
        ({}, {"allowed_origins": ["https://app.example/"]}, "allowed_origins"),
        ({"address": "0.0.0.0:0"}, {}, "allow_anonymous"),
    ],
)
async def test_settings_that_are_refused(settings: dict[str, Any], http: dict[str, Any], named: str) -> None:
    """Names that could never match, and an address that anybody could reach, end the start and are named."""
    with pytest.raises(ConfigurationError, match=named):
        async with open_engine([], settings=Settings(**settings, http=HttpSettings(**http))) as engine:
            await serve(engine)
