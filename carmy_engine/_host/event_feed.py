"""The events of one execution, on their way from the trio thread to a reader in another thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from .._execution.event_stream import PROGRESS_BYTES
from .._loops.dispatcher import RunSoon
from .._model.events import ExecutionEvent, ToolProgress
from .._model.protocols import Executor
from .._model.request import ExecutionRequest

MAX_UNREAD_BYTES = 64 * 1024
"""Limit for events that have left the stream and wait for the reader. Beyond it, the stream itself is not read, which has its own
limit. One event may exceed it."""


class EventFeed:
    """A bounded queue between two threads.

    Args:
        executor: Runs the request, in the trio thread.
        request: The request.
        run_soon: Calls a function in the trio thread.
        notify: Called in the trio thread after an event was added.
    """

    def __init__(
        self, executor: Executor, request: ExecutionRequest, run_soon: RunSoon, notify: Callable[[], object]
    ) -> None:
        self._executor = executor
        self._request = request
        self._run_soon = run_soon
        self._notify = notify
        self._events: deque[ExecutionEvent] = deque()
        # Each thread writes one of the two: their difference is the size of what is unread.
        self._added_bytes = 0
        self._taken_bytes = 0
        self._room: trio.Event | None = None

    async def run(self) -> None:
        """Run the request, in the trio thread."""
        async with self._executor.stream(self._request) as channel:
            async for event in channel:
                self._added_bytes += _size(event)
                self._events.append(event)
                self._notify()
                await self._wait_for_room()

    def take(self) -> ExecutionEvent | None:
        """The next event; None if there is none now. For one reader at a time, in any thread."""
        try:
            event = self._events.popleft()
        except IndexError:
            return None
        self._taken_bytes += _size(event)
        if self._room is not None:
            self._run_soon(self._resume)
        return event

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._room = trio.Event()
            if self._is_full():  # once more: the reader looks for the event after it has taken one
                await self._room.wait()
        self._room = None

    def _is_full(self) -> bool:
        return self._added_bytes - self._taken_bytes > MAX_UNREAD_BYTES

    def _resume(self) -> None:
        if self._room is not None:
            self._room.set()


def _size(event: ExecutionEvent) -> int:
    return PROGRESS_BYTES + len(event.partial_json or b"") if isinstance(event, ToolProgress) else PROGRESS_BYTES
