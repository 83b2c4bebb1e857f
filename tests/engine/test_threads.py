"""Plain functions in worker threads: bounded, abandoned at the deadline, counted until they end."""

from __future__ import annotations

import threading

import pytest
import trio

from carmy_engine import AgentContext, Settings
from carmy_engine._execution.threads import Threads
from tests.engine.kit import Bench, bench, code, read, told


@pytest.fixture
def clock(mock_clock):
    """A clock that only moves when told to: threads are real, deadlines are not."""
    return mock_clock


async def stuck(b: Bench, clock, calls: int, **fields) -> list[str]:
    """Threads that outlived their deadline; the gates that hold them."""
    gates = [b.gate() for _ in range(calls)]
    async with trio.open_nursery() as nursery:
        pending = [
            b.start(nursery, "thread_write", {"then": "wait", "gate": gate}, timeout_ms=1000, **fields)
            for gate in gates
        ]
        for gate in gates:
            await b.arrived(gate)
        clock.jump(2)
        for call in pending:
            result = await call.wait()
            assert code(result) == "TIMEOUT"
            assert told(result)["phase"] == "running"
    return gates


async def idle(b: Bench) -> None:
    """Wait until no thread is stuck: its end is told to the loop a moment after its gate."""
    while b.engine.statistics().stuck_threads:
        await trio.lowlevel.checkpoint()


async def test_a_plain_function_runs_in_a_thread():
    """A plain function does not run in the event loop's thread, and its value comes back."""

    @read
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    async with bench(where) as b:
        assert (await b.call("where")).data is False


async def test_an_abandoned_thread_is_counted_until_it_ends(clock):
    """A thread that outlives its deadline counts as stuck, its caller is answered at once, and its late value is dropped."""
    async with bench() as b:
        (gate,) = await stuck(b, clock, 1, request_id="r")
        assert b.engine.statistics().stuck_threads == 1
        assert b.running == 0
        assert len(b.sink) == 1
        await b.open(gate)
        await idle(b)
        assert len(b.sink) == 1


async def test_an_abandoned_thread_keeps_its_reservation(clock):
    """Until the thread ends, its request_id counts as running; then it has what the deadline leaves."""
    async with bench() as b:
        (gate,) = await stuck(b, clock, 1, request_id="r")
        assert await b.state("r") == "running"
        await b.open(gate)
        await idle(b)
        while await b.state("r") == "running":
            await trio.lowlevel.checkpoint()
        entry = await b.entry("r")
        assert entry is not None
        assert entry.outcome is not None
        assert entry.outcome.error is not None
        assert entry.outcome.error.code == "TIMEOUT"
        retry = await b.call("thread_write", {"then": "wait", "gate": gate}, request_id="r")
        assert retry.replayed


async def test_an_abandoned_repeatable_thread_frees_its_id(clock):
    """The id of a repeatable tool is free once its abandoned thread has ended."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "thread_read", {"then": "wait", "gate": gate}, timeout_ms=1000, request_id="r")
        await b.arrived(gate)
        clock.jump(2)
        await call.wait()
        assert await b.state("r") == "running"
        await b.open(gate)
        while await b.state("r") == "running":
            await trio.lowlevel.checkpoint()
        assert await b.state("r") == "free"


async def test_an_abandoned_thread_keeps_its_turn(clock):
    """The next call of a serial tool starts only when the abandoned thread has ended."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate, other = b.gate(), b.gate()
        call = b.start(nursery, "serial_thread_write", {"then": "wait", "gate": gate}, timeout_ms=1000)
        await b.arrived(gate)
        clock.jump(2)
        assert code(await call.wait()) == "TIMEOUT"
        second = await b.start_waiting(nursery, "serial_thread_write", {"tag": "t", "then": "wait", "gate": other})
        assert await b.effects("t") == 0
        await b.open(gate)
        await b.arrived(other)
        assert b.stage.left(gate) == 1
        await b.open(other)
        assert code(await second.wait()) == "ok"


@pytest.mark.parametrize("how", ["leave", "cancel", "shutdown"])
async def test_abandoned_by_any_cancel(how, clock):
    """A thread is abandoned whatever cancels its call, and its fate under the request_id follows the cause."""
    async with bench() as b:
        gate = b.gate()
        async with trio.open_nursery() as nursery:
            call = b.start(nursery, "thread_write", {"then": "wait", "gate": gate}, request_id="r")
            await b.arrived(gate)
            if how == "leave":
                await call.leave()
            elif how == "cancel":
                b.engine.cancel(b.running_id("thread_write"))
                assert code(await call.wait()) == "CANCELLED"
            else:
                await b.engine.shut_down(0)
                assert code(await call.wait()) == "SHUTTING_DOWN"
        assert await b.state("r") == "running"
        await b.open(gate)
        while await b.state("r") == "running":
            await trio.lowlevel.checkpoint()
        assert await b.state("r") == ("completed" if how == "cancel" else "interrupted")


