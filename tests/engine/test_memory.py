"""What an engine keeps is bounded, and what it no longer needs is let go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import trio
import trio.testing

from carmy_engine import AgentContext, AgentError, App, LimitSettings, Settings
from tests.engine.kit import bench, read, request


async def test_recent_executions_are_bounded_by_number():
    """The newest executions can be looked up; older ones are forgotten."""
    async with bench(settings=Settings(limits=LimitSettings(max_recent=30))) as b:
        ids = [(await b.call("echo", {"text": "a"})).execution_id for _ in range(40)]
        assert b.engine.lookup(ids[0]) is None
        assert b.engine.lookup(ids[9]) is None
        assert b.engine.lookup(ids[10]) is not None
        assert len(b.engine._pipeline.inflight._recent) == 30


async def test_recent_outputs_are_bounded_by_bytes():
    """Large outputs make the oldest executions be forgotten earlier; those that are remembered have their result."""
    async with bench(settings=Settings(limits=LimitSettings(max_recent_bytes=4096))) as b:
        ids = [(await b.call("echo", {"text": "x" * 1024})).execution_id for _ in range(6)]
        found = [b.engine.lookup(execution_id) for execution_id in ids]
        assert [summary is not None for summary in found] == [False, False, False, True, True, True]
        assert all(summary is None or summary.result is not None for summary in found)
        assert b.engine._pipeline.inflight._recent_bytes <= 4096


async def test_a_finished_tool_is_let_go():
    """After its end nothing of the engine refers to what a tool's call held."""

    class Big:
        pass

    kept = []

    @read
    async def holds() -> None:
        big = Big()
        kept.append(weakref.ref(big))
        await trio.lowlevel.checkpoint()

    async with bench(holds) as b:
        await b.call("holds")
        async with b.engine.stream(request("holds")) as channel:
            async for _ in channel:
                pass
        gc.collect()
        assert [ref() for ref in kept] == [None, None]


async def test_audit_records_are_bounded():
    """The engine's own memory of records keeps the newest, newest first."""
    async with bench(settings=Settings(limits=LimitSettings(max_audit_records=10))) as b:
        for _ in range(15):
            await b.call("nobody")
        assert len(b.engine.audit.newest()) == 10
        last = await b.call("read")
        assert b.engine.audit.newest(1)[0].execution_id == last.execution_id


class Big(list[int]):
    """A value that a weak reference can follow."""


async def test_a_finished_thread_is_let_go():
    """An execution that is kept for lookups holds neither the arguments nor the result or the error of its thread."""
    kept: list[weakref.ref[Big]] = []

    @read
    def returns(n: list[int]) -> list[int]:
        big = Big(n)
        kept.append(weakref.ref(big))
        return big

    @read
    def fails(n: list[int]) -> None:
        big = Big(n)
        kept.append(weakref.ref(big))
        raise AgentError("BUSY", "m", "conflict")  # pytest keeps whatever is logged

    async with bench(returns, fails) as b:
        result = await b.call("returns", {"n": [1]})
        await b.call("fails", {"n": [1]})
        gc.collect()
        assert b.engine.lookup(result.execution_id) is not None
        assert [ref() for ref in kept] == [None, None]


async def test_long_arguments_are_let_go_without_garbage_collection():
    """Nothing of a call refers to itself: its arguments and its output are free as soon as it has ended."""

    @read
    def sums(n: Any) -> Any:
        return n

    async with bench(sums) as b:
        await b.call("sums", {"n": [1]})
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            await b.call("sums", {"n": [[]] * 200_000})
            assert len(gc.get_objects()) - before < 10_000
        finally:
            gc.enable()


async def test_output_budget_of_the_settings():
    """An output has the smaller of the tool's own limit and that of the settings."""
    app = App("test", settings=Settings(limits=LimitSettings(max_output_bytes=100)))

    @app.tool(effect="none", parallel_safe=True)
    async def large(size: int) -> str:
        """Return a text."""
        return "x" * size

    async with app.open() as engine:
        assert (await engine.execute(request("large", {"size": 98}))).data == "x" * 98
        refused = await engine.execute(request("large", {"size": 99}))
    assert refused.error is not None
    assert refused.error.code == "OUTPUT_TOO_LARGE"


async def test_event_budget_of_the_settings():
    """A tool waits once its parts that nothing reads have the bytes of the settings."""
    sent: list[int] = []

    @read
    async def eager(ctx: AgentContext) -> None:
        for number in range(5):
            await ctx.progress.partial("x" * 100)
            sent.append(number)

    async with (
        bench(eager, settings=Settings(limits=LimitSettings(max_event_bytes=800))) as b,
        b.engine.stream(request("eager")) as channel,
    ):
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 2
        assert len([event async for event in channel]) == 9
