"""One task that looks after all connections of the native front end, so that none needs a timer or a task of its own.

A connection writes down when it wants to be looked after (`due`), which costs a comparison. Most requests are over before
that time comes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

PAUSE_SECONDS = 0.02
"""Between two rounds. Bounds what the rounds cost however busy the server is; a disconnect is noticed this much later."""


class Kept(Protocol):
    """What is looked after.

    Attributes:
        due: When, in trio's time.
    """

    due: float

    def attend(self) -> None:
        """`due` is over. Sets another one."""
        ...


class Keeper:
    """Calls `Kept.attend` when it is time. `add` and `discard` what is to be looked after."""

    def __init__(self) -> None:
        self._kept: set[Kept] = set()
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self.next_round = math.inf

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        """Look after it, until `discard`."""
        self._kept.add(kept)
        if kept.due < self.next_round:
            self.hurry(kept.due)

    def discard(self, kept: Kept) -> None:
        """Stop looking after it."""
        self._kept.discard(kept)

    def hurry(self, due: float) -> None:
        """Be there at that time, which is before `next_round`."""
        self.next_round = self._scope.deadline = due

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that helps a connection; it must end with it."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                with trio.CancelScope(deadline=self.next_round) as self._scope:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
                self._go_round()

    def _go_round(self) -> None:
        now = trio.current_time()
        next_due = math.inf
        self.next_round = -math.inf  # what becomes due meanwhile is found below
        for kept in list(self._kept):
            if kept.due <= now:
                kept.attend()
            next_due = min(next_due, kept.due)
        self.next_round = max(next_due, now + PAUSE_SECONDS)
