"""Tools that call tools: each call is an execution of its own, and a cancel goes through all of them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, ExecutionCompleted
from tests.engine.kit import bench, code, read, request, told


@pytest.mark.parametrize("way", ["execute", "stream"])
@pytest.mark.parametrize("how", ["deadline", "cancel outer", "cancel inner", "leave"])
async def test_a_cancel_reaches_the_inner_call(way, how, mock_clock):
    """Cancelling the outer call cancels the inner one, for which it is its caller that went away."""
    seen: list[Any] = []
    inner = request("write", {"tag": "t", "then": "wait_and_clean_up", "gate": "inner"}, request_id="inner")

    @read
    async def outer(ctx: AgentContext) -> str:
        try:
            if way == "execute":
                seen.append(code(await b.engine.execute(inner)))
            else:
                async with b.engine.stream(inner) as events:
                    seen.extend([code(e.result) async for e in events if isinstance(e, ExecutionCompleted)])
            return "went on"
        finally:
            await trio.lowlevel.checkpoint()
            seen.append("cleaned")

    async with bench(outer) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "outer", request_id="outer", timeout_ms=1000)
        await b.arrived("inner")
        if how == "deadline":
            mock_clock.jump(2)  # the outer one's; the inner call could go on
        elif how == "leave":
            await call.leave()
        else:
            b.engine.cancel(b.running_id("outer" if how == "cancel outer" else "write"))
        await call.done.wait()
        assert await b.effects("t:cleaned") == 1
        records = {record.tool: record for record in b.sink}
        assert len(b.sink) == 2
        assert b.running == 0
        if how == "cancel inner":
            assert call.result.data == "went on"
            assert seen == ["CANCELLED", "cleaned"]
            assert await b.state("inner") == "completed"
        else:
            assert records["write"].cause == "caller"
            assert await b.state("inner") == "interrupted"
            assert seen == ["cleaned"]
            assert records["outer"].error_code == ("TIMEOUT" if how == "deadline" else "CANCELLED")
        assert await b.state("outer") == ("completed" if how == "cancel inner" else "free")


async def test_a_tool_can_call_itself(autojump_clock):
    """Calls of calls have executions of their own; a serial tool that calls itself waits for itself until its deadline."""
    from carmy_engine import tool

    @tool(effect="read", register=False)
    async def serial(depth: int) -> int:
        if depth:
            result = await b.engine.execute(request("serial", {"depth": depth - 1}, timeout_ms=1000))
            return -1 if result.error is not None and told(result)["phase"] == "waiting" else 0
        return depth

    @read
    async def deep(depth: int) -> int:
        return 0 if not depth else 1 + (await b.engine.execute(request("deep", {"depth": depth - 1}))).unwrap()

    async with bench(serial, deep) as b:
        assert (await b.call("deep", {"depth": 20})).data == 20
        assert len(b.sink) == 21
        assert (await b.call("serial", {"depth": 1})).data == -1


async def test_the_error_of_an_inner_call_can_be_passed_on():
    """A tool that unwraps the result of another one fails with its error."""

    @read
    async def outer() -> None:
        (await b.engine.execute(request("write", {"then": "error"}))).unwrap()

    async with bench(outer) as b:
        result = await b.call("outer")
    assert code(result) == "OUT_OF_STOCK"
    assert told(result) == {"left": 0}
