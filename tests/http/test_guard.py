"""Host, Origin, credentials, security headers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, BearerTokens, HttpSettings, Settings, open_engine
from carmy_engine.abc import Credentials
from carmy_engine.errors import ConfigurationError
from carmy_engine.transport import Fault
from carmy_http import serve
from carmy_net import Access
from tests.http.tools import echo, whoami
from tests.support.http import serving

PAGE = "https://app.example"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:1",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:3000",
        "127.8.8.8",
        "[::1]",
        "[::1]:3000",
    ],
)
async def test_loopback_hosts(host: str) -> None:
    """Loopback names and addresses pass, in any case, with a port, with a trailing dot."""
    async with serving(echo) as server:
        assert (await server.get("/agent/tools", {"host": host})).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "::1", "a b", "@", ""]
)
@pytest.mark.parametrize("path", ["/agent/tools", "/nowhere"])
async def test_other_hosts(host: str, path: str) -> None:
    """Any other name is refused on every address but those about health, and the refusal names the setting."""
    async with serving(echo) as server:
        answer = await server.get(path, {"host": host})
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert b"allowed_hosts" in answer.body


async def test_allowed_hosts() -> None:
    """A listed name passes with and without a port; one listed with its port only with that."""
    async with serving(echo, http={"allowed_hosts": ["Tools.example", "other.example:8080"]}) as server:
        for host, status in [
            ("tools.example", 200), ("tools.example:1", 200), ("TOOLS.example.", 200), ("x.tools.example", 403),
            ("other.example:8080", 200), ("other.example", 403),
        ]:  # fmt: skip
            assert (await server.get("/agent/tools", {"host": host})).status == status


@pytest.mark.parametrize(
    "http",
    [
        {"allowed_hosts": ["https://tools.example"]},
        {"allowed_hosts": ["a b"]},
        {"allowed_hosts": ["*.example"]},
        {"allowed_origins": ["https://app.example/"]},
        {"allowed_origins": ["app.example"]},
        {"allowed_origins": ["*"]},
        {"allowed_origins": ["null"]},
    ],
)
async def test_lists_that_could_never_match(http: dict[str, Any]) -> None:
    """A host or an origin that is written wrongly is refused at start, naming the setting."""
    settings = Settings(address="127.0.0.1:0", http=HttpSettings(**http))
    async with open_engine(tools=[], settings=settings) as engine:
        with pytest.raises(ConfigurationError, match=next(iter(http))):
            await serve(engine)


async def test_absolute_form() -> None:
    """A target in absolute form is served like its path, and its authority is checked like a host."""
    async with serving(echo) as server:
        good = await server.get("http://localhost/agent/tools")
        evil = await server.get("http://evil.example/agent/tools")
    assert good.status == 200
    assert evil.status == 403


async def test_the_servers_own_origin() -> None:
    """A page of the very address that the request goes to is allowed; another port, scheme or name is not."""
    async with serving(echo) as server:
        own = f"127.0.0.1:{server.port}"
        for host, origin, status in [
            (own, f"http://{own}", 200),
            (own, f"HTTP://{own}", 200),
            ("localhost", "http://localhost", 200),
            ("[::1]:80", "http://[::1]:80", 200),
            (own, f"https://{own}", 403),
            (own, "http://127.0.0.1:1", 403),
            (own, f"http://localhost:{server.port}", 403),
            (own, f"http://{own}.evil.example", 403),
            (own, f"http://{own}/", 403),
            ("evil.example", "http://evil.example", 403),
        ]:
            answer = await server.call("echo", {"host": host, "origin": origin})
            assert answer.status == status, (host, origin)
            if status == 200:
                assert answer.headers["access-control-allow-origin"] == origin


async def test_origin_off_by_default() -> None:
    """A browser's page is refused unless it is listed, on every method, and no CORS header is sent."""
    async with serving(echo) as server:
        for origin in (PAGE, "null", "http://localhost"):
            answer = await server.call("echo", {"origin": origin})
            assert (answer.status, answer.code) == (403, "FORBIDDEN")
            assert b"allowed_origins" in answer.body
            assert not any(name.startswith("access-control") for name in answer.headers)
        preflight = await server.get(
            "/agent/execute", {"origin": PAGE, "access-control-request-method": "POST"}, method="OPTIONS"
        )
    assert preflight.status == 403


async def test_cors() -> None:
    """A listed page may read every answer, errors included; look-alikes and credentials are not allowed."""
    tokens = BearerTokens({"t": AgentContext(principal="ana")})
    async with serving(echo, http={"allowed_origins": [PAGE]}, authenticator=tokens) as server:
        preflight = await server.get(
            "/agent/execute", {"origin": PAGE, "access-control-request-method": "POST"}, method="OPTIONS"
        )
        assert preflight.status == 204
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "Idempotency-Key" in preflight.headers["access-control-allow-headers"]
        good = await server.call("echo", {"origin": PAGE, "authorization": "Bearer t"})
        refused = await server.call("echo", {"origin": PAGE})
        lost = await server.get("/nowhere", {"origin": PAGE, "authorization": "Bearer t"})
        assert (good.status, refused.status, lost.status) == (200, 401, 404)
        for answer in (preflight, good, refused, lost):
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "Origin" in answer.headers["vary"]
            assert "access-control-allow-credentials" not in answer.headers
        assert "Retry-After" in good.headers["access-control-expose-headers"]
        for origin in (PAGE + ".evil.example", PAGE + ":444", "http://app.example", "null"):
            assert (await server.call("echo", {"origin": origin})).status == 403


