"""Turns: one call at a time, first come first served, freed on every way out."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import AgentError, tool
from carmy_engine._execution.turns import Turn
from tests.engine.kit import bench, code, told


async def test_first_come_first_served(autojump_clock):
    """Calls get their turn in the order in which they came, one at a time."""
    order, inside = [], []

    @tool(effect="write", register=False)
    async def serial(number: int) -> None:
        inside.append(number)
        assert len(inside) == 1
        await trio.sleep(0.1)
        inside.remove(number)
        order.append(number)

    async with bench(serial) as b, trio.open_nursery() as nursery:
        for number in range(20):
            b.start(nursery, "serial", {"number": number})
            await wait_all_tasks_blocked()
    assert order == list(range(20))


async def test_a_free_turn_needs_no_wait():
    """A call that finds the turn free does not wait: no waiting event, no waited time."""
    async with bench() as b:
        events = await b.events("serial_read")
        assert "tool.waiting" not in [event.kind for event in events]
        assert b.sink.records[-1].waited_ms == 0


async def test_a_turn_that_comes_with_a_cancel():
    """What is cancelled in the same moment as its turn comes does not begin, and the turn goes on to the next."""
    cancelled: list[bool] = []

    class Canceller:
        def record(self, record) -> None:
            if not cancelled:  # the turn has been given on, and whoever got it has not been woken yet
                (execution,) = [each for each in b.engine._pipeline.inflight.running() if each.timeout == 7]
                cancelled.append(b.engine.cancel(execution.id))

    async with bench(sinks=[Canceller()]) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        first = b.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        second = b.start(nursery, "serial_write", {"tag": "t"}, timeout_ms=7000)
        await wait_all_tasks_blocked()
        third = b.start(nursery, "serial_write", {"tag": "third"})
        await wait_all_tasks_blocked()
        await b.open(gate)
        assert code(await first.wait()) == "ok"
        result = await second.wait()
        assert (code(result), told(result)["phase"]) == ("CANCELLED", "waiting")
        assert code(await third.wait()) == "ok"
    assert cancelled == [True]
    assert (b.stage.effects("t"), b.stage.effects("third")) == (0, 1)


async def test_waiting_counts_towards_the_deadline(autojump_clock):
    """The time in the queue is part of the limit, and is distinguished in record and event."""

    @tool(effect="write", register=False)
    async def serial(seconds: float) -> None:
        await trio.sleep(seconds)

    async with bench(serial) as b, trio.open_nursery() as nursery:
        b.start(nursery, "serial", {"seconds": 3})
        await wait_all_tasks_blocked()
        second = b.start(nursery, "serial", {"seconds": 1}, timeout_ms=5000)
        await wait_all_tasks_blocked()
        third = b.start(nursery, "serial", {"seconds": 10}, timeout_ms=6000)
        assert code(await second.wait()) == "ok"
        assert (await second.wait()).duration_ms == pytest.approx(4000)
        assert b.sink.records[-1].waited_ms == pytest.approx(3000)
        result = await third.wait()
        assert told(result)["phase"] == "running"
        assert result.duration_ms == pytest.approx(6000)
        assert b.sink.records[-1].waited_ms == pytest.approx(4000)


async def test_those_behind_a_timeout_keep_their_place(autojump_clock):
    """A call that times out in the queue is skipped; the others keep their order and none is lost."""
    order = []

    @tool(effect="write", register=False)
    async def serial(number: int) -> None:
        order.append(number)
        await trio.sleep(2)

    async with bench(serial) as b, trio.open_nursery() as nursery:
        calls = []
        for number in range(5):
            timeout_ms = 3000 if number in (2, 3) else 30_000
            calls.append(b.start(nursery, "serial", {"number": number}, timeout_ms=timeout_ms))
            await wait_all_tasks_blocked()
    assert order == [0, 1, 4]
    for number in (2, 3):
        result = await calls[number].wait()
        assert code(result) == "TIMEOUT"
        assert told(result)["phase"] == "waiting"


@pytest.mark.parametrize("most", [0, 1, 5])
async def test_max_waiting(most):
    """More calls than ``max_waiting`` are refused at once as ``TOOL_BUSY``; a place that gets free can be taken."""

    @tool(effect="write", max_waiting=most, register=False)
    async def serial(gate: str) -> None:
        await b.stage.pass_gate(gate)

    async with bench(serial) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        b.start(nursery, "serial", {"gate": gate})
        await b.arrived(gate)
        waiting = [await b.start_waiting(nursery, "serial", {"gate": gate}) for _ in range(most)]
        refused = await b.refused("TOOL_BUSY", "serial", {"gate": gate}, request_id="r")
        assert refused.error.retryable
        assert refused.error.category == "capacity"
        assert refused.error.retry_after > 0
        assert await b.state("r") == "free"
        if waiting:
            await waiting[0].leave()
            waiting[0] = await b.start_waiting(nursery, "serial", {"gate": gate})
        await b.open(gate)
        for call in waiting:
            assert code(await call.wait()) == "ok"


@pytest.mark.parametrize("cancel_first", [True, False])
@pytest.mark.parametrize("whom", range(3))
async def test_a_turn_is_never_lost(cancel_first, whom):
    """Whatever the order of a hand-over and a cancel in the same moment, everybody else gets the turn, one by one."""
    turn = Turn("t", 10)
    assert turn.take_at_once()
    holders: list[int] = []
    scopes = [trio.CancelScope() for _ in range(3)]

    async def hold(number: int) -> None:
        with scopes[number]:
            await turn.take()
            holders.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(hold, number)
            await wait_all_tasks_blocked()
        steps = [scopes[whom].cancel, turn.free]
        for step in steps if cancel_first else reversed(steps):
            step()
        await wait_all_tasks_blocked()
        while turn.waiting:
            before = len(holders)
            turn.free()
            await wait_all_tasks_blocked()
            assert len(holders) == before + 1
    assert {number for number in range(3) if number != whom} <= set(holders)
    assert not turn.take_at_once()
    turn.free()
    assert turn.take_at_once()


async def test_busy_without_a_queue():
    """A turn whose queue is full refuses without waiting."""
    turn = Turn("t", 0)
    assert turn.take_at_once()
    with pytest.raises(AgentError, match="TOOL_BUSY"):
        await turn.take()


@pytest.mark.parametrize("how", ["deadline", "leave", "cancel", "shutdown"])
async def test_freed_when_stopped(how, mock_clock):
    """A holder that is stopped, whatever stops it, frees the turn for the next in the queue."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate, other = b.gate(), b.gate()
        holder = b.start(nursery, "serial_write", {"then": "wait", "gate": gate}, timeout_ms=1000)
        await b.arrived(gate)
        waiting = await b.start_waiting(nursery, "serial_write", {"then": "wait", "gate": other})
        if how == "deadline":
            mock_clock.jump(2)
        elif how == "leave":
            await holder.leave()
        elif how == "cancel":
            (running,) = [e.id for e in b.engine._pipeline.inflight.running() if e.started]
            b.engine.cancel(running)
        else:
            await b.engine.shut_down(0)
            assert code(await holder.wait()) == "SHUTTING_DOWN"
            assert code(await waiting.wait()) == "SHUTTING_DOWN"
            return
        await b.arrived(other)
        await b.open(other)
        assert code(await waiting.wait()) == "ok"


async def test_a_bad_call_takes_no_turn():
    """A call that is refused before the turn leaves the queue as it was."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        b.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        for _ in range(5):
            assert await b.code("serial_write", {"x": 1}) == "INVALID_ARGUMENTS"
        turn = b.engine._pipeline.registry._tools["serial_write"].turn
        assert turn is not None
        assert turn.waiting == 0
        await b.open(gate)
