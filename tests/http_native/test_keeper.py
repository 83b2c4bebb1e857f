"""Looking after all connections of the native front end."""

from __future__ import annotations

import logging
import math

import pytest
import trio
from trio.testing import MockClock

from carmy_engine.transport import RateLimitedLogger
from carmy_http.native.timeouts import PAUSE_SECONDS, Keeper


class Connection:
    """Something to look after, that counts how often somebody looks."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.limit = math.inf
        self.seen_step = -1
        self.seen_at = 0.0
        self.still = False
        self.looks = 0
        self.attended: list[float] = []
        self._step = 0

    @property
    def step(self) -> int:
        self.looks += 1
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        self._step = step

    def begin(self, seconds: float) -> None:
        self.limit = seconds
        self._step += 1
        if self.still:
            self.keeper.wake(self)

    def attend(self) -> None:
        self.attended.append(trio.current_time())
        self.limit = math.inf


async def kept(nursery: trio.Nursery, count: int) -> tuple[Keeper, list[Connection]]:
    keeper = Keeper(RateLimitedLogger(logging.getLogger("carmy.http")))
    await nursery.start(keeper.run)
    connections = [Connection(keeper) for _ in range(count)]
    for connection in connections:
        keeper.add(connection)
    return keeper, connections


@pytest.mark.parametrize("seconds", [0.005, 10.0, 75.0])
async def test_what_is_due_is_noticed_once(nursery: trio.Nursery, autojump_clock: MockClock, seconds: float) -> None:
    """A connection that goes on for too long is attended to at most two pauses late, and not again."""
    _, (late, idle) = await kept(nursery, 2)
    await trio.sleep(1)  # both are still by now
    for _ in range(2):
        late.begin(seconds)
        began = trio.current_time()
        await trio.sleep(seconds + 1)
        assert len(late.attended) == 1
        assert seconds <= late.attended.pop() - began <= max(seconds, PAUSE_SECONDS) + 2 * PAUSE_SECONDS
    assert not idle.attended


async def test_who_moves_is_not_late(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A connection on which something begins again and again is left alone, and so is one that has been discarded."""
    keeper, (busy, gone) = await kept(nursery, 2)
    gone.begin(0.5)
    keeper.discard(gone)
    for _ in range(40):
        busy.begin(0.5)
        await trio.sleep(0.4)
    assert len(keeper) == 1
    assert not busy.attended
    assert not gone.attended


async def test_connections_that_wait_cost_nothing(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """While one connection is busy for a minute, nobody looks at those on which nothing begins."""
    _, (busy, *still) = await kept(nursery, 100)
    still[0].begin(75)
    await trio.sleep(1)
    looks = [connection.looks for connection in still]
    before = busy.looks
    for _ in range(6000):
        busy.begin(75)
        await trio.sleep(0.01)
    assert busy.looks - before > 1000
    assert [connection.looks for connection in still] == looks


async def test_who_comes_and_goes_holds_up_nobody(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """While connections come and go between two rounds, again and again, what is due on another one is noticed in time."""
    keeper, (late,) = await kept(nursery, 1)
    await trio.sleep(1)
    late.begin(2.0)
    began = trio.current_time()
    await trio.sleep(0.5)
    while trio.current_time() < began + 3:
        short = Connection(keeper)
        keeper.add(short)
        await trio.sleep(PAUSE_SECONDS / 2)
        keeper.discard(short)
    assert len(late.attended) == 1
    assert late.attended[0] - began <= 2.0 + 2 * PAUSE_SECONDS
