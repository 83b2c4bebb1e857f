"""Everything at once: streams, threads, turns, deadlines, cancels and callers that leave, with the invariants of every call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, ExecutionCompleted, Settings
from carmy_engine.abc import ReservationState
from tests.engine.kit import bench, read, request

CALLS = 300
NAMES = [
    "read",
    "write",
    "serial_write",
    "thread_write",
    "thread_read",
    "serial_thread_write",
    "chatty",
    "thread_chatty",
]
ENDINGS = ["return", "wait", "wait_and_clean_up", "error", "retryable", "crash", "invalid_output"]
ORDER = ["execution.started", "tool.waiting", "tool.started", "tool.progress", "tool.completed", "execution.completed"]


@read
async def chatty(ctx: AgentContext, tag: str, then: str, gate: str) -> None:
    for step in range(20):
        ctx.progress.report(step)
        await ctx.progress.partial("x" * 20_000)


@read
def thread_chatty(ctx: AgentContext, tag: str, then: str, gate: str) -> None:
    for step in range(20):
        ctx.progress.report(step)
        ctx.progress.partial_from_thread("x" * 20_000)
        ctx.cancellation.check()


def check_events(events, *, whole: bool) -> None:
    """Numbered without a gap, in the order of the contract, and (if it was read to its end) with an end."""
    assert [event.seq for event in events] == list(range(len(events)))
    places = [ORDER.index(event.kind) for event in events]
    assert places == sorted(places)
    for kind in ORDER:
        assert kind == "tool.progress" or [event.kind for event in events].count(kind) <= 1
    if whole:
        assert isinstance(events[-1], ExecutionCompleted)
        assert ("tool.started" in [e.kind for e in events]) == ("tool.completed" in [e.kind for e in events])


@pytest.mark.parametrize("seed", range(3))
async def test_storm(seed, caplog):
    """Whatever happens to it, a call has events in order, at most one effect, one record, and leaves nothing running."""
    caplog.set_level("CRITICAL", "carmy")
    dice = random.Random(seed)
    async with bench(chatty, thread_chatty, settings=Settings(max_executions=CALLS)) as b:
        answers = {}

        async def call(number: int, name: str, then: str, timeout_ms: float, steps: int, way: str) -> None:
            arguments = {"tag": str(number), "then": then, "gate": "storm"}
            wanted = request(name, arguments, request_id=f"r{number}", timeout_ms=timeout_ms)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    if way == "leave":
                        nursery.start_soon(leave, scope, steps)
                    elif way == "cancel":
                        nursery.start_soon(cancel, number, steps)
                    if dice.random() < 0.5:
                        events: list[Any] = []
                        try:
                            async with b.engine.stream(wanted) as channel:
                                async for event in channel:
                                    events.append(event)  # noqa: PERF401 - what was read counts if it is cut off
                                answers[number] = events[-1].result
                        finally:
                            check_events(events, whole=number in answers)
                    else:
                        answers[number] = await b.engine.execute(wanted)
                    nursery.cancel_scope.cancel()

        async def leave(scope: trio.CancelScope, steps: int) -> None:
            await pause(steps)
            scope.cancel()

        async def cancel(number: int, steps: int) -> None:
            await pause(steps)
            for execution in b.engine._pipeline.inflight.running():
                if execution.request_id == f"r{number}":
                    b.engine.cancel(execution.id)

        async def pause(steps: int) -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_later, b, nursery)
            for number in range(CALLS):
                name, then = dice.choice(NAMES), dice.choice(ENDINGS)
                if name.startswith("thread") and then == "wait_and_clean_up":
                    then = "wait"
                way = dice.choice(["stay", "leave", "cancel"])
                nursery.start_soon(call, number, name, then, dice.choice([1, 5, 20, 50]), dice.randrange(60), way)
                if dice.random() < 0.3:
                    await trio.lowlevel.checkpoint()
        while b.engine.statistics().stuck_threads or any([await b.state(f"r{n}") == "running" for n in range(CALLS)]):
            await trio.lowlevel.checkpoint()
        assert b.running == 0
        assert len(b.sink) == CALLS
        by_id = {record.request_id: record for record in b.sink}
        assert len(by_id) == CALLS
        for number in range(CALLS):
            record, entry = by_id[f"r{number}"], await b.entry(f"r{number}")
            assert await b.effects(str(number)) <= 1
            if number in answers:
                assert answers[number].execution_id == record.execution_id
                assert answers[number].status == record.status
            if entry is not None and entry.state is ReservationState.COMPLETED:
                assert entry.outcome is not None
                assert (entry.outcome.error is None) == (record.status == "completed")
            if entry is None and "write" in record.tool:
                error = record.error_code
                assert error in ("TRY_LATER", "TOOL_BUSY", "OVERLOADED") or await b.effects(str(number)) == 0


async def open_later(b, nursery: trio.Nursery) -> None:
    """Open the gate when few calls are left, so that threads end before, at and after their deadlines."""
    await trio.sleep(0.01)
    b.stage.open("storm")
