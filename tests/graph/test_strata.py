"""The guide to tools of another engine: its examples, tables and calls, with their results and words."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, AgentError, App, DeclarationError, ToolRegistry, tool
from carmy_engine.graph import CompiledGraph, MemoryCheckpoints, NodeContext, RunStatus, StateGraph

STOCK = {"AB-12": 7, "CD-34": 0}


class InventoryTools:
    """Stock by SKU."""

    @tool(effect="read", name="inventory.lookup", description="Units in stock for a SKU.")
    async def lookup(self, sku: str, warehouse: str | None = None) -> int:
        return STOCK.get(sku, 0)

    @tool(effect="write", name="inventory.reserve", description="Reserves units of a SKU for the calling tenant.")
    async def reserve(self, sku: str, count: int, context: AgentContext) -> str:
        await trio.sleep(0.05)  # in place of the warehouse system
        if count > STOCK.get(sku, 0):
            raise AgentError("OUT_OF_STOCK", f"only {STOCK.get(sku, 0)} x {sku} in stock", "conflict")
        return f"reserved {count} x {sku} for {context.metadata.get('tenant', '(no tenant)')}"


@tool(effect="external_write", name="billing.refund", register=False)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@dataclasses.dataclass(frozen=True)
class Order:
    """The state of the guide."""

    sku: str
    count: int
    confirmation: str | None = None


def registry() -> ToolRegistry:
    return ToolRegistry().register(InventoryTools(), refund)


def support() -> ToolRegistry:
    return registry().subset("inventory.reserve", "inventory.lookup")


def reserving(tools: ToolRegistry) -> CompiledGraph[Order]:
    async def reserve(state: Order, ctx: NodeContext) -> Order:
        arguments = {"sku": state.sku, "count": state.count}
        return dataclasses.replace(state, confirmation=await tools.dispatch("inventory.reserve", arguments, ctx))

    return StateGraph(Order).node("Reserve", reserve).compile()


async def test_the_reservation(autojump_clock: trio.testing.MockClock) -> None:
    """The run completes with the confirmation in the state; the tool has read the tenant from the run's metadata."""
    async with App("shop").add(registry()).open() as engine:
        run = (
            await reserving(support())
            .bind(engine)
            .run("order-1001", Order("AB-12", 2), checkpoints=MemoryCheckpoints(), metadata={"tenant": "acme"})
        )
    assert run.status is RunStatus.COMPLETED
    assert run.state.confirmation == "reserved 2 x AB-12 for acme"
    assert run.unwrap() == Order("AB-12", 2, "reserved 2 x AB-12 for acme")


async def ask(tools: ToolRegistry, name: str, arguments: dict[str, Any], context: Any = None) -> str:
    """The helper of the guide: each outcome as text for a model."""
    try:
        return str(await tools.dispatch(name, arguments, context))
    except AgentError as error:
        if error.code == "INVALID_ARGUMENTS":
            problems = (error.details or {})["problems"]
            return "invalid arguments: " + "; ".join(each["message"] for each in problems)
        if error.code == "TOOL_NOT_PERMITTED":
            return "not permitted for this agent"
        if error.code == "TOOL_NOT_FOUND":
            return "no such tool"
        return f"the tool failed: {error.message}"


TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("inventory.reserve", {"sku": "AB-12"}, "invalid arguments: argument 'count' is missing"),
    ("inventory.reserve", {"sku": "AB-12", "count": 9}, "the tool failed: only 7 x AB-12 in stock"),
    ("inventory.reserve", {"sku": "AB-12", "count": "9"}, "invalid arguments: argument 'count' must be an integer"),
    ("billing.refund", {}, "not permitted for this agent"),
    ("inventory.restock", {}, "no such tool"),
    ("inventory.lookup", {"sku": "AB-12"}, "7"),
    ("inventory.reserve", {"sku": "AB-12", "count": 2}, "reserved 2 x AB-12 for (no tenant)"),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), TABLE)
