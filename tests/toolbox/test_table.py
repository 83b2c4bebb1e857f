"""What happened and what comes of it, row by row: calls by name, by code and by a model, through one agent's view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine import AgentError, App, BoundEngine, ExecutionRequest, RunContext, ToolRegistry, tool
from carmy_engine.providers import text_of
from tests.toolbox.inventory import InventoryTools, refund


@asynccontextmanager
async def support() -> AsyncIterator[BoundEngine]:
    """The view of an agent that may look up and reserve, in the run of a tenant."""
    tools = ToolRegistry().register(InventoryTools({"AB-12": 7, "CD-34": 0}), refund)
    run = RunContext(thread_id="order-1001", run_id="run-1", node_path="Reserve", metadata={"tenant": "acme"})
    async with App("shop").add(tools).open() as engine:
        yield engine.bind(run=run).subset("inventory.reserve", "inventory.lookup")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("inventory.lookup", {"sku": "AB-12"}, "7"),
        ("inventory.lookup", {"sku": "CD-34", "warehouse": "north"}, "0"),
        ("inventory.reserve", {"sku": "AB-12", "count": 2}, "reserved 2 x AB-12 for acme"),
        ("inventory.reserve", {"sku": "AB-12"}, "invalid arguments: argument 'count' is missing"),
        ("inventory.reserve", {"sku": "AB-12", "count": "2"}, "invalid arguments: argument 'count' must be an integer"),
        ("inventory.reserve", {"sku": "AB-12", "count": 9}, "the tool failed: only 7 x AB-12 in stock"),
        ("billing.refund", {}, "not permitted for this agent"),
        ("inventory.restock", {}, "no such tool; did you mean inventory.reserve or inventory.lookup?"),
    ],
)
async def test_every_outcome_in_words(name: str, arguments: dict[str, Any], said: str) -> None:
    """A call by name gives a result, or words that a model can act on."""
    async with support() as agent:
        assert text_of(await agent.execute(ExecutionRequest(tool=name, arguments=arguments))) == said


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("inventory.restock", {}, "TOOL_NOT_FOUND"),
        ("billing.refund", {}, "TOOL_NOT_PERMITTED"),
        ("inventory.reserve", {"sku": "AB-12"}, "INVALID_ARGUMENTS"),
        ("inventory.reserve", {"sku": "AB-12", "count": 9}, "OUT_OF_STOCK"),
    ],
)
async def test_every_failure_has_its_code(name: str, arguments: dict[str, Any], code: str) -> None:
    """Each way to fail is distinguished by its code."""
    async with support() as agent:
        with pytest.raises(AgentError) as caught:
            (await agent.execute(ExecutionRequest(tool=name, arguments=arguments))).unwrap()
    assert caught.value.code == code


async def test_the_tools_own_exception_is_there_in_process() -> None:
    """What a tool raised undeclared stays out of the answer, and is at hand for the program that called."""

    @tool(effect="read", register=False)
    async def fail() -> None:
        """Fail."""
        raise LookupError("only 7 in stock")

    async with App("shop").add(fail).open() as engine:
        result = await engine.execute(ExecutionRequest(tool="fail"))
    assert text_of(result) == "the tool fail failed unexpectedly"
    assert isinstance(result.exception, LookupError)


async def test_a_tool_that_gives_in_to_a_cancel_by_id_is_cancelled() -> None:
    """Cancelled from outside, a call ends with an error that reports it; the tool's clean-up has run."""
    began = trio.Event()
    cleaned: list[bool] = []

    @tool(effect="read", register=False)
    async def slow() -> None:
        """Wait."""
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append(True)

    codes: list[str] = []
    with trio.fail_after(5):
        async with App("shop").add(slow).open() as engine, trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises(AgentError) as caught:
                    await engine.call(slow)
                codes.append(caught.value.code)

            nursery.start_soon(call)
            await began.wait()
            (summary,) = [engine.lookup(one) for one in engine._pipeline.inflight._running]
            assert summary is not None
            assert engine.cancel(summary.execution_id)
    assert (codes, cleaned) == (["CANCELLED"], [True])


async def test_a_call_of_ones_own_code_gives_the_value() -> None:
    """The same calls, typed, from the program itself."""
    inventory = InventoryTools({"AB-12": 7})
    async with App("shop").add(inventory).open() as engine:
        assert await engine.call(inventory.lookup, sku="AB-12") == 7


def test_the_manifest_has_what_a_model_needs() -> None:
    """Name, description and the schema of the arguments; context and object are not among them."""
    (lookup, reserve) = ToolRegistry().register(InventoryTools({})).manifest()
    assert (lookup["name"], lookup["description"]) == ("inventory.lookup", "Units in stock for a SKU.")
    assert list(lookup["parameters"]["properties"]) == ["sku", "warehouse"]
    assert lookup["parameters"]["required"] == ["sku"]
    assert list(reserve["parameters"]["properties"]) == ["sku", "count"]
