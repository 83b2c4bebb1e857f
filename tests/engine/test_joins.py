"""Joining: with ``on_running="wait"`` a duplicate of a running execution waits for its end, and disturbs nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import App, Cause, Completed, ExecutionRequest, NotStarted, Settings, Unknown, tool
from carmy_engine._idempotency.joins import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from carmy_engine.abc import Identity, Outcome, Reservation, ReservationState
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.transport import fingerprint
from tests.engine.kit import Bench, Refuse, bench, code, request, told


class CountingStore(MemoryStore):
    """A memory store that counts how often it is asked to reserve."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.fault: Exception | None = None

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return await super().reserve(reservation)


class Running:
    """A write that waits at a gate under the id ``r``, and those who join it."""

    def __init__(self, b: Bench, nursery: trio.Nursery, name: str = "write", then: str = "wait") -> None:
        self.b = b
        self.nursery = nursery
        self.name = name
        self.gate = b.gate()
        self.arguments = {"tag": "t", "then": then, "gate": self.gate}

    async def begin(self, **fields: Any) -> Any:
        first = self.b.start(self.nursery, self.name, self.arguments, request_id="r", **fields)
        await self.b.arrived(self.gate)
        return first

    async def join(self, count: int = 1, **fields: Any) -> list[Any]:
        """Begin to join, and wait until they wait."""
        joiners = [
            self.b.start(self.nursery, self.name, self.arguments, request_id="r", on_running="wait", **fields)
            for _ in range(count)
        ]
        await wait_all_tasks_blocked()
        return joiners

    async def joined(self, **fields: Any) -> Any:
        return await self.b.call(self.name, self.arguments, request_id="r", on_running="wait", **fields)


def crowds(b: Bench) -> int:
    """For how many executions somebody waits."""
    return len(b.engine._pipeline.reservations._joins._crowds)


@pytest.mark.parametrize("name", ["write", "read", "thread_write", "serial_write"])
async def test_the_same_answer(name: str) -> None:
    """A caller that joins gets the answer of the run as a replay, byte for byte, and the tool runs once."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, name)
        first = await run.begin()
        joiners = await run.join(3)
        assert not any(joiner.done.is_set() for joiner in joiners)
        await b.open(run.gate)
        answer = await first.wait()
        for joiner in joiners:
            result = await joiner.wait()
            assert (result.execution_id, result.data_json) == (answer.execution_id, answer.data_json)
            assert result.replayed
        assert b.stage.effects("t") == 1
        assert (crowds(b), b.running) == (0, 0)


async def test_an_error_is_an_answer() -> None:
    """A run that fails for good gives its error to the callers that joined it."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, then="wait")
        first = await run.begin()
        (joiner,) = await run.join()
        b.engine.cancel(_holder(b))
        assert code(await first.wait()) == "CANCELLED"
        result = await joiner.wait()
        assert (code(result), result.replayed) == ("CANCELLED", True)


def _holder(b: Bench) -> str:
    """The execution that has begun its tool."""
    (found,) = [each.id for each in b.engine._pipeline.inflight.running() if each.started]
    return found


def _joiner(b: Bench) -> str:
    """The execution that waits for another one."""
    (found,) = [each.id for each in b.engine._pipeline.inflight.running() if each.joined is not None]
    return found


async def test_without_a_run_it_is_like_any_call() -> None:
    """Where nothing runs, it runs; where there is an answer, it is replayed; without a request_id it means nothing."""
    async with bench() as b:
        first = await b.call("write", {"tag": "t"}, request_id="r", on_running="wait")
        assert not first.replayed
        assert (await b.call("write", {"tag": "t"}, request_id="r", on_running="wait")).replayed
        assert await b.code("write", {"tag": "t"}, on_running="wait") == "ok"
        assert b.stage.effects("t") == 2


@pytest.mark.parametrize("value", ["", "join", None, True, ["wait"]])
async def test_other_values(value: Any) -> None:
    """Anything else than ``refuse`` and ``wait`` is ``INVALID_REQUEST``, and the tool does not run."""
    async with bench() as b:
        assert await b.code("write", {"tag": "t"}, request_id="r", on_running=value) == "INVALID_REQUEST"
        assert b.stage.effects("t") == 0


async def test_another_request_is_a_conflict() -> None:
    """Another request under the same id waits for nothing."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        await run.begin()
        assert await b.code("write", {"tag": "x"}, request_id="r", on_running="wait") == "IDEMPOTENCY_CONFLICT"
        await b.open(run.gate)


async def test_a_conflict_after_the_wait() -> None:
    """If another request takes the id once the run has freed it, callers that wait are notified."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, then="wait_then_retryable")
        first = await run.begin()
        (joiner,) = await run.join()
        holder = await b.entry("r")
        assert holder is not None
        other = Reservation(
            identity=holder.identity,
            fingerprint=b"another",
            execution_id="exec_other",
            state=ReservationState.RUNNING,
            started_at=0.0,
            tool="write",
        )
        release = b.store.release

        async def release_and_take(identity: Identity, execution_id: str) -> bool:
            done: bool = await release(identity, execution_id)
            await b.store.reserve(other)
            return done

        b.store.release = release_and_take
        await b.open(run.gate)
        assert code(await first.wait()) == "TRY_LATER"
        assert code(await joiner.wait()) == "IDEMPOTENCY_CONFLICT"


