"""Turns: at most one call at a time for a tool that is not parallel-safe, first come first served."""

from __future__ import annotations

from collections import deque

import trio

from .._model.errors import AgentError

BUSY_RETRY_SECONDS = 1
"""``retry_after`` of ``TOOL_BUSY``."""


class Turn:
    """The exclusive slot of one tool."""

    __slots__ = ("_held", "_max_waiting", "_queue", "_tool")

    def __init__(self, tool: str, max_waiting: int) -> None:
        self._tool = tool
        self._max_waiting = max_waiting
        self._held = False
        self._queue: deque[trio.Event] = deque()

    @property
    def waiting(self) -> int:
        """Number of waiting calls."""
        return len(self._queue)

    def take_at_once(self) -> bool:
        """Take the turn if it is free, without a trip through the scheduler."""
        if self._held:
            return False
        self._held = True
        return True

    async def take(self) -> None:
        """Wait for the turn. If cancelled, the call leaves the queue without the turn.

        Raises:
            AgentError: ``TOOL_BUSY``, at once, when too many calls wait already.
        """
        if len(self._queue) >= self._max_waiting:
            raise AgentError.standard(
                "TOOL_BUSY",
                f"{self._max_waiting} calls already wait for their turn with {self._tool}",
                retry_after=BUSY_RETRY_SECONDS,
            )
        mine = trio.Event()
        self._queue.append(mine)
        try:
            await mine.wait()
        except trio.Cancelled:
            if mine.is_set():
                self.free()  # it was handed over in the same moment
            else:
                self._queue.remove(mine)
            raise

    def free(self) -> None:
        """Pass the turn to the next waiter, or release it if there is none."""
        if self._queue:
            self._queue.popleft().set()
        else:
            self._held = False
