"""One task that looks after all connections of the native front end, so that none needs a timer or a task of its own.

A connection only says that something new has begun, and how long that may go on; nobody looks at a clock for it. Going round, the
keeper sees which have not moved since it was there last. Most requests have come and gone between two rounds. Those that do not move
are left in peace until the first of them is due, so that thousands that wait cost the others nothing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from carmy_engine.transport import RateLimitedLogger, contain

PAUSE_SECONDS = 0.02
"""Between two rounds. Bounds what they cost however busy the server is. What is due is noticed at most two pauses late."""


class Kept(Protocol):
    """What is looked after.

    Attributes:
        step: Another number whenever something new has begun.
        limit: How long that may go on without another step, in seconds.
        seen_step: The keeper's: `step` as of the last round.
        seen_at: The keeper's: when it saw it first, in trio's time.
        still: The keeper's: it has not moved for a round. Who begins something then calls `Keeper.wake`.
    """

    step: int
    limit: float
    seen_step: int
    seen_at: float
    still: bool

    def attend(self) -> None:
        """It has gone on for too long. Sets another limit."""
        ...


class Keeper:
    """Calls `Kept.attend` when it is time. `add` and `discard` what is to be looked after.

    Args:
        log: For connections that fail.
    """

    def __init__(self, log: RateLimitedLogger) -> None:
        self._log = log
        self._kept: set[Kept] = set()
        self._moving: set[Kept] = set()
        """Those that are not still."""
        self._due = math.inf
        """When the first of the still ones is, at the earliest; in trio's time."""
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, kept: Kept) -> None:
        """Look after it, until `discard`."""
        self._kept.add(kept)
        self.wake(kept)

    def discard(self, kept: Kept) -> None:
        """Stop looking after it."""
        self._kept.discard(kept)
        self._moving.discard(kept)

    def wake(self, kept: Kept) -> None:
        """Something with a limit has begun."""
        kept.still = False
        if not self._moving:
            # Never later than it is: connections that come and go would put off what is due on others for ever.
            self._scope.deadline = min(self._scope.deadline, trio.current_time() + PAUSE_SECONDS)
        self._moving.add(kept)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that helps a connection; it must end with it."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                pause = PAUSE_SECONDS if self._moving else max(self._due - trio.current_time(), PAUSE_SECONDS)
                with trio.CancelScope(relative_deadline=pause) as self._scope:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
                self._go_round()

    def _go_round(self) -> None:
        now = trio.current_time()
        round_ = [*self._moving]
        if self._due <= now:
            round_ = [*self._kept]
            self._due = math.inf
        for kept in round_:
            if kept.step != kept.seen_step:
                kept.seen_step = kept.step
                kept.seen_at = now
                continue
            kept.still = True
            self._moving.discard(kept)
            if kept.seen_at + kept.limit <= now:
                self._attend(kept)
            self._due = min(self._due, kept.seen_at + kept.limit)

    def _attend(self, kept: Kept) -> None:
        try:
            kept.attend()
        except BaseException as error:  # noqa: BLE001 - the boundary round a connection: the keeper looks after all the others
            kept.limit = math.inf
            contain(error, self._log, "a connection failed")