async def test_leaving_disturbs_nobody() -> None:
    """A joiner that goes away leaves the run and the other joiners as they are."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        leaving, staying = await run.join(2)
        await leaving.leave()
        assert (b.running, crowds(b)) == (2, 1)
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"
        assert (await staying.wait()).replayed
        (left,) = [record for record in b.sink if record.error_code == "CANCELLED"]
        assert left.cause is Cause.CALLER


async def test_the_last_one_to_leave() -> None:
    """When all joiners have left, nothing of them is kept, and the run goes on."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        for joiner in await run.join(3):
            await joiner.leave()
        assert (b.running, crowds(b)) == (1, 0)
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"


async def test_cancelled_by_its_own_id() -> None:
    """A joiner is an execution of its own: its id cancels it, and not the run."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        (joiner,) = await run.join()
        assert {each.joined for each in await b.engine.executions()} == {None, _holder(b)}
        assert b.engine.cancel(_joiner(b))
        result = await joiner.wait()
        assert (code(result), told(result)["phase"]) == ("CANCELLED", "waiting")
        assert told(result)["execution_id"] == _holder(b)
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"


async def test_its_own_deadline(mock_clock: trio.testing.MockClock) -> None:
    """A joiner's own limit bounds its wait: ``TIMEOUT``, that nothing has been run for it, and what it waited for."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        (joiner,) = await run.join(timeout_ms=2000)
        mock_clock.jump(2.5)
        result = await joiner.wait()
        assert (code(result), result.error.retryable) == ("TIMEOUT", True)
        assert told(result) == {"phase": "waiting", "cause": "deadline", "execution_id": _holder(b)}
        assert "the first attempt with this request_id is still running" in result.error.message
        assert b.sink.records[-1].waited_ms == pytest.approx(2500)
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"
        assert (await run.joined()).replayed


async def test_shutdown(autojump_clock: trio.testing.MockClock) -> None:
    """At shutdown a joiner waits as long as the run may go on; when that is cut off, both get an answer."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        (joiner,) = await run.join()
        await b.engine.shut_down(3)
        result = await joiner.wait()
        assert (code(result), told(result)["phase"]) == ("SHUTTING_DOWN", "waiting")
        assert (code(await first.wait()), await b.state("r")) == ("SHUTTING_DOWN", "interrupted")


@pytest.mark.parametrize("count", [1, 5])
async def test_a_run_that_frees_the_id(count: int) -> None:
    """If the run leaves nothing, one of the joiners runs, and the others join that one."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, then="wait_then_retryable")
        first = await run.begin()
        joiners = await run.join(count)
        await b.open(run.gate)
        results = [await each.wait() for each in (first, *joiners)]
        assert {code(result) for result in results} == {"TRY_LATER"}
        assert len({result.execution_id for result in results}) == count + 1
        assert not any(result.replayed for result in results)
        assert b.stage.effects("t") == count + 1
        assert await b.state("r") == "free"


async def test_a_read_whose_caller_left() -> None:
    """If the caller of something repeatable goes away, the joiner runs it for itself, and its record has the time of the wait."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, "read")
        first = await run.begin()
        joiner, other = await run.join(2)
        await first.leave()
        await b.arrived(run.gate, 2)
        await b.open(run.gate)
        results = [await joiner.wait(), await other.wait()]
        assert sorted(result.replayed for result in results) == [False, True]
        assert {code(result) for result in results} == {"ok"}
        assert b.stage.effects("t") == 2


async def test_what_a_later_run_says_of_the_wait(mock_clock: trio.testing.MockClock) -> None:
    """A joiner that runs in the end counts its wait, in the queue for its turn as well, and its entry begins with its run."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, "serial_read")
        first = await run.begin()
        (queued,) = [b.start(nursery, "serial_read", {"then": "wait", "gate": run.gate})]
        (joiner,) = await run.join()
        mock_clock.jump(2)
        before = time.time()
        await first.leave()
        await wait_all_tasks_blocked()  # now in the queue, behind the other
        entry = await b.entry("r")
        assert entry is not None
        assert entry.started_at >= before
        mock_clock.jump(3)
        await b.open(run.gate)
        await queued.wait()
        assert code(await joiner.wait()) == "ok"
        assert b.sink.records[-1].waited_ms == pytest.approx(5000)


