"""Wait for the end of the execution that holds a request_id: it tells those in its own process; the store tells the others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator

import trio

from .._execution.execution import Execution
from .._model.reservation import Reservation, ReservationState

FIRST_PAUSE_SECONDS = 0.02
"""Before the store is asked again about an execution of another process; doubled each time. About what a quick tool takes."""

MAX_PAUSE_SECONDS = 1.0
"""Longest of these pauses: what an answer may come late, for one transaction a second and joiner."""

Again = Callable[[], Awaitable[Reservation | None]]
"""Tries once more to reserve: None when it is ours now, otherwise the entry that is there."""


class Joins:
    """Who waits for the end of which execution.

    Joiners are executions themselves, so that ``max_executions`` bounds them, and their deadlines bound their wait. Nothing of
    the execution that they wait for knows of them.

    Args:
        runs_here: Whether an execution is one of this process and goes on. All of those tell when they let go of their
            request_id, by `ended`; about others the store has to be asked.
    """

    def __init__(self, runs_here: Callable[[str], bool]) -> None:
        self._runs_here = runs_here
        self._crowds: dict[str, _Crowd] = {}

    def ended(self, execution_id: str) -> None:
        """An execution of this process has let go of its request_id, as far as it could."""
        if self._crowds and (crowd := self._crowds.pop(execution_id, None)) is not None:
            crowd.ended.set()

    async def wait(self, entry: Reservation, execution: Execution, again: Again) -> Reservation | None:
        """Wait as long as the same request runs, in whichever execution.

        If cancelled, nothing is left behind, unless by `again`.

        Args:
            entry: The running one that was found.
            execution: Who waits.
            again: Asked when the end may have come.

        Returns:
            What `again` gave last: None, or an entry that does not run or is another request's.
        """
        execution.start_deadline()
        found: Reservation | None = entry
        pause = FIRST_PAUSE_SECONDS
        while found is not None and found.state is ReservationState.RUNNING and found.fingerprint == entry.fingerprint:
            holder = found.execution_id
            execution.mark_joined(holder)
            with self._place(holder) as ended:
                found = await again()  # an end before this has been seen now, and one after it will be told
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
        """Be among those that `ended` tells, for the length of a block."""
        crowd = self._crowds.setdefault(execution_id, _Crowd())
        crowd.size += 1
        try:
            yield crowd.ended
        finally:
            crowd.size -= 1
            if crowd.size == 0 and not crowd.ended.is_set():
                del self._crowds[execution_id]


class _Crowd:
    """Those who wait for one execution."""

    __slots__ = ("ended", "size")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.size = 0
