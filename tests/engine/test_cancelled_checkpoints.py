"""Cancels that find a tool running, not blocked: at its next await it must be told, whatever it awaits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.lowlevel

from carmy_engine import Cause, ExecutionRequest, MemorySink, open_engine, tool
from carmy_engine.testing import compile_tool


async def own_scope() -> None:
    with trio.move_on_after(1000):
        await trio.lowlevel.checkpoint()


async def shielded_first() -> None:
    await trio.lowlevel.cancel_shielded_checkpoint()
    await trio.lowlevel.checkpoint()


async def in_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)


async def sleep() -> None:
    await trio.lowlevel.checkpoint()


AWAITS: dict[str, Callable[[], Awaitable[object]]] = {
    "checkpoint": trio.lowlevel.checkpoint,
    "checkpoint_if_cancelled": trio.lowlevel.checkpoint_if_cancelled,
    "sleep": sleep,
    "own scope": own_scope,
    "shielded first": shielded_first,
    "nursery": in_nursery,
}


@pytest.mark.parametrize("name", AWAITS)
async def test_a_running_tool_meets_the_cancel_at_its_next_await(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A tool that cancels its own execution, and then awaits anything, stops there; its clean-up may await."""
    cleaned: list[str] = []
    went_on: list[str] = []
    outer = trio.CancelScope()

    @tool(effect="none", parallel_safe=True, register=False)
    async def run() -> None:
        outer.cancel()
        try:
            await AWAITS[name]()
            if name == "nursery":  # a nursery whose children end in the same step may not notice; the next await does
                await trio.lowlevel.checkpoint()
            went_on.append(name)
        finally:
            await trio.sleep(0.5)
            cleaned.append(name)

    records = MemorySink()
    async with open_engine([compile_tool(run, {})], sinks=[records]) as engine:
        started = trio.current_time()
        with outer:
            await engine.bind(gone=Cause.DISCONNECT).execute(ExecutionRequest(tool="run"))
        assert outer.cancelled_caught
        assert (went_on, cleaned) == ([], [name])
        assert trio.current_time() - started == pytest.approx(0.5)
        (record,) = records.newest()
        assert (record.error_code, record.cause) == ("CANCELLED", Cause.DISCONNECT)
