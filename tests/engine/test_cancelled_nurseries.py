"""A cancel reaches tools that are built of nurseries, and is not lost on the way out."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from carmy_engine import ExecutionRequest, open_engine, tool
from carmy_engine.testing import compile_tool

reached: list[str] = []


@tool(effect="read")
async def waits_for_children() -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
    reached.append("went on")
    return "finished"


@tool(effect="read")
async def waits_beside_children() -> str:
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        outer.start_soon(trio.sleep_forever)
        inner.start_soon(trio.sleep_forever)
        await trio.sleep_forever()
    reached.append("went on")
    return "finished"


@tool(effect="read")
async def cleans_up_after_children() -> str:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
    finally:
        await trio.sleep(0.5)
        await trio.lowlevel.checkpoint()
        reached.append("cleaned")
    reached.append("went on")
    return "finished"


@tool(effect="read")
async def only_checkpoints() -> str:
    while True:
        await trio.lowlevel.checkpoint()
        trio.lowlevel.current_clock().jump(0.25)  # type: ignore[attr-defined] # the tests' own clock


@pytest.mark.parametrize(
    ("function", "left"),
    [(waits_for_children, []), (waits_beside_children, []), (cleans_up_after_children, ["cleaned"])],
)
@pytest.mark.parametrize("how", ["deadline", "by id", "scope"])
async def test_a_nursery_does_not_swallow_the_cancel(
    autojump_clock: object, function: object, left: list[str], how: str
) -> None:
    """However a tool is cancelled, nothing behind its nursery runs, its clean-up gets its grace, and it does not complete."""
    reached.clear()
    compiled = compile_tool(function, {})
    status = None
    async with open_engine([compiled]) as engine:
        request = ExecutionRequest(tool=compiled.spec.name)
        with trio.move_on_after(5 if how == "scope" else 1000) as scope:
            async with engine.stream(request) as events:
                execution_id = (await events.receive()).execution_id
                if how == "by id":
                    await trio.testing.wait_all_tasks_blocked()
                    assert engine.cancel(execution_id)
                async for event in events:
                    status = getattr(event, "result", None)
    assert scope.cancelled_caught is (how == "scope")
    assert reached == left
    if how != "scope":
        assert status is not None
        assert status.status == ("timed_out" if how == "deadline" else "cancelled")


async def test_a_tool_that_only_checkpoints_is_cancelled(mock_clock: trio.testing.MockClock) -> None:
    """A checkpoint that is not a wait delivers the cancel too, at once and not after the grace."""
    async with open_engine([compile_tool(only_checkpoints, {})]) as engine:
        result = await engine.execute(ExecutionRequest(tool="only_checkpoints", timeout_ms=1000))
        assert result.status == "timed_out"
        assert trio.current_time() == 1.0
