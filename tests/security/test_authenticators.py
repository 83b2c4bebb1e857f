"""Keys in headers, users of sockets with a file, and several authenticators as one, over the network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import wrap_client_stream

from carmy_engine import AgentContext, ApiKeys, App, BearerTokens, Jwt, PeerCredentials, Settings, first_of, tool
from carmy_engine.abc import Challenge, Credentials, PeerProcess
from carmy_engine.errors import AgentError, ConfigurationError, DeclarationError
from carmy_websocket import serve as serve_websocket
from tests.support.http import Client, serving
from tests.support.tokens import AUDIENCE, ISSUER, RSA, claims, present, sign

ANA, BEN = AgentContext(principal="ana"), AgentContext(principal="ben")


@tool(effect="read", parallel_safe=True)
async def whoami(ctx: AgentContext) -> str | None:
    """Return the caller's principal."""
    return ctx.principal


def test_keys_in_a_header() -> None:
    """The key is read from the configured header, in any case, and from no other."""
    keys = ApiKeys({"a": ANA, "b": BEN}, header="X-Shop-Key")
    assert keys(present(None, **{"x-shop-key": "b"})) is BEN
    assert keys(present("a", **{"x-api-key": "a", "authorization": "Bearer a"})) is None
    assert keys(present(None)) is None
    hashed = ApiKeys.from_hashes({hashlib.sha256(b"a").hexdigest(): ANA})
    assert hashed(present(None, **{"x-api-key": "a"})) is ANA
    assert "X-Shop-Key" in keys.challenge.action


@pytest.mark.parametrize("header", ["", "a b", "a:b", "Authorization", "é"])
def test_headers_that_cannot_be(header: str) -> None:
    """A name that no header has, or that has another meaning, is refused when it is configured."""
    with pytest.raises(ConfigurationError, match="ApiKeys"):
        ApiKeys({}, header=header)


def test_unknown_user() -> None:
    """A name that is no user of the machine is refused when it is configured."""
    with pytest.raises(ConfigurationError, match="no user"):
        PeerCredentials({"no such user": ANA})


def test_users() -> None:
    """A user is given by name or number. A caller without a socket with a file is none."""
    users = PeerCredentials({"root": ANA, 1234: BEN})
    assert users(present(None)._replace(process=PeerProcess(1, 0, 0))) is ANA
    assert users(present(None)._replace(process=PeerProcess(1, 1234, 0))) is BEN
    assert users(present(None)._replace(process=PeerProcess(1, 1235, 0))) is None
    assert users(present(None)) is None
    assert users(present(None, **{"x-uid": "0"})._replace(peer="0")) is None


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Client]:
    """A client of a socket with a file."""
    stream = await trio.open_unix_socket(str(path))
    async with stream:
        yield Client(stream)


@pytest.mark.usefixtures("server")
async def test_socket_with_a_file(tmp_path: Path) -> None:
    """Over a socket with a file, the kernel names the caller's user; headers cannot."""
    path = tmp_path / "s"
    settings = {"address": f"unix:{path}"}
    for user, expected in ((os.getuid(), (200, "me")), (os.getuid() + 1, (401, None))):
        users = PeerCredentials({user: AgentContext(principal="me")})
        async with serving(whoami, settings=settings, authenticator=users), connected(path) as client:
            answer = await client.call("whoami", {"x-uid": str(os.getuid())})
            assert (answer.status, answer.json.get("data")) == expected


@pytest.mark.usefixtures("server")
async def test_no_user_over_tcp() -> None:
    """Over TCP there is no user, whatever headers claim."""
    users = PeerCredentials({os.getuid(): ANA})
    async with serving(whoami, authenticator=users) as shop:
        answer = await shop.call("whoami", {"x-forwarded-for": "unix:", "forwarded": "for=unix"})
        assert answer.status == 401
        assert "socket file" in answer.json["error"]["suggested_action"]


