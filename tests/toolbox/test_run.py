"""The caller's run: what tools, records and nobody else see of it."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from carmy_engine import AgentContext, App, ExecutionRequest, RunContext, tool
from tests.toolbox.inventory import InventoryTools

RUN = RunContext(
    thread_id="order-1001",
    run_id="run-7",
    node_path="fulfil/reserve",
    attempt=2,
    metadata={"tenant": "acme"},
    caller_id="support-agent",
    services={"ledger": []},
)


@tool(effect="none", register=False)
async def whoami(ctx: AgentContext) -> dict[str, Any]:
    """Tell where the call comes from."""
    ctx.services["ledger"].append(ctx.execution_id)
    return {
        "thread_id": ctx.thread_id,
        "run_id": ctx.run_id,
        "node_path": ctx.node_path,
        "attempt": ctx.attempt,
        "caller_id": ctx.caller_id,
        "call_id": ctx.call_id,
        "metadata": dict(ctx.metadata),
        "principal": ctx.principal,
    }


async def test_a_tool_reads_the_run_from_its_context() -> None:
    """Ids, metadata and services of the bound run reach the tool; without a model's call id there is the execution's."""
    async with App("shop").add(whoami).open() as engine:
        bound = engine.bind(principal="ana", metadata={"tenant": "none", "region": "eu"}).bind(run=RUN)
        result = await bound.execute(ExecutionRequest(tool="whoami"))
    assert result.unwrap() == {
        "thread_id": "order-1001",
        "run_id": "run-7",
        "node_path": "fulfil/reserve",
        "attempt": 2,
        "caller_id": "support-agent",
        "call_id": result.execution_id,
        "metadata": {"tenant": "acme", "region": "eu"},
        "principal": "ana",
    }
    assert RUN.services["ledger"][-1] == result.execution_id


async def test_outside_a_run_there_is_nothing_to_read() -> None:
    """Called without a run, a tool finds every field of it empty."""

    @tool(effect="none", register=False)
    async def look(ctx: AgentContext) -> list[Any]:
        """Look."""
        return [
            ctx.thread_id,
            ctx.run_id,
            ctx.node_path,
            ctx.attempt,
            ctx.caller_id,
            {**ctx.metadata},
            {**ctx.services},
        ]

    async with App("shop").add(look).open() as engine:
        assert await engine.call(look) == [None, None, None, None, None, {}, {}]


async def test_records_carry_the_run() -> None:
    """The audit record of a call, and of a refusal, has the ids of the run, and neither its metadata nor its services."""
    async with App("shop").add(whoami).open() as engine:
        bound = engine.bind(run=RUN)
        await bound.execute(ExecutionRequest(tool="whoami"))
        await bound.execute(ExecutionRequest(tool="unknown"))
        records = [msgspec.structs.asdict(record) for record in engine.audit.newest()]
    assert len(records) == 2
    for record in records:
        assert {name: record[name] for name in ("thread_id", "run_id", "node_path", "attempt", "caller_id")} == {
            "thread_id": "order-1001",
            "run_id": "run-7",
            "node_path": "fulfil/reserve",
            "attempt": 2,
            "caller_id": "support-agent",
        }
        assert record["call_id"] is None
        assert not {"metadata", "services"} & record.keys()


async def test_a_later_run_takes_the_place_of_an_earlier_one() -> None:
    """Binding another run changes all of its ids, and leaves principal and permissions alone."""
    async with App("shop").add(whoami).open() as engine:
        bound = engine.bind(principal="ana", permissions={"p"}, run=RUN).bind(run=RunContext(run_id="run-8"))
    assert (bound.context.run_id, bound.context.thread_id, bound.context.attempt) == ("run-8", None, None)
    assert (bound.context.principal, bound.context.permissions) == ("ana", {"p"})


async def test_cancelled_before_the_call_the_tool_does_not_run() -> None:
    """In a scope that is cancelled already nothing of the tool runs, and the cancel goes on its way."""
    stock = {"AB-12": 7}
    async with App("shop").add(InventoryTools(stock)).open() as engine:
        with trio.CancelScope() as scope:
            scope.cancel()
            await engine.execute(ExecutionRequest(tool="inventory.reserve", arguments={"sku": "AB-12", "count": 2}))
        assert scope.cancelled_caught
        (record,) = engine.audit.newest()
    assert stock == {"AB-12": 7}
    assert (record.status, record.cause) == ("cancelled", "caller")


async def test_cancelled_during_the_call_the_tool_gives_in_at_its_next_wait() -> None:
    """A cancel of the caller's scope reaches the tool where it waits; its clean-up runs."""
    began, ended = trio.Event(), trio.Event()

    @tool(effect="write", register=False)
    async def slow() -> None:
        """Wait for ever."""
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    with trio.fail_after(5):
        async with App("shop").add(slow).open() as engine, trio.open_nursery() as nursery:
            nursery.start_soon(engine.bind(run=RUN).execute, ExecutionRequest(tool="slow"))
            await began.wait()
            nursery.cancel_scope.cancel()
    assert ended.is_set()
