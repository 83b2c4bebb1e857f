"""A thread with something left to say, when nobody listens any more."""

from __future__ import annotations

import trio

from carmy_engine import (
    AgentContext,
    ExecutionCompleted,
    ExecutionRequest,
    ToolProgress,
    ToolStarted,
    open_engine,
    tool,
)
from carmy_engine.testing import compile_tool


@tool(effect="read")
def floods(ctx: AgentContext) -> str:
    for _ in range(20):
        ctx.progress.partial_from_thread("x" * 500_000)
    return "finished"


async def test_a_thread_does_not_wait_for_a_reader_that_left() -> None:
    """A part of a result that waits for its reader is dropped with the reader, so the thread and the turn become free."""
    with trio.fail_after(30):
        async with open_engine([compile_tool(floods, {})]) as engine:
            async with engine.stream(ExecutionRequest(tool="floods")) as events:
                async for event in events:
                    if isinstance(event, ToolProgress):
                        break
            # Calls to this tool take turns, and the thread keeps the turn until it ends.
            assert (await engine.execute(ExecutionRequest(tool="floods"))).unwrap() == "finished"
            assert engine.statistics().stuck_threads == 0


async def test_a_thread_does_not_wait_for_a_reader_after_the_deadline() -> None:
    """A slow reader gets the last event after the deadline and nothing behind it, and holds no thread."""
    with trio.fail_after(30):
        async with open_engine([compile_tool(floods, {})]) as engine:
            async with engine.stream(ExecutionRequest(tool="floods", timeout_ms=200)) as events:
                while not isinstance(await events.receive(), ToolStarted):
                    pass
                assert (await engine.execute(ExecutionRequest(tool="floods"))).unwrap() == "finished"
                seen = [event async for event in events]
            assert isinstance(seen[-1], ExecutionCompleted)
            assert seen[-1].result.status == "timed_out"
