"""One task that looks after all connections of the native front end, so that none needs a timer or a task of its own.

A connection only says that something new has begun, and how long that may go on; nobody looks at a clock for it. Going round, the
keeper sees which have not moved since it was there last. Most requests have come and gone between two rounds.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

PAUSE_SECONDS = 0.02
"""Between two rounds. Bounds what they cost however busy the server is. What is due is noticed at most two pauses late."""


class Kept(Protocol):
    """What is looked after.

    Attributes:
        step: Another number whenever something new has begun.
        limit: How long that may go on without another step, in seconds.
        seen_step: The keeper's: `step` as of the last round.
        seen_at: The keeper's: when it saw it first, in trio's time.
    """

    step: int
    limit: float
    seen_step: int
    seen_at: float

    def attend(self) -> None:
        """It has gone on for too long. Sets another limit."""
        ...


class Keeper:
    """Calls `Kept.attend` when it is time. `add` and `discard` what is to be looked after.

    Attributes:
        rests: Nothing has begun lately. Who begins something calls `wake`.
    """

    def __init__(self) -> None:
        self._kept: set[Kept] = set()
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self.rests = False

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        """Look after it, until `discard`."""
        self._kept.add(kept)
        self.wake()

    def discard(self, kept: Kept) -> None:
        """Stop looking after it."""
        self._kept.discard(kept)

    def wake(self) -> None:
        """Something with a limit has begun."""
        if self.rests:
            self.rests = False
            self._scope.deadline = trio.current_time() + PAUSE_SECONDS

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that helps a connection; it must end with it."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            pause = PAUSE_SECONDS
            while True:
                with trio.CancelScope(relative_deadline=pause) as self._scope:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
                pause = max(self._go_round(), PAUSE_SECONDS)

    def _go_round(self) -> float:
        """Returns when to go the next time, in seconds."""
        now = trio.current_time()
        self.rests = True
        wait = math.inf
        for kept in list(self._kept):
            if kept.step != kept.seen_step:
                kept.seen_step = kept.step
                kept.seen_at = now
                self.rests = False
            left = kept.seen_at + kept.limit - now
            if left <= 0:
                kept.attend()
                left = kept.limit
            wait = min(wait, left)
        return wait if self.rests else 0.0
