"""Calls that run in the task that has read them."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import App, tool
from carmy_frames.driver import serve_channel
from carmy_frames.driver._inline_call import run_inline
from tests.wire.pair import channel_pair

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


@pytest.mark.parametrize("waits", [0, 1, 3])
async def test_a_context_of_its_own(waits: int) -> None:
    """What a call sets, it sees until its end, and no caller sees it afterwards."""
    seen: list[str] = []
    told: list[int] = []

    async def call() -> None:
        NAME.set("call")
        for _ in range(waits):
            await trio.lowlevel.checkpoint()
        seen.append(NAME.get())

    task = trio.lowlevel.current_task()
    context = task.context
    for _ in range(2):
        assert await run_inline(call(), copy_context(), lambda: told.append(1)) == (waits > 0)
        await trio.lowlevel.checkpoint()
        assert task.context is context
        assert NAME.get() == "nobody"
    assert seen == ["call", "call"]
    assert len(told) == (2 if waits else 0)


@pytest.mark.parametrize("waits", [False, True])
async def test_exceptions_come_out(waits: bool) -> None:
    """An exception of the call is one of the task, and leaves the task's context as it was."""

    async def call() -> None:
        if waits:
            await trio.lowlevel.checkpoint()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await run_inline(call(), copy_context(), lambda: None)
    await trio.lowlevel.checkpoint()
    assert NAME.get() == "nobody"


async def test_cancelled() -> None:
    """A scope inside the call, and one round it, end what they should, whenever they are cancelled."""
    reached: list[str] = []

    async def call(scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep_forever()
        reached.append("behind the inner scope")
        await trio.sleep_forever()

    inner, outer = trio.CancelScope(), trio.CancelScope()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_in_turn, inner, outer)
            with outer:
                await run_inline(call(inner), copy_context(), lambda: reached.append("waits"))
    assert outer.cancelled_caught
    assert reached == ["waits", "behind the inner scope"]


async def _cancel_in_turn(*scopes: trio.CancelScope) -> None:
    for scope in scopes:
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()


async def test_calls_of_one_connection() -> None:
    """What a tool sets in its context is gone for the next call on the same connection, whether it waits or not."""

    @tool(effect="none", parallel_safe=True, register=False)
    async def visit(name: str, waits: bool) -> str:
        """Say who was here before."""
        before = NAME.get()
        NAME.set(name)
        if waits:
            await trio.lowlevel.checkpoint()
        return f"{before}, {NAME.get()}"

    async with App("test").add(visit).open() as engine, trio.open_nursery() as nursery:
        ours, theirs = channel_pair(100)

        async def serve() -> None:
            await serve_channel(engine.bind(), theirs, server="test", stopped=engine.stopped, drain_seconds=1.0)

        nursery.start_soon(serve)
        with trio.fail_after(10):
            await ours.receive()
            for number in range(6):
                arguments = {"name": f"n{number}", "waits": number % 3 == 1}
                await ours.send(
                    msgspec.json.encode({"id": number, "op": "call", "tool": "visit", "arguments": arguments})
                )
            found = {}
            for _ in range(6):
                answer = msgspec.json.decode(await ours.receive())
                found[answer["id"]] = answer["result"]["data"]
        assert found == {number: f"nobody, n{number}" for number in range(6)}
        nursery.cancel_scope.cancel()