async def test_websocket_with_a_file(tmp_path: Path) -> None:
    """The handshake of a WebSocket has the user as well."""
    path = tmp_path / "s"
    app = App("shop", settings=Settings(address=f"unix:{path}")).add(whoami)
    app.authenticate(PeerCredentials({os.getuid(): ANA}))
    async with app.open() as engine, AsyncExitStack() as stack, trio.open_nursery() as nursery:
        await nursery.start(serve_websocket, engine)
        stream = await stack.enter_async_context(await trio.open_unix_socket(str(path)))
        connection = await wrap_client_stream(nursery, stream, "localhost", "/agent/ws")
        await connection.get_message()  # what the server offers
        await connection.send_message('{"id": 1, "op": "call", "tool": "whoami"}')
        assert json.loads(await connection.get_message())["result"]["data"] == "ana"
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("server")
async def test_first_of_several() -> None:
    """Each kind of credentials gives its own caller, and one that is wrong for all of them gives none."""
    several = first_of(
        ApiKeys({"key": AgentContext(principal="by key")}),
        first_of(BearerTokens({"token": AgentContext(principal="by token")})),
        Jwt(issuer=ISSUER, audience=AUDIENCE, key=RSA.as_pem(private=False)),
    )
    async with serving(whoami, authenticator=several) as shop:
        for headers, principal in (
            ({"x-api-key": "key"}, "by key"),
            ({"authorization": "Bearer token"}, "by token"),
            ({"authorization": f"Bearer {sign(claims())}"}, "ana"),
            ({"x-api-key": "token", "authorization": "Bearer token"}, "by token"),
            ({"x-api-key": "token"}, None),
            ({"authorization": "Bearer key"}, None),
            ({}, None),
        ):
            answer = await shop.call("whoami", headers)
            assert (answer.status, answer.json.get("data")) == (401 if principal is None else 200, principal)
        advice = answer.json["error"]["suggested_action"]
        assert "X-API-Key" in advice
        assert ISSUER in advice


async def test_order_and_ends_of_the_search() -> None:
    """Authenticators are asked in order, sync or async, until one accepts or raises."""
    asked: list[str] = []

    def sync(name: str, answer: AgentContext | None = None) -> Any:
        def authenticate(credentials: Credentials) -> AgentContext | None:
            asked.append(name)
            return answer

        return authenticate

    def waits(name: str, answer: AgentContext | None = None) -> Any:
        async def authenticate(credentials: Credentials) -> AgentContext | None:
            await trio.lowlevel.checkpoint()
            asked.append(name)
            return answer

        return authenticate

    def fails(_: Credentials) -> None:
        raise AgentError.standard("AUTHENTICATION_UNAVAILABLE", "not now")

    async def ask(*authenticators: Any) -> Any:
        asked.clear()
        answer = first_of(*authenticators)(present(None))
        return answer if answer is None or isinstance(answer, AgentContext) else await answer

    assert await ask(sync("a"), sync("b", BEN), sync("c")) is BEN
    assert asked == ["a", "b"]
    assert await ask(waits("a"), sync("b"), waits("c", ANA), sync("d")) is ANA
    assert asked == ["a", "b", "c"]
    assert await ask(sync("a"), waits("b")) is None
    for order in ((fails, sync("a", ANA)), (waits("b"), fails, sync("a", ANA))):
        with pytest.raises(AgentError, match="not now"):
            await ask(*order)
        assert "a" not in asked


@pytest.mark.parametrize("wrong", [[], [None], ["token"], [lambda: None]])
def test_things_that_are_no_authenticators(wrong: list[Any]) -> None:
    """What cannot be called with credentials is refused when it is declared."""
    with pytest.raises(DeclarationError):
        first_of(*wrong)


def test_challenges() -> None:
    """The advice for callers without credentials is that of each authenticator, once."""
    assert first_of(BearerTokens({}), BearerTokens({})).challenge == Challenge()
    jwt = Jwt(issuer=ISSUER, audience=AUDIENCE, key=RSA.as_pem(private=False))
    assert first_of(BearerTokens({}), jwt, jwt).challenge.issuers == (ISSUER,)


async def test_with_asyncio() -> None:
    """In an application of asyncio, its own async authenticators run there, within `first_of` too."""

    async def own(credentials: Credentials) -> AgentContext | None:
        await asyncio.sleep(0)
        return ANA if credentials.bearer == "own" else None

    app = App("shop", backend="asyncio").authenticate(first_of(own, BearerTokens({"b": BEN})))
    async with app.open() as engine:
        assert engine.authenticator is not None
        for token, expected in (("own", ANA), ("b", BEN), ("c", None)):
            answer = engine.authenticator(present(token))
            assert (answer if answer is None or isinstance(answer, AgentContext) else await answer) is expected


def test_printing_shows_no_secret() -> None:
    """The representation of an authenticator has no secret."""
    shown = repr([BearerTokens({"secret-token": ANA}), ApiKeys({"secret-key": ANA}), PeerCredentials({0: ANA})])
    assert "secret-" not in shown
