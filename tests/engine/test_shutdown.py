"""The end of an engine."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import ClosedError, Settings
from tests.engine.kit import bench, code, request, told


async def test_new_calls_are_refused():
    """From the first moment of shutdown new calls are ``SHUTTING_DOWN``: never started, retryable, with a time to wait."""
    async with bench() as b:
        b.engine.stop()
        assert b.engine.stopping.is_set()
        assert not b.engine.stopped.is_set()
        result = await b.refused("SHUTTING_DOWN", "write", {"tag": "t"}, request_id="r")
        assert result.error.retryable
        assert result.error.retry_after > 0
        assert result.error.category == "capacity"
        assert told(result)["phase"] == "waiting"
        assert await b.state("r") == "free"
        assert await b.effects("t") == 0


async def test_running_ones_may_finish(autojump_clock):
    """Executions that end within the drain time are answered as usual."""
    async with bench(settings=Settings(drain_timeout_secs=10)) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "sleep", {"seconds": 5})
        await wait_all_tasks_blocked()
        start = trio.current_time()
        await b.engine.shut_down()
        assert trio.current_time() - start == pytest.approx(5)
        assert b.engine.stopped.is_set()
        assert (await call.wait()).data == "slept"


async def test_the_rest_is_cancelled(autojump_clock):
    """What still runs after the drain time is cancelled and answered as ``SHUTTING_DOWN``, running or waiting."""
    async with bench(settings=Settings(drain_timeout_secs=3)) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        running = b.start(nursery, "serial_write", {"then": "wait", "gate": gate}, request_id="r")
        await b.arrived(gate)
        waiting = await b.start_waiting(nursery, "serial_write", {"tag": "t"}, request_id="s")
        start = trio.current_time()
        await b.engine.shut_down()
        assert trio.current_time() - start == pytest.approx(3)
        for call, phase in ((running, "running"), (waiting, "waiting")):
            result = await call.wait()
            assert code(result) == "SHUTTING_DOWN"
            assert told(result) == {"phase": phase, "cause": "shutdown"}
            assert result.error.retryable is (phase == "waiting")
        assert (await b.state("r"), await b.state("s")) == ("interrupted", "free")
        assert b.running == 0
        assert await b.effects("t") == 0


async def test_an_idle_engine_stops_at_once(autojump_clock):
    """Without executions shutdown takes no time, and may be asked for twice."""
    async with bench() as b:
        start = trio.current_time()
        await b.engine.shut_down()
        await b.engine.shut_down()
        assert trio.current_time() == start
        assert b.engine.stopped.is_set()


async def test_clean_up_of_cancelled_tools_is_waited_for(autojump_clock):
    """Tools that are cancelled at shutdown have their grace; one that exceeds it holds nothing up."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        b.start(nursery, "write", {"tag": "t", "then": "wait_and_clean_up", "gate": gate})
        await b.arrived(gate)
        await b.engine.shut_down(0)
        assert await b.effects("t:cleaned") == 1


async def test_cancelled_shut_down(autojump_clock):
    """A shutdown that is cancelled while it drains cancels what runs at once, and still sets ``stopped``."""
    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        call = b.start(nursery, "write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        with trio.move_on_after(1):
            await b.engine.shut_down(100)
        assert b.engine.stopped.is_set()
        assert code(await call.wait()) == "SHUTTING_DOWN"


async def test_leaving_the_block_with_running_calls(autojump_clock):
    """Leaving the engine's block cancels what runs in other tasks, and they get their answer."""
    results = []

    async def run(b) -> None:
        results.append(await b.call("sleep", {"seconds": 100}))

    async with trio.open_nursery() as nursery, bench() as b:
        nursery.start_soon(run, b)
        await wait_all_tasks_blocked()
    assert [code(result) for result in results] == ["SHUTTING_DOWN"]


async def test_use_after_close():
    """After its block an engine, and every view of it, raises `ClosedError`, naming the engine."""
    async with bench(settings=Settings(name="shop")) as b:
        view = b.engine.bind(principal="ana")
    for executor in (b.engine, view):
        with pytest.raises(ClosedError, match="shop"):
            await executor.execute(request("read"))
        with pytest.raises(ClosedError):
            executor.stream(request("read"))
        with pytest.raises(ClosedError):
            await executor.catalog()


async def test_the_store_is_closed_with_the_engine():
    """The engine closes its store, also when its block fails, and the block's own exception is not wrapped."""
    from carmy_engine.stores.memory import MemoryStore

    closed = []

    class Store(MemoryStore):
        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()
            closed.append(True)

    async with bench(store=Store()):
        pass
    with pytest.raises(LookupError, match="mine"):
        async with bench(store=Store()):
            raise LookupError("mine")
    with trio.CancelScope() as scope:
        async with bench(store=Store()):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert closed == [True, True, True]


async def test_draining_answers_replays_no_more():
    """A replay while draining is refused as well: it is a new call."""
    async with bench() as b:
        await b.call("write", request_id="r")
        b.engine.stop()
        assert await b.code("write", request_id="r") == "SHUTTING_DOWN"
