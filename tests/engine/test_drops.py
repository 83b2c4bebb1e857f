"""Callers that go away at any moment leave nothing behind."""

from __future__ import annotations

import random

import pytest
import trio

from carmy_engine import Settings
from carmy_engine.abc import ReservationState
from tests.engine.kit import bench, request

CALLS = 2000
NAMES = ["read", "write", "serial_write", "idempotent_write", "serial_read"]
ENDINGS = ["return", "wait_and_clean_up", "wait", "wait_in_nursery", "error", "crash", "wait_stubbornly"]


@pytest.mark.parametrize("seed", range(3))
async def test_calls_dropped_at_random(seed, autojump_clock, caplog):
    """2,000 calls dropped at random moments leave no task, no running execution and no held turn; each has one record."""
    caplog.set_level("CRITICAL", "carmy")
    dice = random.Random(seed)
    async with bench(settings=Settings(max_executions=CALLS, timeout_secs=5)) as b:
        tasks = trio.lowlevel.current_statistics().tasks_living

        async def drop(number: int, name: str, then: str, patience: float, steps: int, stream: bool) -> None:
            wanted = request(name, {"then": then, "gate": "never", "tag": str(number)}, request_id=f"r{number}")
            await trio.sleep(patience)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(leave, scope, steps)
                    if stream:
                        async with b.engine.stream(wanted) as channel:
                            async for _ in channel:
                                pass
                    else:
                        await b.engine.execute(wanted)
                    nursery.cancel_scope.cancel()

        async def leave(scope: trio.CancelScope, steps: int) -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await trio.sleep(steps / 10)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(
                    drop,
                    number,
                    dice.choice(NAMES),
                    dice.choice(ENDINGS),
                    dice.random() * 20,
                    dice.randrange(12),
                    dice.random() < 0.3,
                )
        assert b.running == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert len(b.sink) == CALLS
        assert len({record.execution_id for record in b.sink}) == CALLS
        for name in ("serial_write", "serial_read"):
            turn = b.engine._pipeline.registry._tools[name].turn
            assert turn is not None
            assert turn.waiting == 0
            assert turn.take_at_once()
        by_id = {record.request_id: record for record in b.sink}
        for number in range(CALLS):
            entry = await b.entry(f"r{number}")
            record = by_id[f"r{number}"]
            assert entry is None or entry.state is not ReservationState.RUNNING
            if record.status == "completed":
                assert entry is not None
                assert entry.state is ReservationState.COMPLETED
            if b.stage.effects(str(number)) == 0:
                assert entry is None
