"""Forged context, foreign tokens, and requests of foreign pages and names, over every transport with callers over a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import carmy_websocket
from carmy_engine import (
    AgentContext,
    BearerTokens,
    HttpSettings,
    Jwt,
    McpSettings,
    Settings,
    first_of,
    open_engine,
    tool,
)
from carmy_engine.testing import compile_tool
from tests.support.http import Answer, Running, serving
from tests.support.tokens import AUDIENCE, ISSUER, OTHER_RSA, RSA, claims, encode, sign
from tests.support.websocket import Peer

OWN: dict[str, Any] = {"principal": "ana", "session": None, "permissions": ["read"], "metadata": {}}
BEARER = {"authorization": "Bearer good"}
FORGED: dict[str, Any] = {
    "principal": "root",
    "session": "another",
    "permissions": ["confirm:whoami", "executions:list"],
    "metadata": {"admin": True},
    "context": {"principal": "root"},
}
FORGED_HEADERS = {
    "x-principal": "root",
    "principal": "root",
    "carmy-principal": "root",
    "x-forwarded-user": "root",
    "x-remote-user": "root",
    "x-permissions": "executions:list",
    "x-forwarded-for": "127.0.0.1",
    "x-session": "another",
    "carmy.process": "0",
}


@tool(effect="read", parallel_safe=True)
async def whoami(ctx: AgentContext) -> dict[str, Any]:
    """Return the caller."""
    metadata = dict(ctx.metadata)
    return {
        "principal": ctx.principal,
        "session": ctx.session,
        "permissions": sorted(ctx.permissions),
        "metadata": metadata,
    }


def authenticator() -> Any:
    """One token of each kind."""
    ana = AgentContext(principal="ana", permissions={"read"})
    return first_of(BearerTokens({"good": ana}), Jwt(issuer=ISSUER, audience=AUDIENCE, key=RSA.as_pem(private=False)))


@asynccontextmanager
async def http_server(**http: Any) -> AsyncIterator[Running]:
    """A server of HTTP, with MCP without sessions."""
    settings = {"mcp": McpSettings(sessions=False)}
    async with serving(whoami, http=http, settings=settings, authenticator=authenticator()) as shop:
        yield shop


@asynccontextmanager
async def websocket_server(**http: Any) -> AsyncIterator[int]:
    """A server of WebSocket; its port."""
    settings = Settings(address="127.0.0.1:0", http=HttpSettings(**http))
    tools = [compile_tool(whoami, {})]
    async with (
        open_engine(tools=tools, settings=settings, authenticator=authenticator()) as engine,
        trio.open_nursery() as nursery,
    ):
        line: str = await nursery.start(carmy_websocket.serve, engine)
        yield int(line.rpartition(":")[2].partition("/")[0])
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    """A connection before its handshake."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Peer(stream)


