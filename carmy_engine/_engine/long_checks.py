"""Checks of long arguments in worker threads: few at once, abandoned with their call."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from .._model.error_boundary import call_foreign
from .._model.errors import AgentError
from .._schema.bounded_validator import TakesLong
from .._schema.work import Work

MAX_AT_ONCE = 2
"""Checks at the same time: one costs up to `work.MAX_BYTES`, and each makes the event loop wait for its turn of the
interpreter (5 ms)."""

MAX_WAITING = 100
"""Calls that wait for one of them, each with its arguments."""

RETRY_SECONDS = 1
"""What a caller is told to wait when that many wait."""


class LongChecks:
    """The threads of one engine that check long arguments."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(MAX_AT_ONCE)
        self._running = 0
        self._resumes_collection = False

    async def run(self, long: TakesLong) -> dict[str, Any]:
        """Check arguments; return them. If cancelled, the check stops at its next step, and its thread is free then.

        Raises:
            AgentError: ``INVALID_ARGUMENTS``; ``OVERLOADED``, when too many calls wait for this.
            Fault: A validator of the tool's author failed.
        """
        if self._limiter.statistics().tasks_waiting >= MAX_WAITING:
            raise AgentError.standard(
                "OVERLOADED", f"{MAX_WAITING} calls with long arguments are waiting", retry_after=RETRY_SECONDS
            )
        work = Work()
        try:
            with self._without_collection():
                return await trio.to_thread.run_sync(
                    lambda: call_foreign(long.check, work), abandon_on_cancel=True, limiter=self._limiter
                )
        finally:
            work.abandoned = True

    @contextmanager
    def _without_collection(self) -> Iterator[None]:
        """No garbage collection meanwhile: all that a check makes is in use, and looking through it holds the loop."""
        if self._running == 0:
            self._resumes_collection = gc.isenabled()
            gc.disable()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0 and self._resumes_collection:
                gc.enable()
