"""Discovery and catalog: content, entity tags, caching, visibility."""

from __future__ import annotations

import hashlib
from typing import Any

from carmy_engine import AgentContext, RequireToolPermission
from tests.http.tools import delete, echo, progress
from tests.support.http import serving


async def test_discovery_says_where_everything_is() -> None:
    """The discovery document has exactly the promised members."""
    async with serving(echo) as server:
        answer = await server.get("/.well-known/agent")
        catalog = await server.get("/agent/tools")
    assert answer.status == 200
    assert answer.json == {
        "protocol": "carmy/1",
        "server": "shop",
        "capabilities": ["tools", "streaming", "idempotency", "mcp"],
        "tools_url": "/agent/tools",
        "tools_version": catalog.headers["etag"].strip('"'),
        "execute_url": "/agent/execute",
        "mcp_url": "/mcp",
    }


async def test_what_is_not_served_is_not_advertised() -> None:
    """Without MCP the document names neither its address nor its capability, and there is nothing at the address."""
    async with serving(echo, http={"mcp": False}) as server:
        found = (await server.get("/.well-known/agent")).json
        assert (await server.get("/mcp")).status == 404
    assert found["capabilities"] == ["tools", "streaming", "idempotency"]
    assert "mcp_url" not in found


async def test_catalog_lists_tools_by_name() -> None:
    """The catalog is sorted and every entry has the eight promised members."""
    async with serving(progress, echo, delete) as server:
        tools = (await server.get("/agent/tools")).json["tools"]
    assert [tool["name"] for tool in tools] == ["delete", "echo", "progress"]
    assert list(tools[0]) == [
        "name", "description", "input_schema", "output_schema", "effect", "idempotent", "parallel_safe", "confirmation",
    ]  # fmt: skip


async def test_etag_is_the_hash_of_the_body() -> None:
    """Both documents carry a strong entity tag, the SHA-256 of their bytes, and may be kept for a minute."""
    async with serving(echo) as server:
        for path in ("/.well-known/agent", "/agent/tools"):
            answer = await server.get(path)
            assert answer.headers["etag"] == f'"{hashlib.sha256(answer.body).hexdigest()}"'
            assert answer.headers["cache-control"] == "private, max-age=60"
            assert answer.headers["content-type"] == "application/json"


async def test_if_none_match() -> None:
    """A matching tag, weak or in a list, and the star, are answered with 304, the same headers and no body."""
    async with serving(echo) as server:
        full = await server.get("/agent/tools")
        etag = full.headers["etag"]
        for value in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            answer = await server.get("/agent/tools", {"if-none-match": value})
            assert answer.status == 304
            assert (answer.headers["etag"], answer.headers["cache-control"]) == (etag, full.headers["cache-control"])
        assert (await server.get("/agent/tools", {"if-none-match": '"other"'})).status == 200


async def test_head_has_the_headers_and_no_body() -> None:
    """HEAD answers like GET, content length included, without the body; the connection stays usable."""
    async with serving(echo) as server, server.client() as client:
        full = await client.request("GET", "/agent/tools")
        head = await client.request("HEAD", "/agent/tools")
        assert (head.status, head.headers["content-length"]) == (200, full.headers["content-length"])
        assert (await client.request("GET", "/health")).status == 200


async def test_catalog_lists_what_the_caller_may_use() -> None:
    """Listing and calling follow one rule: a tool that a caller may not use is not in its catalog."""

    def authenticate(credentials: Any) -> AgentContext | None:
        if credentials.bearer is None:
            return None
        return AgentContext(principal="ana", permissions=frozenset({f"tool:{credentials.bearer}"}))

    async with serving(echo, progress, policies=[RequireToolPermission()], authenticator=authenticate) as server:
        one = await server.get("/agent/tools", {"authorization": "Bearer echo"})
        other = await server.get("/agent/tools", {"authorization": "Bearer progress"})
        refused = await server.call("progress", {"authorization": "Bearer echo"}, arguments={"count": 1})
    assert [tool["name"] for tool in one.json["tools"]] == ["echo"]
    assert [tool["name"] for tool in other.json["tools"]] == ["progress"]
    assert one.headers["etag"] != other.headers["etag"]
    assert refused.status == 403


async def test_below_the_prefix_of_a_proxy() -> None:
    """With ``http.root_path``, requests match with and without the prefix, once, and the document lists the addresses with it."""
    async with serving(echo, http={"root_path": "/shop/v1"}) as server:
        for path in ("/shop/v1/.well-known/agent", "/.well-known/agent"):
            document = (await server.get(path)).json
            assert [document[key] for key in ("tools_url", "execute_url", "mcp_url")] == [
                "/shop/v1/agent/tools", "/shop/v1/agent/execute", "/shop/v1/mcp",
            ]  # fmt: skip
        for path, status in [
            ("/shop/v1/health", 200), ("/shop/v1/agent/tools", 200), ("/shop/v1", 404), ("/shop/v1health", 404),
            ("/shop/health", 404), ("/shop/v1/shop/v1/health", 404), ("/shop/v1/mcp", 400),
        ]:  # fmt: skip
            for _ in range(2):  # the second one has the head of the first
                assert (await server.get(path)).status == status, path
        for _ in range(2):
            refused = await server.get("/shop/v1/shop/v1/agent/tools", {"host": "evil.example"})
            assert (refused.status, refused.code) == (403, "FORBIDDEN")
