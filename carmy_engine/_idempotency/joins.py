"""Waiting for the execution that holds a request_id: through an event in its own process, by polling the store in others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator

import trio

from .._execution.execution import Execution
from .._model.reservation import Reservation, ReservationState

FIRST_PAUSE_SECONDS = 0.02
"""First pause between two polls of the store for an execution of another process, doubled each time. About a quick tool's time."""

MAX_PAUSE_SECONDS = 1.0
"""Longest pause between polls: it bounds the delay of an answer, and costs one transaction a second for each joiner."""

Again = Callable[[], Awaitable[Reservation | None]]
"""Tries to reserve again: returns None on success, otherwise the existing entry."""


class Joins:
    """Joiners of running executions.

    Joiners are executions themselves: ``max_executions`` bounds their number, and their deadlines bound their wait. The joined
    execution holds no reference to them.

    Args:
        runs_here: True if an execution runs in this process. Such an execution calls `ended` when it releases its request_id;
            the store is polled for all others.
    """

    def __init__(self, runs_here: Callable[[str], bool]) -> None:
        self._runs_here = runs_here
        self._crowds: dict[str, _Crowd] = {}

    def ended(self, execution_id: str) -> None:
        """Wake the joiners of an execution of this process that has settled its request_id, or failed to."""
        if self._crowds and (crowd := self._crowds.pop(execution_id, None)) is not None:
            crowd.ended.set()

    async def wait(self, entry: Reservation, execution: Execution, again: Again) -> Reservation | None:
        """Wait while the same request runs, in any execution.

        If cancelled, it leaves nothing behind, except the effect of `again`.

        Args:
            entry: The running entry.
            execution: The joiner.
            again: Called when the joined execution may have ended.

        Returns:
            The last result of `again`: None, or an entry that is not running or belongs to another request.
        """
        execution.start_deadline()
        found: Reservation | None = entry
        pause = FIRST_PAUSE_SECONDS
        while found is not None and found.state is ReservationState.RUNNING and found.fingerprint == entry.fingerprint:
            holder = found.execution_id
            execution.mark_joined(holder)
            with self._place(holder) as ended:
                found = await again()  # shows an end before this line; a later end sets the event
                if found is None or found.execution_id != holder or found.state is not ReservationState.RUNNING:
                    pause = FIRST_PAUSE_SECONDS
                    continue
                with trio.move_on_after(math.inf if self._runs_here(holder) else pause):
                    await ended.wait()
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        execution.stops_waiting()
        execution.joined = None
        return found

    @contextlib.contextmanager
    def _place(self, execution_id: str) -> Iterator[trio.Event]:
        """Register a joiner for the length of a block; `ended` sets its event."""
        crowd = self._crowds.setdefault(execution_id, _Crowd())
        crowd.size += 1
        try:
            yield crowd.ended
        finally:
            crowd.size -= 1
            if crowd.size == 0 and not crowd.ended.is_set():
                del self._crowds[execution_id]


class _Crowd:
    """The joiners of one execution."""

    __slots__ = ("ended", "size")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.size = 0
