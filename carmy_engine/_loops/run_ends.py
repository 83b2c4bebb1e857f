"""Ends of runs in another thread, for the tasks of a trio run that wait for them.

The leader/followers pattern: one of the waiting tasks, the leader, attends to the wake-up and wakes the others. So the end of a single run
wakes its task directly, and all ends until then cost one wake-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from .wake_up import WakeUp


class Run(Protocol):
    """Code that runs in the other thread.

    Attributes:
        finished: Set by `resolve`.
    """

    finished: bool

    def resolve(self) -> None:
        """Note the end. Called in the trio thread."""
        ...


class RunEnds:
    """Carries the ends of runs from another thread to the current trio run. `close` follows."""

    def __init__(self) -> None:
        self._reported: deque[Run] = deque()
        self._leader: Run | None = None
        self._followers: dict[Run, trio.lowlevel.Task] = {}
        self._wake_up = WakeUp(self._resolve)
        self._wake_up.start()
        self._wake_up.leave()

    def report(self, run: Run) -> None:
        """Report an end. Called in the other thread."""
        self._reported.append(run)
        self._wake_up.send()

    async def wait(self, run: Run) -> None:
        """Wait until a run has ended and is resolved. No checkpoint if its end was reported before."""
        if self._leader is not None:
            await self._follow(run)
            if self._leader is not run:
                return
        self._leader = run
        self._wake_up.attend()
        try:
            self._resolve()
            while not run.finished:
                await self._wake_up.wait(self._reported.__len__)
                self._resolve()
        finally:
            self._leader = None
            self._wake_up.leave()
            self._resolve()
            if self._followers:
                self._leader, task = self._followers.popitem()
                self._wake_up.attend()
                trio.lowlevel.reschedule(task)

    def close(self) -> None:
        """Release the socket. No task waits."""
        self._wake_up.close()

    async def _follow(self, run: Run) -> None:
        """Wait until a run has ended, or becomes the leader."""

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            del self._followers[run]
            return trio.lowlevel.Abort.SUCCEEDED

        self._followers[run] = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _resolve(self) -> None:
        while self._reported:
            run = self._reported.popleft()
            run.resolve()
            if (task := self._followers.pop(run, None)) is not None:
                trio.lowlevel.reschedule(task)
