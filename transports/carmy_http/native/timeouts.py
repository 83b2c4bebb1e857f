"""Time limits of all native connections, checked by one task, so that no connection needs a timer or a task of its own.

A connection's `Timer` only counts its steps; starting one reads no clock. The task of `Timeouts` makes rounds, and finds the timers
whose step has not changed since the last round. Most requests begin and end between two rounds. A timer without a change is idle: it
is not checked again until the first idle timer is due, so thousands of idle connections cost a round nothing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from carmy_engine.transport import RateLimitedLogger, contain

if TYPE_CHECKING:
    from .connection import Timer  # a connection owns it, and this module serves connections

PAUSE_SECONDS = 0.02
"""Between two rounds. Bounds their cost under any load. A timeout is detected at most two pauses late."""


class Timeouts:
    """Detects the timers whose steps exceed their limits.

    Args:
        log: For connections that fail.
    """

    def __init__(self, log: RateLimitedLogger) -> None:
        self._log = log
        self._timers: dict[Timer, Callable[[], None]] = {}
        """With the functions to call."""
        self._active: set[Timer] = set()
        """Those that are not idle."""
        self._due = math.inf
        """The earliest time at which an idle timer may be due, on trio's clock."""
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, timer: Timer, on_timeout: Callable[[], None]) -> None:
        """Check a timer until `discard`.

        Args:
            timer: The timer.
            on_timeout: Called when a step exceeds its limit. Must `start` or `stop` the timer.
        """
        self._timers[timer] = on_timeout
        self.wake(timer)

    def discard(self, timer: Timer) -> None:
        """Stop checking a timer."""
        self._timers.pop(timer, None)
        self._active.discard(timer)

    def wake(self, timer: Timer) -> None:
        """Check a timer in the next round, because a step began."""
        timer.idle = False
        if not self._active:
            # Only ever earlier: connections that come and go must not postpone the timeouts of others.
            self._scope.deadline = min(self._scope.deadline, trio.current_time() + PAUSE_SECONDS)
        self._active.add(timer)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a background task for a connection. It must end with the connection."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check all timers until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                pause = PAUSE_SECONDS if self._active else max(self._due - trio.current_time(), PAUSE_SECONDS)
                with trio.CancelScope(relative_deadline=pause) as self._scope:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
                self._make_round()

    def _make_round(self) -> None:
        now = trio.current_time()
        timers = [*self._active]
        if self._due <= now:
            timers = [*self._timers]
            self._due = math.inf
        for timer in timers:
            if timer.step != timer.seen_step:
                timer.seen_step = timer.step
                timer.seen_at = now
                continue
            timer.idle = True
            self._active.discard(timer)
            if timer.seen_at + timer.limit <= now:
                self._time_out(timer)
            self._due = min(self._due, timer.seen_at + timer.limit)

    def _time_out(self, timer: Timer) -> None:
        try:
            self._timers[timer]()
        except BaseException as error:  # noqa: BLE001 - the boundary of one connection: this task serves all the others
            timer.stop()
            contain(error, self._log, "a connection failed")
