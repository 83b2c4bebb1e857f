"""Time limits of the native front end's connections."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from carmy_engine.transport import RateLimitedLogger
from carmy_http.native.connection import Timer
from carmy_http.native.timeouts import PAUSE_SECONDS, Timeouts


class CountedTimer(Timer):
    """A timer that counts the reads of its step."""

    __slots__ = ("reads",)

    def __init__(self, timeouts: Timeouts) -> None:
        self.reads = 0
        super().__init__(timeouts)

    def __getattribute__(self, name: str) -> Any:
        if name == "step":
            self.reads += 1
        return super().__getattribute__(name)


class Connection:
    """A connection with a time limit, which stores the times of its timeouts."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timer = CountedTimer(timeouts)
        self.timed_out: list[float] = []
        timeouts.add(self.timer, self._on_timeout)

    def _on_timeout(self) -> None:
        self.timed_out.append(trio.current_time())
        self.timer.stop()


async def checked(nursery: trio.Nursery, count: int) -> tuple[Timeouts, list[Connection]]:
    timeouts = Timeouts(RateLimitedLogger(logging.getLogger("carmy.http")))
    await nursery.start(timeouts.run)
    return timeouts, [Connection(timeouts) for _ in range(count)]


@pytest.mark.parametrize("seconds", [0.005, 10.0, 75.0])
async def test_a_timeout_is_detected_once(nursery: trio.Nursery, autojump_clock: MockClock, seconds: float) -> None:
    """A connection that goes on for too long times out at most two pauses late, and not again."""
    _, (late, idle) = await checked(nursery, 2)
    await trio.sleep(1)  # both are idle by now
    for _ in range(2):
        late.timer.start(seconds)
        began = trio.current_time()
        await trio.sleep(seconds + 1)
        assert len(late.timed_out) == 1
        assert seconds <= late.timed_out.pop() - began <= max(seconds, PAUSE_SECONDS) + 2 * PAUSE_SECONDS
    assert not idle.timed_out


async def test_a_connection_that_begins_steps_does_not_time_out(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A connection on which something begins again and again is left alone, and so is one that has been discarded."""
    timeouts, (busy, gone) = await checked(nursery, 2)
    gone.timer.start(0.5)
    timeouts.discard(gone.timer)
    for _ in range(40):
        busy.timer.start(0.5)
        await trio.sleep(0.4)
    assert len(timeouts) == 1
    assert not busy.timed_out
    assert not gone.timed_out


async def test_idle_connections_cost_nothing(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """While one connection is busy for a minute, no idle timer is checked."""
    _, (busy, *idle) = await checked(nursery, 100)
    idle[0].timer.start(75)
    await trio.sleep(1)
    reads = [connection.timer.reads for connection in idle]
    before = busy.timer.reads
    for _ in range(6000):
        busy.timer.start(75)
        await trio.sleep(0.01)
    assert busy.timer.reads - before > 1000
    assert [connection.timer.reads for connection in idle] == reads


async def test_connections_that_come_and_go_delay_no_timeout(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """While connections come and go between two rounds, again and again, the timeout of another one is detected in time."""
    timeouts, (late,) = await checked(nursery, 1)
    await trio.sleep(1)
    late.timer.start(2.0)
    began = trio.current_time()
    await trio.sleep(0.5)
    while trio.current_time() < began + 3:
        short = Connection(timeouts)
        await trio.sleep(PAUSE_SECONDS / 2)
        timeouts.discard(short.timer)
    assert len(late.timed_out) == 1
    assert late.timed_out[0] - began <= 2.0 + 2 * PAUSE_SECONDS
