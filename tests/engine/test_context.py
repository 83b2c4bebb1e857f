"""What a running tool can ask of its execution."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import AgentContext, AgentError, Cause
from tests.engine.kit import bench, code, read, told

CAUSES = ["deadline", "caller", "leave", "disconnect", "operator", "shutdown"]


@pytest.mark.parametrize("how", CAUSES)
async def test_clean_up_sees_the_cause(how, mock_clock):
    """In its clean-up a tool can ask why it was stopped, and a task that waits for the cancel is woken."""
    seen: list[object] = []

    @read
    async def curious(ctx: AgentContext, gate: str) -> None:
        seen.append(ctx.cancellation.cancelled)
        try:
            await b.stage.pass_gate(gate)
        finally:
            seen.append(ctx.cancellation.cause)
            seen.append(await ctx.cancellation.wait())
            with pytest.raises(AgentError, match="CANCELLED"):
                ctx.cancellation.check()

    async with bench(curious) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        on = b.of(gone=Cause.DISCONNECT) if how == "disconnect" else b
        call = on.start(nursery, "curious", {"gate": gate})
        await b.arrived(gate)
        if how == "deadline":
            mock_clock.jump(31)
        elif how in ("leave", "disconnect"):
            await call.leave()
        elif how == "shutdown":
            await b.engine.shut_down(0)
        else:
            b.engine.cancel(b.running_id("curious"), Cause(how))
        await call.done.wait()
    cause = {"leave": "caller"}.get(how, how)
    assert seen == [False, cause, cause]


async def test_a_finished_execution_was_not_cancelled():
    """After a success the handle states that nothing was cancelled."""
    kept: list[AgentContext] = []

    @read
    async def keep(ctx: AgentContext) -> None:
        kept.append(ctx)
        ctx.cancellation.check()

    async with bench(keep) as b:
        await b.call("keep")
    assert not kept[0].cancellation.cancelled
    assert kept[0].cancellation.cause is None


async def test_a_helper_task_can_wait_for_the_cancel():
    """A task of the tool that waits for the cancellation is woken by it with the cause."""
    seen = []

    @read
    async def helped(ctx: AgentContext) -> None:
        async def watch() -> None:
            with trio.CancelScope(shield=True):
                seen.append(await ctx.cancellation.wait())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.sleep_forever()

    async with bench(helped) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "helped")
        await wait_all_tasks_blocked()
        b.engine.cancel(b.running_id("helped"), Cause.OPERATOR)
        assert code(await call.wait()) == "CANCELLED"
    assert seen == [Cause.OPERATOR]


async def test_the_first_cause_counts(mock_clock):
    """The first cancel is the cause, also if the deadline passes before the tool has noticed."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "write", {"then": "wait", "gate": gate}, timeout_ms=1000)
        await b.arrived(gate)
        b.engine.cancel(b.running_id("write"))
        mock_clock.jump(2)
        result = await call.wait()
    assert code(result) == "CANCELLED"
    assert told(result)["cause"] == "caller"


async def test_records_come_before_the_last_event():
    """When a listener sees the end, the sinks have the record."""
    async with bench() as b, b.engine.stream(b.request("read")) as channel:
        async for event in channel:
            if event.kind == "execution.completed":
                assert len(b.sink) == 1
                break


async def test_the_context_cannot_be_changed():
    """The context of a tool is frozen."""

    @read
    async def rude(ctx: AgentContext) -> None:
        ctx.principal = "root"  # type: ignore[misc]

    async with bench(rude) as b:
        assert await b.code("rude") == "TOOL_PANIC"
