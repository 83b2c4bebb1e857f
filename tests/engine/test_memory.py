"""What an engine keeps is bounded, and what it no longer needs is let go."""

from __future__ import annotations

import gc
import weakref

import trio

from carmy_engine._execution.inflight import RECENT_BYTES, RECENT_EXECUTIONS
from tests.engine.kit import bench, read, request


async def test_recent_executions_are_bounded_by_number():
    """The newest executions can be looked up; older ones are forgotten."""
    async with bench() as b:
        ids = [(await b.call("echo", {"text": "a"})).execution_id for _ in range(RECENT_EXECUTIONS + 10)]
        assert b.engine.lookup(ids[0]) is None
        assert b.engine.lookup(ids[9]) is None
        assert b.engine.lookup(ids[10]) is not None
        assert len(b.engine._pipeline.inflight._recent) == RECENT_EXECUTIONS


async def test_recent_outputs_are_bounded_by_bytes():
    """Large outputs make the oldest executions be forgotten earlier; those that are remembered have their result."""
    size = RECENT_BYTES // 4
    async with bench() as b:
        ids = [(await b.call("echo", {"text": "x" * 1024, "times": size // 1024})).execution_id for _ in range(6)]
        found = [b.engine.lookup(execution_id) for execution_id in ids]
        assert [summary is not None for summary in found] == [False, False, False, True, True, True]
        assert all(summary is None or summary.result is not None for summary in found)
        assert b.engine._pipeline.inflight._recent_bytes <= RECENT_BYTES


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
    from carmy_engine._execution.sinks import MEMORY_RECORDS

    async with bench() as b:
        for _ in range(MEMORY_RECORDS + 5):
            await b.call("nobody")
        assert len(b.engine.audit.newest()) == MEMORY_RECORDS
        last = await b.call("read")
        assert b.engine.audit.newest(1)[0].execution_id == last.execution_id