async def test_each_outcome_outside_of_a_graph(
    name: str, arguments: dict[str, Any], expected: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A registry dispatches by itself; the context of the tool is then empty."""
    assert await ask(support(), name, arguments) == expected


async def test_each_outcome_in_a_node(autojump_clock: trio.testing.MockClock) -> None:
    """The same calls from a node have the same results."""
    found: list[str] = []

    async def call_all(state: Order, ctx: NodeContext) -> None:
        found.extend([await ask(support(), name, arguments, ctx) for name, arguments, _ in TABLE])

    async with App("shop").add(registry()).open() as engine:
        run = await StateGraph(Order).node("ask", call_all).compile().bind(engine).run("t", Order("AB-12", 2))
    assert run.status is RunStatus.COMPLETED
    assert found == [expected for _, _, expected in TABLE]


def test_the_manifest() -> None:
    """The entry of the guide for inventory.lookup."""
    entry = next(each for each in registry().manifest() if each["name"] == "inventory.lookup")
    assert (entry["name"], entry["description"]) == ("inventory.lookup", "Units in stock for a SKU.")
    assert entry["parameters"]["required"] == ["sku"]
    assert list(entry["parameters"]["properties"]) == ["sku", "warehouse"]
    json.dumps(entry)


def test_registering_and_narrowing() -> None:
    """A duplicate name is refused and nothing is added; a subset keeps the order, refuses unknown names, and can only narrow."""
    tools = registry()
    with pytest.raises(AgentError, match="DUPLICATE_TOOL"):
        tools.register(InventoryTools())
    assert list(tools) == ["inventory.lookup", "inventory.reserve", "billing.refund"]
    assert list(support()) == ["inventory.lookup", "inventory.reserve"]
    with pytest.raises(DeclarationError):
        tools.subset("inventory.restock")
    with pytest.raises(DeclarationError):
        support().register(refund)


async def test_the_context_of_a_call() -> None:
    """A tool sees thread, run, node, attempt, metadata and caller of the node that calls it."""
    seen: list[AgentContext] = []

    @tool(effect="none", register=False)
    async def look(ctx: AgentContext) -> None:
        """Look."""
        seen.append(ctx)

    async def node(state: Order, ctx: NodeContext) -> None:
        await ctx.call(look)
        await ctx.calling_as("support-agent", "call_7").call(look)
        assert (ctx.node, ctx.attempt, ctx.metadata) == ("Look", 1, {"tenant": "acme"})

    graph = StateGraph(Order, name="orders").node("Look", node).compile()
    async with App("shop").add(look).open() as engine:
        run = await graph.bind(engine.bind(principal="ana")).run("t1", Order("a", 1), metadata={"tenant": "acme"})
    assert run.status is RunStatus.COMPLETED
    first, second = seen
    for each in seen:
        assert (each.principal, each.thread_id, each.run_id, each.node_path) == ("ana", "t1", run.run_id, "Look")
        assert (each.attempt, each.metadata) == (1, {"tenant": "acme"})
    assert (first.caller_id, second.caller_id, second.call_id) == ("orders", "support-agent", "call_7")
    assert first.call_id  # generated
    assert [each.request_id for each in seen] == [f"graph:t1/{run.run_id}/Look/{step}" for step in (1, 2)]


async def test_an_error_of_a_tool_is_the_error_of_the_node(autojump_clock: trio.testing.MockClock) -> None:
    """What a node does not handle ends the run; `unwrap` raises it."""
    async with App("shop").add(registry()).open() as engine:
        run = await reserving(support()).bind(engine).run("order-1", Order("AB-12", 9))
    assert run.status is RunStatus.FAILED
    with pytest.raises(AgentError, match="only 7 x AB-12 in stock"):
        run.unwrap()


async def test_cancelling_a_call(autojump_clock: trio.testing.MockClock) -> None:
    """A node's timeout reaches the tool that the node calls; a node that catches that still times out."""
    ends: list[float] = []

    @tool(effect="write", parallel_safe=True, register=False)
    async def slow(ctx: AgentContext) -> None:
        """Wait."""
        try:
            await trio.sleep(100)
        finally:
            ends.append(trio.current_time())

    async def node(state: Order, ctx: NodeContext) -> None:
        await ctx.call(slow)

    graph = StateGraph(Order).node("slow", node, timeout=2).compile()
    async with App("shop").add(slow).open() as engine:
        began = trio.current_time()
        run = await graph.bind(engine).run("t", Order("a", 1))
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert (run.error.code, ends) == ("TIMEOUT", [began + 2])
