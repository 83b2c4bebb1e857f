"""Coroutines of asyncio, run for the tasks of a trio run in another thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import Any, TypeVar, cast

import trio

from .._model.error_boundary import log_traceback, raise_single
from .._model.errors import AgentError, ClosedError
from .asyncio_caller import AsyncioCaller
from .dispatcher import Dispatcher
from .run_ends import RunEnds
from .running import host_caller

log = logging.getLogger("carmy.engine")

STUCK_RETRY_SECONDS = 5
"""``retry_after`` when as many tasks as allowed are stuck: their ends are unknown."""

S = TypeVar("S")


class AsyncioLoop:
    """An asyncio loop in another thread. Made by `open_loop`, in the trio thread.

    Args:
        caller: Runs calls of its tasks back in the trio run.
        max_stuck: Tasks that may outlive their cancel.
        grace_seconds: Limit for the clean-up of a cancelled task.

    Attributes:
        is_host: The loop is that of the program; otherwise it runs in a thread of the engine.
        stuck: Number of abandoned tasks that still run.
        ends: The ends of its runs.
    """

    def __init__(self, caller: AsyncioCaller, max_stuck: int, grace_seconds: float, *, is_host: bool) -> None:
        self.caller = caller
        self.is_host = is_host
        self.grace_seconds = grace_seconds
        self.stuck = 0
        self._max_stuck = max_stuck
        self.ends = RunEnds()
        # Each wake-up of a thread may cost the interpreter's lock, so all that happens before it is handed over at once.
        self._to_loop: deque[Callable[[], object]] = deque()
        self._is_loop_woken = False

    def prepare(self, name: str, function: Callable[..., Coroutine[Any, Any, Any]], /, **arguments: Any) -> LoopRun:
        """Create a run of an async function.

        Raises:
            AgentError: ``OVERLOADED``, when too many tasks are stuck.
        """
        if self.stuck >= self._max_stuck:
            raise AgentError.standard(
                "OVERLOADED",
                f"{self.stuck} asyncio tasks go on although they were cancelled",
                retry_after=STUCK_RETRY_SECONDS,
            )
        return LoopRun(self, name, function, arguments)

    async def run(self, name: str, function: Callable[..., Coroutine[Any, Any, S]], /, **arguments: Any) -> S:
        """Run an async function in a task of the loop; see `LoopRun.wait`."""
        value: S = await self.prepare(name, function, **arguments).wait()
        return value

    def adapt(self, name: str, function: Callable[..., Awaitable[S]]) -> Callable[..., Coroutine[Any, Any, S]]:
        """A function of trio that runs an async function of asyncio with the same positional arguments."""

        async def adapted(*args: Any) -> S:
            async def call() -> S:
                return await function(*args)

            return await self.run(name, call)

        return adapted

    async def hold(
        self, name: str, opened: AbstractAsyncContextManager[Any], entered: Callable[[Any], object], leave: trio.Event
    ) -> None:
        """Enter a context manager in a task of the loop, call `entered` with its value, and leave it there after `leave`.

        Exceptions pass unchanged.
        """
        leaving = asyncio.Event()
        is_entered = trio.Event()
        values: list[Any] = []

        async def main() -> None:
            async with opened as value:
                values.append(value)
                self.caller.run_soon(is_entered.set)
                await leaving.wait()

        async def run() -> None:
            await self.run(name, main)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await is_entered.wait()
                entered(values.pop())
                await leave.wait()
                self.post(leaving.set)
        except BaseExceptionGroup as group:
            raise_single(group)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the loop. For the trio thread.

        Raises:
            ClosedError: The loop is closed.
        """
        self._to_loop.append(function)
        if not self._is_loop_woken:
            self._is_loop_woken = True
            try:
                self.caller.loop.call_soon_threadsafe(self._work)
            except RuntimeError:
                raise ClosedError("the asyncio loop of the program is closed, and asyncio tools run in it") from None

    def make_task(self, coro: Coroutine[Any, Any, None], name: str, context: contextvars.Context) -> asyncio.Task[None]:
        """Start a task in the thread of the loop, with its first step where Python can: it saves a turn of the loop."""
        loop = self.caller.loop
        if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
            return asyncio.Task(coro, loop=loop, name=name, context=context, eager_start=True)
        return loop.create_task(coro, name=name, context=context)

    def close(self) -> None:
        """Release what carries the ends of runs. No task waits for one any more."""
        self.ends.close()

    def _work(self) -> None:
        self._is_loop_woken = False
        while self._to_loop:
            self._to_loop.popleft()()


