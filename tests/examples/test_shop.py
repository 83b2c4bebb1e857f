"""The shop example: what the tutorial says about it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
import trio

from carmy_engine import App, Engine, ExecutionRequest, ToolProgress

from .conftest import Caller


@pytest.fixture
async def engine(shop: ModuleType) -> AsyncIterator[Engine]:
    """A shop of its own, with two pieces of everything."""
    app = App("shop").add(shop.search, shop.create_order, shop.cancel_order, shop.report)
    async with app.state(shop.Database(stock=2)).open() as engine:
        yield engine


async def test_searching_finds_products(engine: Engine) -> None:
    """All words count, in either case, up to the limit."""
    caller = Caller(engine)
    assert [found["sku"] for found in await caller.data("search", query="MOUSE")] == ["MO-1", "MO-2", "MO-3"]
    assert [found["sku"] for found in await caller.data("search", query="mouse quiet")] == ["MO-1"]
    assert len(await caller.data("search", query="", limit=2)) == 2
    assert await caller.code("search", query="mouse", limit=0) == "INVALID_ARGUMENTS"


async def test_an_order_is_placed_once(engine: Engine) -> None:
    """A retry under the same request_id gives the first order again and takes nothing more from the stock."""
    caller = Caller(engine.bind(principal="ana"))
    first = await caller.result("create_order", request_id="o1", sku="KB-1", quantity=2)
    again = await caller.result("create_order", request_id="o1", sku="KB-1", quantity=2)
    assert first.data == {
        "id": 1,
        "sku": "KB-1",
        "quantity": 2,
        "total": 13800,
        "customer": "ana",
        "status": "placed",
    }
    assert (again.replayed, again.data) == (True, first.data)
    assert await caller.code("create_order", sku="KB-1") == "OUT_OF_STOCK"
    assert await caller.code("create_order", sku="KB-9") == "UNKNOWN_PRODUCT"


async def test_cancelling_needs_confirmation(engine: Engine) -> None:
    """Only a caller whose host has granted the permission cancels an order, and only once."""
    caller = Caller(engine.bind(principal="ana", permissions={"confirm:cancel_order"}))
    order = await caller.data("create_order", sku="MO-1")
    assert await Caller(engine).code("cancel_order", order_id=order["id"]) == "CONFIRMATION_REQUIRED"
    assert (await caller.data("cancel_order", order_id=order["id"]))["status"] == "cancelled"
    assert await caller.code("cancel_order", order_id=order["id"]) == "ALREADY_CANCELLED"
    assert await caller.code("cancel_order", order_id=99) == "UNKNOWN_ORDER"


async def test_the_report_comes_line_by_line(engine: Engine) -> None:
    """A listener gets every line before the result, and reports of how far it is."""
    await Caller(engine).data("create_order", sku="MO-1", quantity=2)
    parts: list[Any] = []
    numbers: list[float] = []
    with trio.fail_after(30):
        async with engine.stream(ExecutionRequest(tool="report", arguments={"pause": 0})) as events:
            async for event in events:
                if isinstance(event, ToolProgress) and event.partial_json is not None:
                    parts.append(event.partial)
                elif isinstance(event, ToolProgress) and event.progress is not None:
                    numbers.append(event.progress)
    assert parts == (await Caller(engine).data("report", pause=0))
    assert parts[0] == {"sku": "MO-1", "orders": 1, "total": 4980}
    assert numbers[-1] == len(parts)


async def test_the_catalog_shows_what_callers_send(engine: Engine) -> None:
    """State and context are not in the schemas; descriptions and defaults are."""
    tools = {entry["name"]: entry for entry in json.loads((await engine.catalog()).document)["tools"]}
    assert set(tools) == {"search", "create_order", "cancel_order", "report"}
    assert set(tools["create_order"]["input_schema"]["properties"]) == {"sku", "quantity"}
    assert tools["search"]["input_schema"]["properties"]["query"]["description"] == "Words to look for."
    assert tools["search"]["input_schema"]["properties"]["limit"]["default"] == 10
    assert tools["cancel_order"]["effect"] == "destructive"
