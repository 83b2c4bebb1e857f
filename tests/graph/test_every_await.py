"""Runs that are cut off at every await, one after the other, and what resuming them gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from carmy_engine import App, Cause, Engine, tool
from carmy_engine.abc import Outcome, ReservationState
from carmy_engine.graph import BoundGraph, Doubt, RunResult, RunStatus
from carmy_engine.stores.memory import MemoryStore
from tests.graph.victim import THREAD, Order, graph_of

MOST_STEPS = 1000
"""Steps of one run; none here has nearly so many."""

STRIDE = 4
"""Every fourth await by default; ``--long`` takes all of them."""

WHOLE = Order(
    reserved="did reserve", charged="did charge", approved_by="ana", shipped="did ship, did label", log=("planned",)
)

Cut = Callable[[BoundGraph[Order], trio.CancelScope], object]


def by_the_caller(bound: BoundGraph[Order], scope: trio.CancelScope) -> None:
    """The scope around `run` is cancelled."""
    scope.cancel()


def by_a_shutdown(bound: BoundGraph[Order], scope: trio.CancelScope) -> None:
    """The run is cancelled, as a program does that is about to end."""
    bound.cancel(THREAD, Cause.SHUTDOWN)


class WaitingStore(MemoryStore):
    """A store in memory that waits before and after every operation, as one on a disk does."""

    never_waits = False

    async def reserve(self, reservation: Any) -> Any:
        """Wait, reserve, and wait."""
        await trio.lowlevel.checkpoint()
        found = await super().reserve(reservation)
        await trio.lowlevel.checkpoint()
        return found

    async def complete(self, identity: Any, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        """Wait, and complete."""
        await trio.lowlevel.checkpoint()
        return await super().complete(identity, execution_id, outcome, finished_at)

    async def save_checkpoint(self, checkpoint: Any) -> bool:
        """Wait, save, and wait: a cancel may come when it is saved."""
        await trio.lowlevel.checkpoint()
        saved = await super().save_checkpoint(checkpoint)
        await trio.lowlevel.checkpoint()
        return saved


class CutAt(trio.abc.Instrument):
    """Calls a function before a step of the event loop.

    Attributes:
        fired: It came to that.
    """

    def __init__(self, step: int, cut: Callable[[], object]) -> None:
        self.left = step
        self.cut = cut
        self.fired = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self.left -= 1
        if self.left == 0:
            self.fired = True
            self.cut()


class Tools:
    """Three writes with an await on both sides of their effect; no one of them can find out what has happened."""

    def __init__(self) -> None:
        self.effects: list[str] = []

    def made(self) -> list[Any]:
        """The tools."""

        def write(name: str) -> Any:
            @tool(effect="write", name=name, register=False)
            async def effect(word: str) -> str:
                """Have an effect."""
                await trio.lowlevel.checkpoint()
                self.effects.append(word)
                await trio.lowlevel.checkpoint()
                return f"did {word}"

            return effect

        return [write(name) for name in ("reserve", "charge", "ship")]


async def settle(engine: Engine, doubt: Doubt, effects: list[str]) -> None:
    """What an operator does: look for the effect, and settle the execution."""
    store = engine.checkpoints
    assert isinstance(store, MemoryStore)
    entry = next(
        each
        for each in await store.entries(state=ReservationState.INTERRUPTED)
        if each.execution_id == doubt.execution_id
    )
    assert (entry.tool, entry.identity.request_id) == (doubt.tool, doubt.request_id)
    word = "label" if doubt.tool == "ship" and doubt.request_id.endswith("/2") else doubt.tool
    if word in effects:
        outcome = Outcome(execution_id=entry.execution_id, data_json=msgspec.json.encode(f"did {word}"))
        assert await store.complete(entry.identity, entry.execution_id, outcome, time.time())
    else:
        assert await store.release(entry.identity, entry.execution_id)


async def followed(bound: BoundGraph[Order]) -> RunResult[Order]:
    """Start the run or resume it, and answer its question."""
    if await bound.history(THREAD, limit=1):
        run = await bound.resume(THREAD)
    else:
        run = await bound.run(THREAD, Order())
    return await bound.resume(THREAD, answer="ana") if run.questions else run


@pytest.mark.parametrize("cut", [by_the_caller, by_a_shutdown])
@pytest.mark.parametrize("store", [MemoryStore, WaitingStore])
async def test_cut_off_at_every_await(cut: Cut, store: type[MemoryStore], request: pytest.FixtureRequest) -> None:
    """Wherever a run is cut off: no task goes on, and resuming it gives the same state, with each effect once."""
    doubted: set[str] = set()
    stride = 1 if request.config.getoption("--long") else STRIDE
    for step in range(1, MOST_STEPS, stride):
        tools = Tools()
        made = tools.made()
        async with App("shop").add(*made).store(store()).open() as engine:
            bound = graph_of(made).bind(engine)
            living = trio.lowlevel.current_statistics().tasks_living
            scope = trio.CancelScope()
            cutter = CutAt(step, partial(cut, bound, scope))
            with scope:
                trio.lowlevel.add_instrument(cutter)
                try:
                    await followed(bound)
                finally:
                    trio.lowlevel.remove_instrument(cutter)
            assert trio.lowlevel.current_statistics().tasks_living == living, step
            assert engine.statistics().running == 0, step
            run = await followed(bound)
            while run.status is RunStatus.IN_DOUBT:
                for doubt in run.doubts:
                    doubted.add(doubt.tool)
                    await settle(engine, doubt, tools.effects)
                run = await followed(bound)
        assert (run.status, run.state) == (RunStatus.COMPLETED, WHOLE), step
        assert sorted(tools.effects) == ["charge", "label", "reserve", "ship"], step
        if not cutter.fired:
            break
    else:
        raise AssertionError("the run has more steps than were tried")
    assert doubted == {"reserve", "charge", "ship"} if stride == 1 else doubted