async def test_a_run_that_is_interrupted() -> None:
    """If the caller of a write goes away, callers that joined it are informed that the outcome is unknown."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        joiners = await run.join(2)
        await first.leave()
        for joiner in joiners:
            result = await joiner.wait()
            assert (code(result), told(result)["state"]) == ("EXECUTION_UNCERTAIN", "interrupted")
        assert b.stage.effects("t") == 1


@pytest.mark.parametrize(
    ("answer", "outcome", "runs"),
    [(Completed("found"), "found", 1), (NotStarted(), "worked", 2), (Unknown(), None, 1)],
    ids=["completed", "not_started", "unknown"],
)
async def test_a_tool_that_can_tell(answer: Any, outcome: str | None, runs: int) -> None:
    """If the run is interrupted and its tool can reconcile it, the joiner gets that."""
    begun = trio.Event()
    count = 0

    async def ask(_: object, __: object) -> Any:
        return answer

    @tool(effect="write", parallel_safe=True, reconcile=ask, register=False)
    async def work() -> str:
        """Work."""
        nonlocal count
        count += 1
        if not begun.is_set():
            begun.set()
            await trio.sleep_forever()
        return "worked"

    async with bench(work) as b, trio.open_nursery() as nursery:
        first = b.start(nursery, "work", request_id="r")
        await begun.wait()
        joiner = b.start(nursery, "work", request_id="r", on_running="wait")
        await wait_all_tasks_blocked()
        await first.leave()
        result = await joiner.wait()
    assert result.data == outcome
    assert count == runs
    assert code(result) == ("EXECUTION_UNCERTAIN" if outcome is None else "ok")


async def test_a_thread_that_outlives_its_call(mock_clock: trio.testing.MockClock) -> None:
    """While an abandoned thread runs on, its id counts as running, and joiners wait for its end."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery, "thread_write")
        first = await run.begin(timeout_ms=1000)
        early = (await run.join())[0]
        mock_clock.jump(1.5)
        assert code(await first.wait()) == "TIMEOUT"
        late = (await run.join())[0]
        assert not early.done.is_set()
        await b.open(run.gate)
        for joiner in (early, late):
            result = await joiner.wait()
            assert (code(result), result.replayed) == ("TIMEOUT", True)
        assert b.stage.effects("t") == 1


async def test_joiners_are_counted() -> None:
    """Joiners count against ``max_executions``: more than that are ``OVERLOADED``, and the run is not touched."""
    async with bench(settings=Settings(max_executions=3)) as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        joiners = await run.join(2)
        assert code(await run.joined()) == "OVERLOADED"
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"
        assert all([(await joiner.wait()).replayed for joiner in joiners])


async def test_policies_are_asked() -> None:
    """A caller without permission to call cannot join either."""

    class Once(Refuse):
        def check(self, context: object, spec: Any) -> None:
            if spec.name == "write" and "write" in self.asked:
                super().check(context, spec)
            self.asked.append(spec.name)

    async with bench(policies=[Once()]) as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        await run.begin()
        assert code(await run.joined()) == "NO"
        await b.open(run.gate)


async def test_events() -> None:
    """The stream of a joiner is that of a replay: started, with an id of its own, and completed."""
    async with bench() as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        events: list[Any] = []

        async def listen() -> None:
            events.extend(await b.events("write", run.arguments, request_id="r", on_running="wait"))

        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        await b.open(run.gate)
        await first.wait()
        await wait_all_tasks_blocked()
        assert [event.kind for event in events] == ["execution.started", "execution.completed"]
        assert events[0].execution_id != events[1].result.execution_id == (await first.wait()).execution_id


async def test_a_run_here_tells(autojump_clock: trio.testing.MockClock) -> None:
    """For a run of the same engine the store is asked when it ends, and not before, however long that takes."""
    store = CountingStore()
    async with bench(store=store) as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        joiners = await run.join(3, timeout_ms=30_000)
        asked = store.asked
        await trio.sleep(29)
        assert store.asked == asked
        await b.open(run.gate)
        await first.wait()
        assert all([(await joiner.wait()).replayed for joiner in joiners])
        assert store.asked == asked + 3


def elsewhere(arguments: bytes = b'{"tag":"t"}') -> Reservation:
    """The entry of a run in another process."""
    return Reservation(
        identity=Identity(principal=None, session=None, scope="in_process", request_id="r"),
        fingerprint=fingerprint("write", arguments, None),
        execution_id="exec_elsewhere",
        state=ReservationState.RUNNING,
        started_at=0.0,
        tool="write",
    )


