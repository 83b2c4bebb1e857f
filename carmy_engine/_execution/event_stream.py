"""Events of one execution, in a bounded buffer that merges progress reports and drops nothing else."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pydantic_core
import trio

from .._loops.running import host_caller
from .._model.client_features import LogLevel, LogLimit
from .._model.context import Progress
from .._model.error_boundary import raise_single
from .._model.errors import AgentError
from .._model.events import (
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionStarted,
    ToolCompleted,
    ToolLog,
    ToolProgress,
    ToolStarted,
    ToolWaiting,
)
from .._model.result import ExecutionResult
from .._model.text import sendable_text
from .execution import Execution

DEFAULT_MAX_PENDING_BYTES = 256 * 1024
"""Limit for partial results and progress reports that wait for the reader of one stream. A tool that exceeds it waits, within
its deadline."""

PROGRESS_BYTES = 256
"""Memory overhead of one event, added to the size of its content. Without it, many short parts, such as single words of a model,
would use fifty times the limit."""


class EventBuffer:
    """A buffer of the events of one execution. A reader subclasses it and overrides `has_news`.

    Adjacent reports merge into the newest one, and a log message without room is dropped; every other event is kept. The buffer
    holds at most six lifecycle events and one report between any two other events. Reports, parts and messages together hold at
    most `max_pending_bytes`. A single larger part and the report after the last part may exceed this limit.

    Args:
        max_pending_bytes: Beyond it, a tool that adds a part waits.
    """

    __slots__ = ("_closed", "_drained", "_events", "_finished", "_max_pending_bytes", "_pending_bytes", "_seq")

    def __init__(self, max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES) -> None:
        self._max_pending_bytes = max_pending_bytes
        self._events: deque[ExecutionEvent] | None = None  # an idle stream keeps no buffer either
        self._seq = 0
        self._pending_bytes = 0
        self._finished = False
        self._closed = False
        self._drained: trio.Event | None = None

    def has_news(self) -> None:
        """Notify the reader of a new event or the end. Called in the trio thread; must not raise or call `take`."""
        raise NotImplementedError

    def take(self) -> ExecutionEvent | None:
        """The next event; None when there is none now."""
        if not self._events:
            return None
        event = self._events.popleft()
        if not self._events:
            self._events = None
        if isinstance(event, ToolProgress | ToolLog):
            self._pending_bytes -= _size(event)
            self._wake_writers()
        return event

    def close(self) -> None:
        """Stop buffering: drop all events, including later ones, and wake all waiting writers."""
        self._closed = True
        self._events = None
        self._pending_bytes = 0
        self.has_news()
        self._wake_writers()

    def put(self, event: type[ExecutionEvent], execution: Execution, **fields: Any) -> None:
        """Add an event. Never blocks, in the trio thread only."""
        if self._closed:
            return
        seq = self._seq
        newest = self._events[-1] if self._events else None
        if self._events and event is ToolProgress and isinstance(newest, ToolProgress) and newest.partial_json is None:
            self._events.pop()
            self._pending_bytes -= _size(newest)
            seq = newest.seq
        else:
            self._seq += 1
        self._append(event(seq=seq, execution_id=execution.id, tool=execution.tool, **fields))
        self._finished = event is ExecutionCompleted
        if execution.ended:
            self._wake_writers()  # an abandoned thread may be waiting to add a part

    def put_log(self, execution: Execution, level: LogLevel, message: str) -> None:
        """Add a log message; drop it if there is no room."""
        if not self._is_full(PROGRESS_BYTES + len(message)):
            self.put(ToolLog, execution, level=level, message=message)

    async def put_partial(self, execution: Execution, data: bytes) -> None:
        """Add a part of the result, after waiting for room. Adds nothing if cancelled.

        Raises:
            AgentError: ``CANCELLED``: the execution has ended, and the part comes from an abandoned thread.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._is_full(PROGRESS_BYTES + len(data)) and not self._closed and not execution.ended:
            if self._drained is None:  # else another task of the tool waits already
                self._drained = trio.Event()
            await self._drained.wait()
        if execution.ended:
            raise AgentError.standard("CANCELLED", "the execution has ended")
        if not self._closed:
            # One event per part, even when the last one was a part as well.
            self._append(ToolProgress(seq=self._seq, execution_id=execution.id, tool=execution.tool, partial_json=data))
            self._seq += 1

    def _append(self, event: ExecutionEvent) -> None:
        if self._events is None:
            self._events = deque()
        if isinstance(event, ToolProgress | ToolLog):
            self._pending_bytes += _size(event)
        self._events.append(event)
        self.has_news()

    def _wake_writers(self) -> None:
        """Wake the writers that wait for room; each checks again whether it must wait."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _is_full(self, more: int) -> bool:
        return self._pending_bytes > 0 and self._pending_bytes + more > self._max_pending_bytes


class EventStream(EventBuffer, trio.abc.ReceiveChannel[ExecutionEvent]):
    """The reader's end of a channel."""

    def __init__(self, max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES) -> None:
        super().__init__(max_pending_bytes)
        self._readable: trio.Event | None = None  # while the reader waits

    async def receive(self) -> ExecutionEvent:
        """Wait for the next event.

        Raises:
            trio.EndOfChannel: After ``execution.completed``.
            trio.ClosedResourceError: The channel was closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while (event := self.take()) is None:
            if self._closed:
                raise trio.ClosedResourceError
            if self._finished:
                raise trio.EndOfChannel
            if self._readable is None:
                self._readable = trio.Event()
            await self._readable.wait()
        return event

    async def aclose(self) -> None:
        """Stop reading. The execution is cancelled when the block of `stream` is left, not here."""
        self.close()
        await trio.lowlevel.checkpoint()

    def has_news(self) -> None:
        """See `EventBuffer`: wake the reader."""
        if self._readable is not None:
            self._readable.set()
            self._readable = None


class StreamListener:
    """A `Listener` that turns the calls of the pipeline into events."""

    __slots__ = ("_has_begun", "_stream", "_thread", "_token")

    def __init__(self, stream: EventBuffer) -> None:
        self._stream = stream
        self._thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._has_begun = False

    def execution_started(self, execution: Execution) -> None:
        """See `Listener`."""
        self._stream.put(ExecutionStarted, execution)

    def tool_waiting(self, execution: Execution) -> None:
        """See `Listener`."""
        self._stream.put(ToolWaiting, execution)

    def tool_started(self, execution: Execution) -> None:
        """See `Listener`."""
        if threading.get_ident() == self._thread:
            self._begin(execution)
        else:
            self._token.run_sync_soon(self._begin, execution)

    def _begin(self, execution: Execution) -> None:
        """Send `ToolStarted` once. The callback of a thread that was abandoned at its start may run after the end."""
        if not self._has_begun:
            self._has_begun = True
            self._stream.put(ToolStarted, execution)

    def tool_completed(self, execution: Execution, *, ok: bool) -> None:
        """See `Listener`."""
        self._begin(execution)
        self._stream.put(
            ToolCompleted,
            execution,
            duration_ms=round(execution.duration_ms, 3),
            waited_ms=round(execution.waited * 1000, 3),
            ok=ok,
        )

    def execution_completed(self, execution: Execution, result: ExecutionResult) -> None:
        """See `Listener`."""
        self._stream.put(ExecutionCompleted, execution, result=result)

    def progress(self, execution: Execution) -> Progress:
        """See `Listener`."""
        return StreamProgress(self._stream, execution, self._thread, self._token, self._begin)


class StreamProgress(Progress):
    """Progress of a call whose events are read."""

    __slots__ = ("_begin", "_execution", "_logs", "_newest", "_stream", "_thread", "_token")

    def __init__(
        self,
        stream: EventBuffer,
        execution: Execution,
        thread: int,
        token: trio.lowlevel.TrioToken,
        begin: Callable[[Execution], None],
    ) -> None:
        self._stream = stream
        self._execution = execution
        self._thread = thread
        self._token = token
        self._begin = begin
        self._newest: dict[str, Any] = {}
        self._logs: LogLimit | None = None

    @property
    def is_listening(self) -> bool:
        """True until the execution has ended."""
        return True

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """See `Progress.report`. A number that is not finite is left out."""
        fields = {
            "progress": finite(progress),
            "total": None if total is None else finite(total),
            "message": sendable_text(message) if message else None,
        }
        if threading.get_ident() == self._thread:
            self._deliver(fields)
        else:
            # At most one delivery is on its way, so a flood from a thread costs no memory.
            self._newest = fields
            self._token.run_sync_soon(self._deliver_newest, idempotent=True)

    async def partial(self, value: Any) -> None:
        """See `Progress.partial`.

        Raises:
            AgentError: ``INVALID_OUTPUT``, when the value is not JSON-shaped.
        """
        data = render_part(value)
        if threading.get_ident() == self._thread:
            await self._stream.put_partial(self._execution, data)
        else:  # in a task of asyncio
            await host_caller.get().run(self._stream.put_partial, self._execution, data)

    def partial_from_thread(self, value: Any) -> None:
        """See `Progress.partial_from_thread`."""
        trio.from_thread.run(self._stream.put_partial, self._execution, render_part(value))

    def log(self, level: LogLevel, message: str) -> bool:
        """See `Progress.log`."""
        if self._logs is None:
            self._logs = LogLimit(self._put_log, self._thread, self._token)
        self._logs.log(level, message)
        return True

    def _put_log(self, level: LogLevel, message: str) -> None:
        if not self._execution.ended:
            self._begin(self._execution)
            self._stream.put_log(self._execution, level, message)

    def _deliver_newest(self) -> None:
        fields, self._newest = self._newest, {}
        if fields and not self._execution.ended:
            # `run_sync_soon(idempotent=True)` uses a separate queue, so this can run before the `ToolStarted` callback.
            self._begin(self._execution)
            self._deliver(fields)

    def _deliver(self, fields: dict[str, Any]) -> None:
        # Nothing may follow tool.completed: a tool's forgotten helper task or abandoned thread may still report.
        if not self._execution.ended:
            self._stream.put(ToolProgress, self._execution, **fields)


def finite(number: float) -> float | None:
    """The number as a plain int or float; None if it is not finite."""
    try:
        if math.isfinite(number):
            return number if type(number) in (int, float) else float(number)
    except OverflowError:  # an integer that no float can hold
        pass
    return None


def _size(event: ToolProgress | ToolLog) -> int:
    size = PROGRESS_BYTES + len(event.message or "")
    return size + len(event.partial_json or b"") if isinstance(event, ToolProgress) else size


def render_part(value: Any) -> bytes:
    """A part of a result as JSON.

    Raises:
        AgentError: ``INVALID_OUTPUT``, when it is not JSON-shaped.
    """
    try:
        data = pydantic_core.to_json(value, inf_nan_mode="constants")
        pydantic_core.from_json(data, allow_inf_nan=False)
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise AgentError.standard("INVALID_OUTPUT", f"a partial result cannot be written as JSON: {error}") from None
    return data


@asynccontextmanager
async def open_stream(
    run: Callable[[StreamListener], Awaitable[object]], max_pending_bytes: int = DEFAULT_MAX_PENDING_BYTES
) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
    """Run an execution beside its reader; leaving the block cancels it and waits for its (bounded) clean-up."""
    stream = EventStream(max_pending_bytes)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, StreamListener(stream))
            try:
                yield stream
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)  # the execution itself raises nothing but Cancelled, so this is an exception of the block
    finally:
        stream.close()
