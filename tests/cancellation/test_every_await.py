"""Cancel at every await of a call, one after the other, and look at what is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine import Cause, ExecutionRequest
from carmy_engine.abc import ReservationState
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import SqliteStore
from tests.engine.kit import Bench, bench, request

MOST_STEPS = 300
"""Steps of one call; none here has nearly so many."""


class WaitingStore(MemoryStore):
    """A memory store that may wait before and after every operation, as one on a disk does."""

    never_waits = False

    async def reserve(self, reservation):
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        found = await super().reserve(reservation)
        await trio.lowlevel.checkpoint()  # a cancel here leaves an entry that its caller knows nothing of
        return found

    async def complete(self, identity, execution_id, outcome, finished_at):
        await trio.lowlevel.checkpoint()
        done = await super().complete(identity, execution_id, outcome, finished_at)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return done

    async def release(self, identity, execution_id):
        await trio.lowlevel.checkpoint()
        return await super().release(identity, execution_id)

    async def interrupt(self, identity, execution_id, cause, finished_at):
        await trio.lowlevel.checkpoint()
        return await super().interrupt(identity, execution_id, cause, finished_at)


class CancelAfter(trio.abc.Instrument):
    """Cancels a scope when the tasks inside it have made so many steps.

    Attributes:
        fired: It came to that.
    """

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.left = steps
        self.scope = scope
        self.fired = False
        self.before = set(_tasks())

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self.before and task is not self.caller:
            return
        if self.left == 0 and not self.fired:
            self.fired = True
            self.scope.cancel()
        self.left -= 1

    caller: trio.lowlevel.Task


def _tasks() -> list[trio.lowlevel.Task]:
    """All tasks there are."""
    found = [trio.lowlevel.current_root_task()]
    for task in found:
        if task is not None:
            for nursery in task.child_nurseries:
                found.extend(nursery.child_tasks)
    return [task for task in found if task is not None]


@asynccontextmanager
async def cancelled_after(steps: int):
    """Cancel the block after so many steps of its task and of those it starts."""
    with trio.CancelScope() as scope:
        canceller = CancelAfter(steps, scope)
        canceller.caller = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(canceller)
        try:
            yield canceller
        finally:
            trio.lowlevel.remove_instrument(canceller)


async def execute(b: Bench, wanted: ExecutionRequest, on) -> None:
    await on.execute(wanted)


async def stream(b: Bench, wanted: ExecutionRequest, on) -> None:
    async with on.stream(wanted) as channel:
        async for _ in channel:
            pass


CASES: dict[str, dict[str, Any]] = {
    "read": {},
    "write": {},
    "serial_write": {},
    "idempotent_write": {},
    "thread_write": {},
    "write cleaning up": {"then": "wait_and_clean_up", "gate": "open"},
    "write in a nursery": {"then": "wait_in_nursery", "gate": "open"},
    "write failing": {"then": "error"},
    "write crashing": {"then": "crash_in_nursery"},
    "write retryable": {"then": "retryable"},
    "write too large": {"then": "large_output"},
    "partials": {"count": 3},
    "progress": {"count": 3},
}


@pytest.mark.parametrize("way", [execute, stream], ids=["execute", "stream"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("store", [MemoryStore, WaitingStore], ids=["memory", "waiting"])
async def test_cancelled_at_every_await(way: Callable[..., Awaitable[None]], case: str, store, caplog):
    """Wherever the caller goes away: nothing runs on, no turn is held, the id is in the state of its ending, one record."""
    caplog.set_level("CRITICAL", "carmy")
    name = case.split(maxsplit=1)[0]
    arguments = dict(CASES[case])
    seen = set()
    for steps in range(MOST_STEPS):
        async with bench(store=store()) as b:
            b.stage.open("open")
            if name not in ("partials", "progress"):
                arguments["tag"] = "t"
            living = trio.lowlevel.current_statistics().tasks_living
            async with cancelled_after(steps) as canceller:
                await way(b, request(name, arguments, request_id="r"), b.engine)
            seen.add(await settled(b, name, living))
        if not canceller.fired:
            break
    else:
        raise AssertionError(f"more than {MOST_STEPS} steps")
    assert steps > 0
    assert any("completed" in end or "failed" in end for end in seen)


async def settled(b: Bench, name: str, living: int) -> str:
    """Check what is left behind; the ending and the state of the id."""
    while b.engine.statistics().stuck_threads or await b.state("r") == "running":
        await trio.lowlevel.checkpoint()  # a thread that was left ends a moment later
    assert b.running == 0
    turn = b.engine._pipeline.registry._tools[name].turn
    if turn is not None:
        assert turn.waiting == 0
        assert turn.take_at_once()
        turn.free()
    (record,) = b.sink
    entry = await b.entry("r")
    state = "free" if entry is None else entry.state.value
    ran = await b.effects("t")
    assert ran in (0, 1)
    repeatable = name in ("read", "idempotent_write", "partials", "progress")
    if record.status == "completed":
        assert state == "completed"
    elif record.error_code == "CANCELLED":
        assert record.cause is Cause.CALLER
        assert state == ("interrupted" if ran and not repeatable else "free")
    elif record.error_code == "TRY_LATER":
        assert state == "free"
    else:
        assert state == "completed"
    if entry is not None:
        assert entry.execution_id == record.execution_id
        assert entry.state is not ReservationState.RUNNING
    assert trio.lowlevel.current_statistics().tasks_living == living
    return f"{record.status} {record.error_code} {state}"


@pytest.mark.parametrize("way", [execute, stream], ids=["execute", "stream"])
async def test_cancelled_at_every_await_of_a_queue(way):
    """Wherever a call in the middle of a queue is cancelled, the one before and the one behind it are not touched."""
    for steps in range(MOST_STEPS):
        async with bench() as b, trio.open_nursery() as nursery:
            gate = b.gate()
            first = b.start(nursery, "serial_write", {"then": "wait", "gate": gate})
            await b.arrived(gate)
            fired: list[bool] = []

            async def middle(steps=steps, fired=fired, b=b) -> None:
                async with cancelled_after(steps) as canceller:
                    await way(b, request("serial_write", {"tag": "t"}, request_id="r"), b.engine)
                fired.append(canceller.fired)

            nursery.start_soon(middle)
            await trio.testing.wait_all_tasks_blocked()
            last = b.start(nursery, "serial_write", {"tag": "last"})
            await trio.testing.wait_all_tasks_blocked()
            await b.open(gate)
            assert (await first.wait()).status == "completed"
            assert (await last.wait()).status == "completed"
        assert b.running == 0
        assert b.stage.effects("last") == 1
        assert len(b.sink) == 3
        if fired == [False]:
            return
    raise AssertionError(f"more than {MOST_STEPS} steps")


@pytest.mark.parametrize("way", [execute, stream], ids=["execute", "stream"])
@pytest.mark.parametrize("end", ["answers", "frees", "leaves"])
@pytest.mark.parametrize("store", ["memory", "waiting", "sqlite"])
async def test_cancelled_at_every_await_of_a_joiner(way, end, store, tmp_path):
    """Wherever the joiner of a run goes away, the run ends as it would have, and nothing of the joiner stays behind."""
    make = {
        "memory": lambda _: MemoryStore(),
        "waiting": lambda _: WaitingStore(),
        "sqlite": lambda steps: SqliteStore(tmp_path / f"{steps}.db", durability="normal"),
    }[store]
    for steps in range(MOST_STEPS):
        async with bench(store=make(steps)) as b, trio.open_nursery() as nursery:
            gate = b.gate()
            arguments = {"tag": "t", "gate": gate, "then": "wait_then_retryable" if end == "frees" else "wait"}
            holder = b.start(nursery, "write", arguments, request_id="r")
            await b.arrived(gate)

            async def end_it(b=b, gate=gate, holder=holder) -> None:
                await trio.testing.wait_all_tasks_blocked()
                if end == "leaves":
                    await holder.leave()
                else:
                    await b.open(gate)

            nursery.start_soon(end_it)
            async with cancelled_after(steps) as canceller:
                await way(b, request("write", arguments, request_id="r", on_running="wait"), b.engine)
            await holder.done.wait()
            assert b.running == 0
            assert not b.engine._pipeline.reservations._joins._crowds
            assert len(b.sink) == 2
            entry = await b.entry("r")
            if end == "frees":
                # The joiner may have run in its turn, and may have been cut off there.
                assert entry is None or (canceller.fired and entry.state is ReservationState.INTERRUPTED)
                assert await b.effects("t") in (1, 2)
            else:
                assert entry is not None
                assert entry.state.value == ("completed" if end == "answers" else "interrupted")
                assert await b.effects("t") == 1
        if not canceller.fired:
            return
    raise AssertionError(f"more than {MOST_STEPS} steps")


@pytest.mark.parametrize("name", ["read", "write"])
async def test_joined_while_cancelled_at_every_await(name):
    """Wherever the one that is joined goes away, also while it reserves: its joiner is not left waiting."""
    for steps in range(MOST_STEPS):
        async with bench(store=WaitingStore()) as b, trio.open_nursery() as nursery:
            b.stage.open("open")
            arguments = {"tag": "t", "then": "wait_and_clean_up", "gate": "open"}
            with trio.fail_after(10):
                async with cancelled_after(steps) as canceller:
                    joiner = b.start(nursery, name, arguments, request_id="r", on_running="wait")
                    await b.call(name, arguments, request_id="r", on_running="wait")
                result = await joiner.wait()
            assert b.running == 0
            assert await b.effects("t") <= 2
            state = await b.state("r")
            if result.error is None:
                assert state == "completed"
            else:
                assert (name, result.error.code, state) == ("write", "EXECUTION_UNCERTAIN", "interrupted")
        if not canceller.fired:
            return
    raise AssertionError(f"more than {MOST_STEPS} steps")


async def test_cancelled_at_every_await_by_id(caplog):
    """Wherever an execution is cancelled by its id, its caller gets one answer, which the id then stands for."""
    for steps in range(MOST_STEPS):
        async with bench(store=WaitingStore()) as b:
            b.stage.open("open")
            arguments = {"tag": "t", "then": "wait_and_clean_up", "gate": "open"}

            class ById(CancelAfter):
                def before_task_step(self, task: trio.lowlevel.Task) -> None:
                    if task is self.caller:
                        if self.left == 0:
                            for execution in b.engine._pipeline.inflight.running():
                                self.fired |= b.engine.cancel(execution.id)
                        self.left -= 1

            canceller = ById(steps, trio.CancelScope())
            canceller.caller = trio.lowlevel.current_task()
            trio.lowlevel.add_instrument(canceller)
            try:
                result = await b.call("write", arguments, request_id="r")
            finally:
                trio.lowlevel.remove_instrument(canceller)
            again = await b.call("write", arguments, request_id="r")
            assert b.running == 0
            if result.status == "cancelled" and result.error.details["phase"] == "waiting":
                assert not again.replayed
            else:
                assert again.replayed
                assert (again.status, again.execution_id) == (result.status, result.execution_id)
            assert await b.effects("t") == 1
        if canceller.left > 0:
            return
    raise AssertionError(f"more than {MOST_STEPS} steps")


@pytest.mark.parametrize("steps", range(12))
async def test_shut_down_cancelled_at_every_await(steps, autojump_clock):
    """Wherever a shutdown is cancelled, what runs has been cancelled and answered, and ``stopped`` is set."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        calls = [
            b.start(nursery, name, {"then": then, "gate": gate})
            for name, then in (("write", "wait"), ("read", "wait_and_clean_up"), ("idempotent_write", "wait"))
        ]
        await b.arrived(gate, 3)
        async with cancelled_after(steps):
            await b.engine.shut_down(1)
        assert b.engine.stopped.is_set()
        for call in calls:
            assert (await call.wait()).error.code == "SHUTTING_DOWN"
        assert b.running == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("store", [MemoryStore, WaitingStore], ids=["memory", "waiting"])
