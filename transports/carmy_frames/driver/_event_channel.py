"""The event channel of one call, from the task that reads the connection to the caller."""

from __future__ import annotations

from collections import deque

import msgspec
import trio

from carmy_engine import ExecutionCompleted, ExecutionEvent, ExecutionResult, ExecutionStarted, ToolProgress

MAX_BUFFERED_BYTES = 4 * 1024 * 1024
"""Limit of unread partial results in one stream. Beyond it the connection is not read, for any call."""


class EventChannel(trio.abc.ReceiveChannel[ExecutionEvent]):
    """A channel of events. Unread progress reports merge into the newest; every other event is kept.

    ``seq`` is assigned when an event is read, so that merging leaves no gaps.
    """

    def __init__(self) -> None:
        self._events: deque[ExecutionEvent] = deque()
        self._bytes = 0
        self._seq = 0
        self._error: Exception | None = None
        self._closed = False
        self._readable = trio.Event()
        self._drained = trio.Event()

    async def receive(self) -> ExecutionEvent:
        """Wait for the next event.

        Raises:
            trio.EndOfChannel: After ``execution.completed``.
            trio.ClosedResourceError: The channel was closed.
            OutcomeUnknownError: The connection was lost.
            ClosedError: The connection was lost before the call was sent.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._events:
            if self._closed:
                raise trio.ClosedResourceError
            if self._error is not None:
                raise self._error
            self._readable = trio.Event()
            await self._readable.wait()
        event = self._events.popleft()
        self._bytes -= _size_of(event)
        self._drained.set()
        if event.seq != self._seq:
            event = msgspec.structs.replace(event, seq=self._seq)
        self._seq += 1
        if isinstance(event, ExecutionCompleted):
            self._error = trio.EndOfChannel()
        return event

    async def aclose(self) -> None:
        """Stop reading. Leaving the block of `stream` cancels the call, not this method."""
        self.stop()
        await trio.lowlevel.checkpoint()

    async def put(self, event: ExecutionEvent) -> None:
        """Add an event; wait while unread partial results exceed the limit."""
        size = _size_of(event)
        while self._bytes and self._bytes + size > MAX_BUFFERED_BYTES and not self._closed:
            self._drained = trio.Event()
            await self._drained.wait()
        if self._closed:
            return
        newest = self._events[-1] if self._events else None
        if _is_report(event) and newest is not None and _is_report(newest):
            self._events.pop()
        self._events.append(event)
        self._bytes += size
        self._readable.set()

    async def put_refusal(self, tool: str, result: ExecutionResult) -> None:
        """Add the two events of a request that never became an execution."""
        await self.put(ExecutionStarted(seq=0, execution_id=result.execution_id, tool=tool))
        await self.put_result(tool, result)

    async def put_result(self, tool: str, result: ExecutionResult) -> None:
        """Add the last event."""
        await self.put(ExecutionCompleted(seq=0, execution_id=result.execution_id, tool=tool, result=result))

    def fail(self, error: Exception) -> None:
        """End the stream with an error. Events that wait can still be read."""
        self._error = error
        self._readable.set()

    def stop(self) -> None:
        """Close the channel and drop its events."""
        self._closed = True
        self._events.clear()
        self._bytes = 0
        self._readable.set()
        self._drained.set()


def _is_report(event: ExecutionEvent) -> bool:
    return isinstance(event, ToolProgress) and event.partial_json is None


def _size_of(event: ExecutionEvent) -> int:
    return len(event.partial_json or b"") if isinstance(event, ToolProgress) else 0
