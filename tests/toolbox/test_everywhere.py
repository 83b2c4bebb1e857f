"""Who may use which tools: one rule for the list and the call, on every transport and for each principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

import carmy_http
import carmy_websocket
from carmy_engine import (
    AgentContext,
    App,
    BearerTokens,
    ExecutionRequest,
    RequireToolPermission,
    Settings,
    ToolRegistry,
)
from carmy_engine.abc import Executor
from carmy_mcp import open_mcp, serve_http
from tests.toolbox.inventory import InventoryTools, refund, search

WAYS: dict[str, tuple[Any, Any]] = {
    "http": (carmy_http.serve, carmy_http.open_http),
    "websocket": (carmy_websocket.serve, carmy_websocket.open_websocket),
    "mcp": (serve_http, partial(open_mcp, trusted=True)),
}

LOOK = "inventory.lookup"
RESERVE = "inventory.reserve"
PEOPLE = {
    "ana": AgentContext(
        principal="ana", permissions=frozenset([f"tool:{LOOK}", f"tool:{RESERVE}", "tool:billing.refund"])
    ),
    "ben": AgentContext(principal="ben", permissions=frozenset([f"tool:{LOOK}"])),
}


@asynccontextmanager
async def reached(way: str, who: str) -> AsyncIterator[Executor]:
    """A warehouse that leaves refunds out for everybody, as one caller finds it."""
    serve, opener = WAYS[way]
    tools = ToolRegistry().register(InventoryTools({"AB-12": 7}), search, refund)
    app = App("shop", settings=Settings(address="127.0.0.1:0")).add(tools.subset(LOOK, RESERVE, "search"))
    app.policy(RequireToolPermission()).authenticate(BearerTokens(PEOPLE))
    with trio.fail_after(20):
        async with app.open() as engine, trio.open_nursery() as servers:
            line: str = await servers.start(partial(serve, engine))
            async with opener(line.rpartition(" ")[2], token=who) as client:
                yield client
            servers.cancel_scope.cancel()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("who", "may"), [("ana", [LOOK, RESERVE]), ("ben", [LOOK])])
async def test_what_is_listed_is_what_can_be_called(way: str, who: str, may: list[str]) -> None:
    """A caller is shown what it may use, and refused the rest, even what it would be allowed if the subset had it."""
    arguments: dict[str, dict[str, Any]] = {
        LOOK: {"sku": "AB-12"},
        RESERVE: {"sku": "AB-12", "count": 1},
        "search": {"query": "mouse"},
        "billing.refund": {"order": "1"},
        "inventory.restock": {},
    }
    async with reached(way, who) as client:
        assert [spec.name for spec in (await client.catalog()).tools] == may
        codes: dict[str, str | None] = {}
        for name, given in arguments.items():
            error = (await client.execute(ExecutionRequest(tool=name, arguments=given))).error
            codes[name] = None if error is None else error.code
    assert codes == {
        LOOK: None,
        RESERVE: None if RESERVE in may else "FORBIDDEN",
        "search": "FORBIDDEN",
        "billing.refund": "TOOL_NOT_PERMITTED",
        "inventory.restock": "TOOL_NOT_FOUND",
    }
