"""Sinks and stores that fail: every failure is typed, and a committed effect is still answered."""

from __future__ import annotations

import pytest
import trio

from carmy_engine._idempotency.reservations import STORE_SECONDS
from carmy_engine.stores.memory import MemoryStore
from tests.engine.kit import bench, code, told


class BrokenSink:
    def record(self, record: object) -> None:
        raise OSError("disk full")


async def test_a_failing_sink_changes_no_answer(caplog):
    """A sink that raises is counted and logged; the answer and the other sinks are not touched."""
    async with bench(sinks=[BrokenSink()]) as b:
        assert await b.code("write", {"tag": "t"}, request_id="r") == "ok"
        assert len(b.sink) == 1
        assert b.engine.statistics().sink_failures == 1
        assert await b.state("r") == "completed"
    assert "sink" in caplog.text


class FailingStore(MemoryStore):
    """Fails in the named operations."""

    def __init__(self, *failing: str, how: str = "raise") -> None:
        super().__init__()
        self.failing = failing
        self.how = how

    async def _maybe(self, operation: str) -> None:
        if operation in self.failing:
            if self.how == "hang":
                await trio.sleep_forever()
            raise OSError("hunter2")

    async def reserve(self, reservation):
        await self._maybe("reserve")
        return await super().reserve(reservation)

    async def complete(self, identity, execution_id, outcome, finished_at):
        await self._maybe("complete")
        return await super().complete(identity, execution_id, outcome, finished_at)

    async def release(self, identity, execution_id):
        await self._maybe("release")
        return await super().release(identity, execution_id)

    async def interrupt(self, identity, execution_id, cause, finished_at):
        await self._maybe("interrupt")
        return await super().interrupt(identity, execution_id, cause, finished_at)


async def test_a_store_that_cannot_reserve(caplog):
    """The tool does not run; the answer is ``STORE_ERROR``, states that, and has nothing of the store's message."""
    async with bench(store=FailingStore("reserve")) as b:
        result = await b.refused("STORE_ERROR", "write", {"tag": "t"}, request_id="r")
        assert result.error.retryable
        assert told(result) == {"ran": False}
        assert "hunter2" not in str(result.error)
        assert await b.effects("t") == 0
        assert await b.code("write", {"tag": "t"}) == "ok"
    assert "hunter2" in caplog.text


async def test_a_store_that_hangs_is_cut_by_the_deadline(autojump_clock):
    """A store that never answers a reservation costs the call its deadline, not more: ``TIMEOUT``, never started."""
    async with bench(store=FailingStore("reserve", how="hang")) as b:
        result = await b.refused("TIMEOUT", "write", {"tag": "t"}, request_id="r", timeout_ms=1000)
        assert told(result)["phase"] == "waiting"
        assert await b.effects("t") == 0
        assert b.running == 0


@pytest.mark.parametrize("how", ["raise", "hang"])
async def test_a_result_that_cannot_be_recorded(how, autojump_clock, caplog):
    """A write that ran and cannot be recorded is ``STORE_ERROR`` with the value, and asks for no retry."""
    async with bench(store=FailingStore("complete", how=how)) as b:
        start = trio.current_time()
        result = await b.refused("STORE_ERROR", "write", {"tag": "t"}, request_id="r")
        assert trio.current_time() - start <= STORE_SECONDS + 0.001
        assert not result.error.retryable
        assert result.next_actions == ()
        details = told(result)
        assert details["ran"] is True
        assert details["data"] == "done"
        assert await b.state("r") == "running"
        assert await b.code("write", {"tag": "t"}, request_id="r") == "EXECUTION_UNCERTAIN"
        assert await b.effects("t") == 1
    assert caplog.records


async def test_an_error_that_cannot_be_recorded(caplog):
    """The same for a tool's error: it is in the details."""
    async with bench(store=FailingStore("complete")) as b:
        result = await b.refused("STORE_ERROR", "write", {"then": "error"}, request_id="r")
        assert told(result)["error"].code == "OUT_OF_STOCK"