async def test_bearer_tokens() -> None:
    """Known tokens call as their principal; missing and wrong ones get 401 with a challenge, before any route."""
    async with serving(whoami, authenticator=BearerTokens({"t-ana": AgentContext(principal="ana")})) as server:
        assert (await server.call("whoami", {"authorization": "bearer t-ana"})).json["data"] == "ana"
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic dC1hbmE="},
            {"authorization": "Bearer"},
        ):
            for path in ("/agent/tools", "/.well-known/agent", "/nowhere"):
                answer = await server.get(path, headers)
                assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert (await server.get("/health")).status == (await server.get("/ready")).status == 200


async def test_asynchronous_authenticator_sees_the_credentials() -> None:
    """An authenticator may be asynchronous, and sees headers, token and address."""
    seen: list[Credentials] = []

    async def authenticate(credentials: Credentials) -> AgentContext | None:
        seen.append(credentials)
        return AgentContext(principal="ana", transport="forged")

    async with serving(whoami, authenticator=authenticate) as server:
        answer = await server.call("whoami", {"authorization": "Bearer  x", "x-a": "1"})
        assert answer.json["data"] == "ana"
        assert server.engine.audit.newest()[0].transport == "http"
    assert (seen[0].transport, seen[0].bearer, seen[0].headers["x-a"], seen[0].peer) == ("http", "x", "1", "127.0.0.1")


async def test_authenticator_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """An authenticator's crash is answered with 500 and an id that the log has too; the connection goes on."""

    def authenticate(credentials: Credentials) -> AgentContext | None:
        raise RuntimeError("no database")

    async with serving(whoami, authenticator=authenticate) as server, server.client() as client:
        with caplog.at_level(logging.ERROR, "carmy.http"):
            answer = await client.call("whoami")
        assert answer.status == 500
        assert b"database" not in answer.body
        assert answer.json["error"]["details"]["error_id"] in caplog.text
        assert (await client.request("GET", "/health")).status == 200


async def test_context_cannot_be_forged() -> None:
    """Headers that look like context set none of it."""
    async with serving(whoami) as server:
        answer = await server.call("whoami", {"x-principal": "root", "principal": "root"})
    assert answer.json["data"] is None


async def test_security_headers() -> None:
    """When switched on, defensive headers are on every answer, refusals included."""
    async with serving(echo, http={"security_headers": True}) as server:
        async with server.client() as client:
            await client.send(b"garbage\r\n\r\n")
            refused = await client.answer()
        for answer in (
            refused,
            await server.get("/agent/tools"),
            await server.get("/nowhere"),
            await server.get("/", {"host": "x"}),
        ):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_routes() -> None:
    """Unknown addresses and wrong methods are JSON, the latter with Allow; OPTIONS lists the methods."""
    async with serving(echo) as server:
        for path in ("/", "/agent/tools/", "/agent/executions/", "/agent/executions/a/b", "/AGENT/tools"):
            lost = await server.get(path)
            assert (lost.status, lost.code) == (404, "ROUTE_NOT_FOUND")
            assert lost.headers["cache-control"] == "no-store"
        for path, method, allow in [
            ("/agent/execute", "GET", "OPTIONS, POST"),
            ("/agent/tools", "POST", "GET, HEAD, OPTIONS"),
            ("/health", "DELETE", "GET, HEAD, OPTIONS"),
        ]:
            wrong = await server.get(path, method=method)
            assert (wrong.status, wrong.code, wrong.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", allow)
        options = await server.get("/agent/execute", method="OPTIONS")
        assert (options.status, options.headers["allow"]) == (204, "OPTIONS, POST")
        everything = await server.get("*", method="OPTIONS")
        assert (everything.status, everything.headers["cache-control"]) == (204, "no-store")


@pytest.mark.parametrize("answer", [{"principal": "ana"}, "ana", True, 0], ids=repr)
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_an_authenticator_returns_a_context(colour: str, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Anything else identifies no caller: the request is a fault of the host, and the log states what was returned."""

    def sync(credentials: Credentials) -> Any:
        return answer

    async def later(credentials: Credentials) -> Any:
        return answer

    async with serving(whoami, authenticator=sync if colour == "sync" else later) as server:
        refused = await server.get("/agent/tools")
        assert (refused.status, refused.code) == (500, "INTERNAL_ERROR")
        assert (await server.get("/health")).status == 200
    assert f"{type(answer).__name__} object is not a caller's context" in caplog.text
    assert "ana" not in caplog.text


async def test_an_authenticator_that_never_answers(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs its request the limit, and authenticates no caller."""

    async def never(credentials: Credentials) -> AgentContext | None:
        await trio.sleep_forever()
        raise AssertionError

    async with open_engine([], authenticator=never) as engine:
        with pytest.raises(Fault) as caught:
            await Access(engine, "http").authenticate([], None)
    assert isinstance(caught.value.origin, trio.TooSlowError)