async def test_a_run_elsewhere_is_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    """For a run of another process the store is asked again, less and less often, and its answer comes within a second."""
    store = CountingStore()
    entry = elsewhere()
    await store.reserve(entry)
    async with bench(store=store) as b, trio.open_nursery() as nursery:
        joiner = b.start(nursery, "write", {"tag": "t"}, request_id="r", on_running="wait")
        await trio.sleep(1)
        begun = store.asked
        assert begun < 10
        await trio.sleep(20)
        assert 20 <= store.asked - begun <= 21
        outcome = Outcome(execution_id="exec_elsewhere", data_json=b"1")
        await store.complete(entry.identity, entry.execution_id, outcome, time.time())
        with trio.fail_after(MAX_PAUSE_SECONDS + FIRST_PAUSE_SECONDS):
            result = await joiner.wait()
    assert (result.execution_id, result.data, result.replayed) == ("exec_elsewhere", 1, True)


async def test_a_run_elsewhere_that_frees_the_id(autojump_clock: trio.testing.MockClock) -> None:
    """If a run of another process leaves nothing, the joiner runs."""
    store = CountingStore()
    entry = elsewhere()
    await store.reserve(entry)
    async with bench(store=store) as b, trio.open_nursery() as nursery:
        joiner = b.start(nursery, "write", {"tag": "t"}, request_id="r", on_running="wait")
        await trio.sleep(5)
        await store.release(entry.identity, entry.execution_id)
        result = await joiner.wait()
    assert (code(result), result.replayed, b.stage.effects("t")) == ("ok", False, 1)
    assert b.sink.records[-1].waited_ms == pytest.approx(5000, abs=1100)


async def test_an_end_that_was_not_recorded(autojump_clock: trio.testing.MockClock, caplog: Any) -> None:
    """If the store does not take the answer of the run, its joiners go on asking, until it has it or their time is over."""
    caplog.set_level("CRITICAL", "carmy")
    store = CountingStore()
    complete = store.complete
    failed: list[tuple[Any, ...]] = []

    async def fail(*arguments: Any) -> bool:
        failed.append(arguments)
        raise ConnectionResetError("away")

    store.complete = fail  # type: ignore[assignment,method-assign]
    async with bench(store=store) as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        (patient,) = await run.join(timeout_ms=20_000)
        (hasty,) = await run.join(timeout_ms=5_000)
        await b.open(run.gate)
        assert code(await first.wait()) == "STORE_ERROR"
        assert code(await hasty.wait()) == "TIMEOUT"
        await complete(*failed[0])
        result = await patient.wait()
        assert (code(result), result.replayed) == ("ok", True)
        assert b.stage.effects("t") == 1


@pytest.mark.parametrize("on_running", ["refuse", "wait"])
async def test_a_reservation_that_comes_with_a_cancel(on_running: str) -> None:
    """What is cancelled in the same moment as its reservation succeeds does not begin, and its id is free."""

    class Store(MemoryStore):
        async def reserve(self, reservation: Reservation) -> Reservation | None:
            await trio.lowlevel.checkpoint()
            found = await super().reserve(reservation)
            if found is None:
                b.engine.cancel(reservation.execution_id)
            return found

    async with bench(store=Store()) as b:
        result = await b.call("write", {"tag": "t"}, request_id="r", on_running=on_running)
        assert (code(result), told(result)["phase"]) == ("CANCELLED", "waiting")
        assert (b.stage.effects("t"), await b.state("r")) == (0, "free")


async def test_a_store_that_fails_meanwhile(caplog: Any) -> None:
    """A store that fails when a joiner asks again is ``STORE_ERROR``; the joiner has run nothing."""
    caplog.set_level("CRITICAL", "carmy")
    store = CountingStore()
    async with bench(store=store) as b, trio.open_nursery() as nursery:
        run = Running(b, nursery)
        first = await run.begin()
        (joiner,) = await run.join()
        store.fault = ConnectionResetError("away")
        await b.open(run.gate)
        assert code(await first.wait()) == "ok"
        result = await joiner.wait()
        assert (code(result), told(result)["ran"]) == ("STORE_ERROR", False)
        assert (crowds(b), b.running) == (0, 0)


async def test_what_is_sent_to_a_mounted_executor() -> None:
    """A gateway passes the wish on, because the far side may still run what it has forgotten itself."""
    seen: list[ExecutionRequest] = []
    async with bench() as far:

        class Spy:
            def stream(self, request: ExecutionRequest) -> Any:
                seen.append(request)
                return far.engine.stream(request)

            async def execute(self, request: ExecutionRequest) -> Any:
                raise AssertionError

            async def catalog(self) -> Any:
                return await far.engine.catalog()

        async with App("gateway").mount(Spy()).open() as engine:  # type: ignore[arg-type]
            await engine.execute(request("echo", {"text": "a"}, request_id="a", on_running="wait"))
            await engine.execute(request("echo", {"text": "a"}, request_id="b"))
    assert [each.on_running for each in seen] == ["wait", "refuse"]
