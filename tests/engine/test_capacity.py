"""How many executions run at one time."""

from __future__ import annotations

import trio

from carmy_engine import Settings
from tests.engine.kit import bench, code


async def test_a_full_engine_refuses():
    """More executions than the limit are ``OVERLOADED``: capacity, retryable, with a time to wait; their ids stay free."""
    async with bench(settings=Settings(max_executions=3)) as b:
        gate = b.gate()
        async with trio.open_nursery() as nursery:
            calls = [b.start(nursery, "read", {"then": "wait", "gate": gate}) for _ in range(3)]
            await b.arrived(gate, 3)
            assert b.running == 3
            refused = await b.refused("OVERLOADED", "write", {"tag": "t"}, request_id="r")
            assert refused.error.category == "capacity"
            assert refused.error.retryable
            assert refused.error.retry_after > 0
            assert await b.state("r") == "free"
            assert b.running == 3
            await calls[0].leave()
            assert await b.code("write", {"tag": "t"}, request_id="r") == "ok"
            await b.open(gate)
        assert b.running == 0


async def test_waiting_calls_count():
    """A call that waits for its turn takes a place: the bound is on everything that was accepted."""
    async with bench(settings=Settings(max_executions=2)) as b, trio.open_nursery() as nursery:
        gate = b.gate()
        b.start(nursery, "serial_write", {"then": "wait", "gate": gate})
        await b.arrived(gate)
        await b.start_waiting(nursery, "serial_write")
        assert await b.code("read") == "OVERLOADED"
        await b.open(gate)


async def test_places_are_given_back_on_every_way_out():
    """Refusals, failures and crashes give their place back."""
    async with bench(settings=Settings(max_executions=1)) as b:
        for then in ("return", "error", "crash", "exit", "own_base_exception", "invalid_output", "large_output"):
            assert await b.code("write", {"then": then}) != "OVERLOADED"
        for name in ("nobody", "destructive"):
            await b.call(name)
        assert await b.code("write", request_id="r") == "ok"
        assert (await b.call("write", request_id="r")).replayed
        assert await b.code("write") == "ok"
        assert b.running == 0


async def test_a_loop_of_quick_calls_lets_others_run():
    """A caller that does nothing but call quick tools does not hold the event loop."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.lowlevel.checkpoint()
            ticks += 1

    async with bench() as b, trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        while ticks < 3:
            assert code(await b.call("echo", {"text": "a"})) == "ok"
        nursery.cancel_scope.cancel()