class LoopRun:
    """One async function in one task of the loop.

    Attributes:
        name: Its name in logs, that of the tool.
        finished: The task has ended.
        abandoned: It was cancelled and has not ended within the grace; it counts as stuck until it ends.
        ended: Set once an abandoned task has ended; absent otherwise.
    """

    __slots__ = (
        "_arguments",
        "_context",
        "_error",
        "_function",
        "_has_begun",
        "_loop",
        "_task",
        "_value",
        "abandoned",
        "ended",
        "finished",
        "name",
    )

    def __init__(
        self,
        loop: AsyncioLoop,
        name: str,
        function: Callable[..., Coroutine[Any, Any, Any]],
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self.finished = self.abandoned = False
        self.ended: trio.Event
        self._loop = loop
        self._function = function
        self._arguments = arguments
        self._context = contextvars.copy_context()
        self._context.run(host_caller.set, loop.caller)
        self._task: asyncio.Task[None] | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._has_begun = False

    async def wait(self) -> Any:
        """Run the task and return its value. Exceptions pass unchanged.

        If cancelled, the task is cancelled. It has the grace for its clean-up; a value that it returns then still counts. After the grace
        it is cancelled once more and abandoned.

        Raises:
            trio.Cancelled: The scope of this task was cancelled, and the task has given in or was abandoned.
            ClosedError: The loop is closed.
        """
        self._loop.post(self._start)
        cancelled: trio.Cancelled | None = None
        try:
            await self._loop.ends.wait(self)
        except trio.Cancelled as error:
            cancelled = error
        try:
            if cancelled is not None:
                await self._end(cancelled)
            value, self._value, error_ = self._value, None, self._error
            self._error = None
            if error_ is None:
                return value
            if cancelled is not None and _is_cancel(error_):
                raise cancelled
            raise error_
        finally:
            cancelled = error_ = None  # their tracebacks refer to this frame

    async def _end(self, cancelled: trio.Cancelled) -> None:
        """Cancel the task and wait for its end, within the grace."""
        with contextlib.suppress(ClosedError):
            self._loop.post(self._cancel)
        with trio.CancelScope(shield=True, relative_deadline=self._loop.grace_seconds):
            await self._loop.ends.wait(self)
        if not self.finished:
            with contextlib.suppress(ClosedError):
                self._loop.post(self._cancel)
            self.ended = trio.Event()
            self.abandoned = True
            self._loop.stuck += 1
            raise cancelled

    def resolve(self) -> None:
        """See `Run`."""
        self.finished = True
        if self.abandoned:
            self._loop.stuck -= 1
            self._value = self._error = None
            self.ended.set()
        del self._function, self._arguments, self._context  # an ended execution is kept for lookups

    # --- in the loop

    def _start(self) -> None:
        task = self._loop.make_task(self._main(), f"carmy {self.name}", self._context)
        if not task.done():  # one that starts eagerly may be
            self._task = task
            self._loop.caller.loop.call_soon(self._check_begun)  # runs just after the first step of the task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _main(self) -> None:
        # Nothing escapes: asyncio lets SystemExit and KeyboardInterrupt of a task end its loop.
        self._has_begun = True
        try:
            self._value = await self._function(**self._arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        self._task = None
        self._loop.ends.report(self)

    def _check_begun(self) -> None:
        if not self._has_begun:  # cancelled before its first step
            self._error = asyncio.CancelledError()
            self._task = None
            self._loop.ends.report(self)


def tool_on(frame: FrameType | None) -> str | None:
    """Name of the tool whose task runs on this stack; None if there is none."""
    while frame is not None:
        if frame.f_code is LoopRun._main.__code__:  # noqa: SLF001 - this module's
            name: str = frame.f_locals["self"].name
            return name
        frame = frame.f_back
    return None


def _is_cancel(error: BaseException) -> bool:
    """True for ``asyncio.CancelledError``, and for a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_cancel, group.exceptions))
    return isinstance(error, asyncio.CancelledError)


@asynccontextmanager
async def open_loop(max_stuck: int, grace_seconds: float) -> AsyncIterator[AsyncioLoop]:
    """The asyncio loop of the program, if it has one; else a loop in a thread, for the length of the block.

    Args:
        max_stuck: See `AsyncioLoop`.
        grace_seconds: See `AsyncioLoop`. Also the limit for tasks that tools have left behind, at the end of a thread.
    """
    host: AsyncioCaller | None = host_caller.get()
    if host is not None:
        with contextlib.closing(AsyncioLoop(host, max_stuck, grace_seconds, is_host=True)) as loop:
            yield loop
        return
    thread = _LoopThread(grace_seconds)
    caller = AsyncioCaller(thread.loop, thread.start())
    caller.dispatcher = Dispatcher("the engine", caller.deliver)
    try:
        async with trio.open_nursery() as nursery:
            caller.dispatcher.start(nursery)
            loop = AsyncioLoop(caller, max_stuck, grace_seconds, is_host=False)
            try:
                yield loop
            finally:
                loop.close()
                with trio.CancelScope(shield=True, relative_deadline=2 * grace_seconds):
                    await thread.close()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)
    finally:
        caller.dispatcher.end()


class _LoopThread:
    """A daemon thread that runs an asyncio loop."""

    def __init__(self, grace_seconds: float) -> None:
        self.loop = asyncio.new_event_loop()
        self._grace_seconds = grace_seconds
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="carmy-asyncio", daemon=True)
        self._ended = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def start(self) -> int:
        """Start the thread; return its identifier."""
        self._thread.start()
        assert self._thread.ident is not None
        return self._thread.ident

    async def close(self) -> None:
        """Cancel the tasks that are left, and wait for the end of the thread. A task that does not end keeps the thread."""
        self.loop.call_soon_threadsafe(self._closing.set)
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        main = self.loop.create_task(self._main())
        while not main.done():
            try:
                self.loop.run_until_complete(main)
            except BaseException as error:  # noqa: BLE001 - a task of a tool's own has raised SystemExit, which ends a loop
                log_traceback(log, error, "a task of asyncio has failed")
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._ended.set)

    async def _main(self) -> None:
        await self._closing.wait()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            _, stuck = await asyncio.wait(left, timeout=self._grace_seconds)
            if stuck:
                log.error(
                    "%d asyncio tasks go on although they were cancelled; their thread is left to them", len(stuck)
                )
                await asyncio.wait(stuck)