async def test_deadline_at_every_await(case, store, mock_clock, caplog):
    """Wherever the deadline passes: the caller gets one answer, the id stands for it or is free, and nothing runs on."""
    caplog.set_level("CRITICAL", "carmy")
    name = case.split()[0]
    arguments = dict(CASES[case])
    if name not in ("partials", "progress"):
        arguments["tag"] = "t"
    seen = set()
    for steps in range(MOST_STEPS):
        async with bench(store=store()) as b:
            b.stage.open("open")

            class Late(CancelAfter):
                def before_task_step(self, task: trio.lowlevel.Task) -> None:
                    if task is self.caller:
                        if self.left == 0:
                            self.fired = True
                            mock_clock.jump(100)
                        self.left -= 1

            late = Late(steps, trio.CancelScope())
            late.caller = trio.lowlevel.current_task()
            trio.lowlevel.add_instrument(late)
            try:
                result = await b.call(name, arguments, request_id="r")
            finally:
                trio.lowlevel.remove_instrument(late)
            while b.engine.statistics().stuck_threads or await b.state("r") == "running":
                await trio.lowlevel.checkpoint()
            assert b.running == 0
            (record,) = b.sink
            assert record.execution_id == result.execution_id
            assert record.status == result.status
            state = await b.state("r")
            ran = await b.effects("t")
            if result.status == "timed_out":
                phase = result.error.details["phase"]
                repeatable = name in ("read", "idempotent_write", "partials", "progress")
                assert state == ("completed" if phase == "running" and not repeatable else "free")
                assert not ran or phase == "running"
                seen.add(phase)
            elif result.error is None or not result.error.retryable:
                assert state == "completed"
            else:
                assert state == "free"
            if state == "completed":
                again = await b.call(name, arguments, request_id="r")
                assert again.replayed
                assert again.status == result.status
                assert again.data_json == result.data_json
        if not late.fired:
            break
    else:
        raise AssertionError(f"more than {MOST_STEPS} steps")
    if store is WaitingStore:
        assert "waiting" in seen
        assert "running" in seen or case not in ("write cleaning up", "write in a nursery")