async def test_stuck_threads_leave_room_for_others(clock):
    """With all but one thread stuck, a quick call still runs."""
    async with bench() as b:
        gates = await stuck(b, clock, Settings().limits.max_threads - 1)
        assert b.engine.statistics().stuck_threads == Settings().limits.max_threads - 1
        assert await b.code("thread_read") == "ok"
        for gate in gates:
            await b.open(gate)
        await idle(b)


async def test_all_threads_stuck(clock):
    """With every thread stuck, a plain function is refused as ``OVERLOADED``, its id stays free, and coroutines still run."""
    async with bench() as b:
        gates = await stuck(b, clock, Settings().limits.max_threads)
        refused = await b.refused("OVERLOADED", "thread_write", request_id="r")
        assert refused.error.retryable
        assert refused.error.retry_after > 0
        assert await b.state("r") == "free"
        assert await b.code("write") == "ok"
        await b.open(gates[0])
        while b.engine.statistics().stuck_threads == Settings().limits.max_threads:
            await trio.lowlevel.checkpoint()
        assert await b.code("thread_write", request_id="r") == "ok"
        for gate in gates:
            await b.open(gate)
        await idle(b)


async def test_a_function_that_waits_for_a_thread_never_runs_after_its_deadline(clock):
    """With every thread busy, a call waits for one; at its deadline it is answered as never started, and never runs."""
    async with bench() as b, trio.open_nursery() as nursery:
        gates = [b.gate() for _ in range(Settings().limits.max_threads)]
        for gate in gates:
            b.start(nursery, "thread_write", {"then": "wait", "gate": gate})
        for gate in gates:
            await b.arrived(gate)
        late = await b.start_waiting(nursery, "thread_write", {"tag": "t"}, timeout_ms=1000, request_id="r")
        clock.jump(2)
        result = await late.wait()
        assert code(result) == "TIMEOUT"
        assert told(result)["phase"] == "waiting"
        assert await b.state("r") == "free"
        lucky = await b.start_waiting(nursery, "thread_write", {"tag": "u"})
        await b.open(gates[0])
        assert code(await lucky.wait()) == "ok"
        for gate in gates:
            await b.open(gate)
        assert await b.effects("t") == 0


async def test_a_claimed_run_never_starts():
    """A function whose caller has given up before it began is skipped by the thread that comes to it."""
    threads = Threads(64)
    ran = []
    run = threads.prepare(lambda: ran.append(True), lambda: None)
    run.give_up()
    run()
    assert ran == []
    assert threads.stuck == 0
    assert not run.abandoned


async def test_a_function_that_ended_is_not_abandoned():
    """A function that has ended when its cancel arrives counts: its value is the truth."""
    threads = Threads(64)
    with trio.CancelScope() as scope:

        def work() -> str:
            trio.from_thread.run_sync(scope.cancel, trio_token=token)
            return "done"

        token = trio.lowlevel.current_trio_token()
        run = threads.prepare(work, lambda: None)
        try:
            value = await threads.run(run)
        except trio.Cancelled:
            assert run.abandoned or not run.finished
            raise
        assert value == "done"
    with trio.fail_after(5):
        if run.abandoned:
            await run.ended.wait()
    assert threads.stuck == 0


async def test_a_thread_can_ask_whether_it_should_stop(clock):
    """A plain function sees the cancel and its cause through its context."""
    seen: list[object] = []

    @read
    def patient(ctx: AgentContext, gate: str) -> None:
        seen.append(ctx.cancellation.cancelled)
        b.stage.pass_gate_in_thread(gate)
        seen.append(ctx.cancellation.cause)
        ctx.cancellation.check()
        seen.append("went on")

    async with bench(patient) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "patient", {"gate": gate}, timeout_ms=1000)
        await b.arrived(gate)
        clock.jump(2)
        await call.wait()
        await b.open(gate)
        await idle(b)
    assert seen == [False, "deadline"]


async def test_remaining_seconds_in_a_thread(clock):
    """A plain function can ask how much time it has."""
    seen = []

    @read
    def look(ctx: AgentContext) -> None:
        seen.append(ctx.remaining())

    async with bench(look) as b:
        await b.call("look", timeout_ms=5000)
    assert seen == [5]


async def test_leaving_the_engine_with_a_stuck_thread(clock):
    """The end of the engine does not wait for a stuck thread, and settles its reservation as what it is known to be."""
    async with bench() as b:
        await stuck(b, clock, 1, request_id="r")
        assert await b.state("r") == "running"
    entry = await b.entry("r")
    assert entry is not None
    assert entry.state != "free"


async def test_an_abandoned_run_counts_as_started():
    """Between a thread's claim and its first step no caller can keep it from running, so the answer states that effects may exist."""
    from carmy_engine._execution.execution import Caller, Execution, Phase

    execution = Execution("exec_1", "t", None, Caller(context=AgentContext()), None, trio.current_time)
    threads = Threads(64)
    execution.thread = run = threads.prepare(lambda: None, execution.mark_started)
    assert run._claim.acquire(blocking=False)  # as the thread does first
    run.give_up()
    assert execution.phase is Phase.WAITING
    assert execution.started
