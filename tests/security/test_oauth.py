"""The server as a protected resource of OAuth 2.1: metadata (RFC 9728) and challenges (RFC 6750), for clients of MCP and others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from carmy_engine import AgentContext, BearerTokens, Jwt, McpSettings, RequireToolPermission, tool
from tests.support.http import Answer, Running, serving
from tests.support.tokens import AUDIENCE, ISSUER, RSA, claims, sign

pytestmark = pytest.mark.usefixtures("server")

ALONE = {"mcp": McpSettings(sessions=False)}
METADATA = "/.well-known/oauth-protected-resource"


@tool(effect="read", parallel_safe=True)
async def greet() -> str:
    """Greet."""
    return "hello"


@tool(effect="write", parallel_safe=True)
async def order() -> str:
    """Order."""
    return "ordered"


def jwt() -> Jwt:
    """The authenticator of a server with an issuer."""
    return Jwt(issuer=ISSUER, audience=AUDIENCE, key=RSA.as_pem(private=False))


async def ask_mcp(shop: Running, token: str | None, method: str = "tools/list", **params: Any) -> Answer:
    """One message of MCP, outside of a session."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **({} if token is None else {"authorization": f"Bearer {token}"}),
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with shop.client() as client:
        return await client.request("POST", "/mcp", headers, json.dumps(message).encode())


async def test_metadata() -> None:
    """The metadata names the server, and the issuer of its tokens. It needs no token."""
    async with serving(greet, authenticator=jwt()) as shop:
        for part in ("", "/mcp"):
            answer = await shop.get(METADATA + part, {"host": "LOCALHOST:3000"})
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json == {
                "resource": f"http://LOCALHOST:3000{part}",
                "authorization_servers": [ISSUER],
                "bearer_methods_supported": ["header"],
                "resource_name": "shop",
            }
        assert (await shop.get(METADATA + "/other")).status == 401
        assert (await shop.get(METADATA, method="POST")).status in (405, 401)


async def test_public_url() -> None:
    """Behind a proxy, the addresses are those that clients use."""
    http = {"public_url": "https://example.org/shop", "root_path": "/shop"}
    async with serving(greet, http=http, authenticator=jwt()) as shop:
        assert (await shop.get(f"/shop{METADATA}/mcp")).json["resource"] == "https://example.org/shop/mcp"
        refused = await ask_mcp(shop, None)
        assert refused.headers["www-authenticate"] == (
            f'Bearer resource_metadata="https://example.org/shop{METADATA}/mcp"'
        )


async def test_root_path() -> None:
    """Without a public URL, the prefix of the proxy is part of the addresses."""
    async with serving(greet, http={"root_path": "/shop"}, authenticator=jwt()) as shop:
        assert (await shop.get(METADATA)).json["resource"] == "http://127.0.0.1/shop"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", '127.0.0.1"', "localhost@evil", ""])
async def test_foreign_hosts(host: str) -> None:
    """A name that is not the server's is in no address: the request is refused as any other."""
    async with serving(greet, authenticator=jwt()) as shop:
        for path in (METADATA, "/mcp", "/agent/tools"):
            answer = await shop.get(path, {"host": host})
            assert answer.status in (400, 403)
            assert "www-authenticate" not in answer.headers
            assert b"resource" not in answer.body


async def test_challenges() -> None:
    """Without a token, the challenge names the metadata of the address; with a wrong one, that it is wrong, too."""
    async with serving(greet, authenticator=jwt()) as shop:
        for path, part in (("/mcp", "/mcp"), ("/agent/tools", ""), ("/agent/execute", "")):
            where = f'resource_metadata="http://127.0.0.1{METADATA}{part}"'
            answer = await shop.get(path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, f"Bearer {where}")
            expired = {"authorization": f"Bearer {sign(claims(exp=1))}"}
            answer = await shop.get(path, expired)
            assert (answer.status, answer.headers["www-authenticate"]) == (
                401,
                f'Bearer error="invalid_token", {where}',
            )


async def test_without_an_issuer() -> None:
    """Where tokens come from no authorization server, there is no metadata, and the challenge is plain."""
    async with serving(greet, authenticator=BearerTokens({"t": AgentContext(principal="ana")})) as shop:
        assert (await shop.get(METADATA)).status == 404
        for headers in ({}, {"authorization": "Bearer wrong"}):
            assert (await shop.get("/agent/tools", headers)).headers["www-authenticate"] == "Bearer"
    async with serving(greet) as shop:
        assert (await shop.get(METADATA)).status == 404


async def test_mcp_that_is_not_served() -> None:
    """There is no metadata of an address that is not served."""
    async with serving(greet, http={"mcp": False}, authenticator=jwt()) as shop:
        assert (await shop.get(METADATA)).status == 200
        assert (await shop.get(METADATA + "/mcp")).status == 404


async def test_insufficient_scope() -> None:
    """A call whose scope is missing is refused with the scope that would allow it, over HTTP and over MCP."""
    async with serving(greet, order, authenticator=jwt(), policies=[RequireToolPermission()], settings=ALONE) as shop:
        token = sign(claims())  # with the scope for greet alone
        bearer = {"authorization": f"Bearer {token}"}
        assert (await shop.call("greet", bearer)).json["data"] == "hello"
        refused = await shop.call("order", bearer)
        assert (refused.status, refused.code) == (403, "FORBIDDEN")
        assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="tool:order"'

        listed = await ask_mcp(shop, token)
        assert [entry["name"] for entry in listed.json["result"]["tools"]] == ["greet"]
        assert (await ask_mcp(shop, token, "tools/call", name="greet", arguments={})).status == 200
        refused = await ask_mcp(shop, token, "tools/call", name="order", arguments={})
        assert refused.status == 403
        assert refused.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="tool:order", resource_metadata="http://127.0.0.1{METADATA}/mcp"'
        )
        assert refused.json["result"]["isError"] is True
        assert (await ask_mcp(shop, sign(claims(scope="tool:*")), "tools/call", name="order")).status == 200


async def test_other_refusals_have_no_scope() -> None:
    """A refusal for another reason, and one over MCP without an issuer, is as it was."""
    tokens = BearerTokens({"t": AgentContext(principal="ana")})
    async with serving(greet, authenticator=tokens, policies=[RequireToolPermission()], settings=ALONE) as shop:
        refused = await ask_mcp(shop, "t", "tools/call", name="greet", arguments={})
        assert (refused.status, refused.json["result"]["isError"]) == (200, True)
        listing = await shop.get("/agent/executions", {"authorization": "Bearer t"})
        assert listing.status == 403
        assert "www-authenticate" not in listing.headers