async def test_a_repeatable_result_that_cannot_be_recorded(caplog):
    """A repeatable tool's result is given as it is: a retry may simply run again."""
    async with bench(store=FailingStore("complete")) as b:
        for name in ("read", "idempotent_write"):
            assert (await b.call(name, request_id=name)).data == "done"


@pytest.mark.parametrize("operation", ["release", "interrupt"])
async def test_a_failure_to_release_changes_no_answer(operation, caplog):
    """A store that cannot release or interrupt leaves the entry running, which is safe; the answer is the tool's."""
    async with bench(store=FailingStore(operation)) as b:
        assert await b.code("write", {"then": "retryable"}, request_id="r") == "TRY_LATER"
        async with trio.open_nursery() as nursery:
            gate = b.gate()
            call = b.start(nursery, "write", {"then": "wait", "gate": gate}, request_id="s")
            await b.arrived(gate)
            await call.leave()
        assert await b.state("s") in ("running", "interrupted")
        assert b.running == 0


async def test_recording_is_not_cut_off_by_the_caller():
    """A caller that leaves while the result is being recorded does not stop that: the effect has its answer."""
    recording = trio.Event()

    class Slow(MemoryStore):
        async def complete(self, identity, execution_id, outcome, finished_at):
            recording.set()
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            return await super().complete(identity, execution_id, outcome, finished_at)

    async with bench(store=Slow()) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "write", {"tag": "t"}, request_id="r")
        await recording.wait()
        call.scope.cancel()
        await call.done.wait()
        assert await b.state("r") == "completed"
        assert (await b.call("write", {"tag": "t"}, request_id="r")).replayed


async def test_a_full_store():
    """A full store refuses new ids as ``IDEMPOTENCY_CAPACITY``, still replays old ones, and calls without an id run."""
    async with bench(store=MemoryStore(max_entries=1)) as b:
        assert await b.code("write", {"tag": "t"}, request_id="r") == "ok"
        result = await b.refused("IDEMPOTENCY_CAPACITY", "write", {"tag": "t"}, request_id="s")
        assert result.error.category == "capacity"
        assert (await b.call("write", {"tag": "t"}, request_id="r")).replayed
        assert await b.code("write", {"tag": "t"}) == "ok"
        assert await b.effects("t") == 2


async def test_replays_end_with_the_retention():
    """A completed id replays until its retention is over, then it is a new request."""
    now = 1000.0
    async with bench(store=MemoryStore(retention=60, clock=lambda: now)) as b:
        b.store._clock = lambda: now
        await b.call("write", {"tag": "t"}, request_id="r")
        entry = await b.entry("r")
        assert entry is not None
        assert entry.finished_at is not None
        now = entry.finished_at + 59
        assert (await b.call("write", {"tag": "t"}, request_id="r")).replayed
        now = entry.finished_at + 61
        assert not (await b.call("write", {"tag": "t"}, request_id="r")).replayed
        assert code(await b.call("write", {"tag": "t"}, request_id="r")) == "ok"


async def test_a_memory_store_counts_bytes():
    """Outputs count: in a store that is full by bytes, answers that may be repeated give way, and the others never do."""
    store = MemoryStore(max_bytes=3000)
    async with bench(store=store) as b:
        assert await b.code("echo", {"text": "x" * 2000}, request_id="read") == "ok"
        assert (await b.call("echo", {"text": "x" * 2000}, request_id="read")).replayed
        for name in "abcde":
            assert await b.code("write", {"tag": name}, request_id=name) == "ok"
        assert await b.code("write", {"tag": "f"}, request_id="f") == "IDEMPOTENCY_CAPACITY"
        for name in "abcde":
            assert (await b.call("write", {"tag": name}, request_id=name)).replayed