async def ask_mcp(shop: Running, headers: Mapping[str, str], params: Mapping[str, Any] | None = None) -> Answer:
    """A call of MCP."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami", **(params or {})}}
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    async with shop.client() as client:
        return await client.request("POST", "/mcp", {**usual, **headers}, json.dumps(message).encode())


@pytest.mark.usefixtures("server")
async def test_forged_context_over_http() -> None:
    """A request cannot change its caller: fields and arguments are refused, and headers mean nothing."""
    async with http_server() as shop:
        for name, value in FORGED.items():
            assert (await shop.call("whoami", BEARER, **{name: value})).code == "INVALID_REQUEST"
        for name in (*FORGED, "ctx", "execution_id", "cancellation"):
            forged = await shop.call("whoami", BEARER, arguments={name: FORGED})
            assert forged.code == "INVALID_ARGUMENTS", name
        assert (await shop.call("whoami", {**BEARER, **FORGED_HEADERS})).json["data"] == OWN
        listing = await shop.get("/agent/executions", {**BEARER, **FORGED_HEADERS})
        assert (listing.status, listing.code) == (403, "FORBIDDEN")


@pytest.mark.usefixtures("server")
async def test_forged_context_over_mcp() -> None:
    """Neither the `_meta` of a call, nor its other members, nor headers change its caller."""
    async with http_server() as shop:
        meta = {**FORGED, **{f"carmy/{name}": value for name, value in FORGED.items()}}
        for params in ({"_meta": meta}, {**FORGED}, {"_meta": {"progressToken": 1, **meta}}):
            answer = await ask_mcp(shop, {**BEARER, **FORGED_HEADERS}, params)
            assert answer.status == 200
            assert b'"principal":"ana"' in answer.body.replace(b" ", b"")
            assert b"root" not in answer.body
        for name in (*FORGED, "ctx"):
            forged = await ask_mcp(shop, BEARER, {"arguments": {name: "root"}})
            assert forged.json["result"]["isError"] is True


async def test_forged_context_over_websocket() -> None:
    """Neither the handshake nor a message changes the caller."""
    async with websocket_server() as port, peer(port) as connection:
        await connection.upgrade({"Authorization": "Bearer good", **FORGED_HEADERS})
        await connection.told()
        assert (await connection.ask(id=1, op="call", tool="whoami"))["result"]["data"] == OWN
        for name, value in FORGED.items():
            refused = await connection.ask(id=2, op="call", tool="whoami", **{name: value})
            assert (refused["ok"], refused["error"]["code"]) == (False, "INVALID_REQUEST")
        refused = await connection.ask(id=3, op="call", tool="whoami", arguments=FORGED)
        assert refused["result"]["error"]["code"] == "INVALID_ARGUMENTS"
        refused = await connection.ask(id=4, op="call", tool="whoami", authorization="Bearer other")
        assert refused["error"]["code"] == "INVALID_REQUEST"


def wrong_headers() -> dict[str, str | None]:
    """Values of `Authorization` that no caller has; None for none."""
    valid = sign(claims())
    head, body, signature = valid.split(".")
    return {
        "none": None,
        "empty": "",
        "another scheme": "Basic good",
        "no scheme": "good",
        "no token": "Bearer",
        "unknown": "Bearer other",
        "beginning": "Bearer goo",
        "longer": "Bearer good ness",
        "twice": "Bearer good, Bearer good",
        "expired": f"Bearer {sign(claims(exp=1000))}",
        "not yet valid": f"Bearer {sign(claims(nbf=9_999_999_999, exp=99_999_999_999))}",
        "foreign audience": f"Bearer {sign(claims(aud='https://other.example'))}",
        "foreign issuer": f"Bearer {sign(claims(iss='https://evil.example'))}",
        "foreign key": f"Bearer {sign(claims(), OTHER_RSA)}",
        "unsigned": f"Bearer {encode({'alg': 'none'})}.{body}.",
        "altered": f"Bearer {head}.{encode(claims(sub='root'))}.{signature}",
        "altered signature": f"Bearer {head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
    }


@pytest.mark.usefixtures("server")
async def test_wrong_tokens_over_http_and_mcp() -> None:
    """A token that is missing, altered, expired or foreign is refused with 401, before anything of the request is looked at."""
    async with http_server() as shop:
        for name, value in wrong_headers().items():
            headers = {} if value is None else {"authorization": value}
            for answer in (
                await shop.call("whoami", headers),
                await shop.call("unknown", headers),
                await shop.get("/agent/tools", headers),
                await shop.get("/nothing", headers),
                await ask_mcp(shop, headers),
            ):
                assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), name
        assert (await ask_mcp(shop, {"authorization": f"Bearer {sign(claims())}"})).status == 200
        assert (await shop.call("whoami", {"authorization": f"bearer {sign(claims())}"})).status == 200


async def test_wrong_tokens_over_websocket() -> None:
    """The handshake is refused likewise."""
    async with websocket_server() as port:
        for name, value in wrong_headers().items():
            async with peer(port) as connection:
                await connection.send(_handshake({} if value is None else {"Authorization": value}))
                assert (await connection.refusal()).status == 401, name


def _handshake(headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"GET /agent/ws HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


HOSTS = {
    "127.0.0.1": True,
    "127.0.0.1:3000": True,
    "localhost": True,
    "LOCALHOST:1": True,
    "localhost.": True,
    "[::1]:3000": True,
    "shop.example": True,
    "SHOP.example:8443": True,
    "evil.example": False,
    "shop.example.evil.example": False,
    "evilshop.example": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "10.0.0.1": False,
    "[::2]": False,
    "a@127.0.0.1": False,
    "127.0.0.1/x": False,
    "": False,
}

ORIGINS = {
    "https://app.example": True,
    "http://127.0.0.1:3000": True,
    "https://127.0.0.1:3000": False,
    "http://127.0.0.1:3001": False,
    "http://localhost:3000": False,
    "http://app.example": False,
    "https://app.example.evil.example": False,
    "https://evil-app.example": False,
    "https://app.example:8443": False,
    "https://app.example/": False,
    "https://app.example https://evil.example": False,
    "https://evil.example": False,
    "null": False,
    "": False,
}


@pytest.mark.usefixtures("server")
async def test_hosts_and_origins_over_http_and_mcp() -> None:
    """A name that is not listed, and a page that is not, is refused with 403 with a valid token; health is open by any name."""
    async with http_server(allowed_hosts=["shop.example"], allowed_origins=["https://app.example"]) as shop:
        for host, allowed in HOSTS.items():
            headers = {**BEARER, "host": host}
            for answer in (await shop.call("whoami", headers), await ask_mcp(shop, headers)):
                assert (answer.status == 200) == allowed, host
                assert allowed or answer.status in (400, 403), host
        for origin, allowed in ORIGINS.items():
            headers = {**BEARER, "host": "127.0.0.1:3000", "origin": origin}
            for answer in (await shop.call("whoami", headers), await ask_mcp(shop, headers)):
                assert answer.status == (200 if allowed else 403), origin
                assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
        assert (await shop.get("/health", {"host": "10.0.0.1"})).status == 200


async def test_hosts_and_origins_over_websocket() -> None:
    """The same decides about handshakes, before credentials are looked at."""
    async with websocket_server(allowed_hosts=["shop.example"], allowed_origins=["https://app.example"]) as port:
        for name, table in (("Host", HOSTS), ("Origin", ORIGINS)):
            for value, allowed in table.items():
                usual = {"Host": "127.0.0.1:3000", "Authorization": "Bearer good"}
                async with peer(port) as connection:
                    await connection.send(_handshake({**usual, name: value}))
                    status = int((await connection.until(b"\r\n")).split(b" ")[1])
                assert (status == 101) == allowed, (name, value)
                assert allowed or status in (400, 403), (name, value)
