"""Checks of long messages, arguments and outputs in worker threads: few at once, abandoned with their call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

from .._model.compiled_tool import TakesLong
from .._model.error_boundary import call_foreign
from .._model.errors import AgentError
from .._schema.work import Work

T = TypeVar("T")

MAX_AT_ONCE = 2
"""Limit for concurrent checks of messages, for those of arguments, and for those of outputs. Each needs up to `work.MAX_BYTES`, and delays the event loop
by a piece of JSON, a millisecond or two."""

MAX_WAITING = 100
"""Limit for calls that wait for a check of their arguments, which stay in memory."""

RETRY_SECONDS = 1
"""``retry_after`` of ``OVERLOADED``, beyond this limit."""


class LongChecks:
    """Worker threads of one engine for the checks of long messages, arguments and outputs."""

    def __init__(self) -> None:
        self._arguments = trio.CapacityLimiter(MAX_AT_ONCE)
        self._outputs = trio.CapacityLimiter(MAX_AT_ONCE)
        self._messages = trio.CapacityLimiter(MAX_AT_ONCE)
        self._running = 0
        self._resumes_collection = False

    async def check_arguments(self, long: TakesLong) -> dict[str, Any]:
        """Check and return arguments. If cancelled, the check stops at its next step, and then frees its thread.

        Raises:
            AgentError: ``INVALID_ARGUMENTS``; ``OVERLOADED``, when too many calls wait for this.
            Fault: A validator of the tool's author failed.
        """
        if self._arguments.statistics().tasks_waiting >= MAX_WAITING:
            raise AgentError.standard(
                "OVERLOADED", f"{MAX_WAITING} calls with long arguments are waiting", retry_after=RETRY_SECONDS
            )
        arguments: dict[str, Any] = await self._run(long.check, Work(), self._arguments)
        return arguments

    async def read_arguments(self, read: Callable[[Callable[[], None]], T]) -> T:
        """Read long arguments that were checked, in a thread. If cancelled, see `check_arguments`.

        Args:
            read: Is called with a function to call after each piece.
        """
        read_all: T = await self._run(lambda work: read(work.pause), Work(), self._arguments)
        return read_all

    async def check_output(self, long: TakesLong) -> bytes:
        """Check an output; return its JSON. If cancelled, see `check_arguments`.

        The tool has run, so no call is refused: each waits until its deadline. Long arguments of other calls cannot delay it.

        Raises:
            AgentError: ``INVALID_OUTPUT`` or ``OUTPUT_TOO_LARGE``.
            Fault: A validator or serialiser of the tool's author failed.
        """
        data: bytes = await self._run(long.check, Work(is_output=True), self._outputs)
        return data

    async def read_message(self, read: Callable[[Callable[[], None]], T]) -> T:
        """Read a long message in a thread; see `read_arguments`. Raises what `read` raises."""
        work = Work()
        return await self._in_thread(lambda: read(work.pause), work, self._messages)

    async def _run(self, check: Callable[[Work], Any], work: Work, limiter: trio.CapacityLimiter) -> Any:
        return await self._in_thread(lambda: call_foreign(check, work), work, limiter)

    async def _in_thread(self, run: Callable[[], T], work: Work, limiter: trio.CapacityLimiter) -> T:
        try:
            with self._without_collection():
                return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
        finally:
            work.abandoned = True

    @contextmanager
    def _without_collection(self) -> Iterator[None]:
        """Suspend garbage collection: a check makes no garbage, and a collection would hold the event loop."""
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
