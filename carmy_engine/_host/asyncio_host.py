"""Calls of a trio thread from the tasks of an asyncio loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .._model.events import ExecutionEvent
from .._model.loops import running_loop, wrong_loop
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .event_feed import EventFeed
from .trio_thread import Call, Delivery, TrioThread

T = TypeVar("T")
S = TypeVar("S")


class _LoopCall(Call):
    """A call that an asyncio task waits for."""

    __slots__ = ("future", "has_ended", "host", "on_end")

    def __init__(
        self,
        host: AsyncioHost[Any],
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        on_end: Callable[[], object] | None,
    ) -> None:
        super().__init__(function, args)
        self.host = host
        self.on_end = on_end
        self.future: asyncio.Future[None] = host.loop.create_future()
        self.has_ended = False

    def resolve(self) -> None:
        """See `Delivery`."""
        self.has_ended = True
        self.host.pending -= 1
        if not self.future.done():
            self.future.set_result(None)
        if self.on_end is not None:
            self.on_end()


class AsyncioHost(Generic[T]):
    """A trio thread that belongs to the running asyncio loop.

    Args:
        open_subject: Opens the subject of the calls, in the trio thread.
        what: The noun for it in messages.

    Attributes:
        loop: The loop.
        pending: Number of calls that have not ended.
    """

    def __init__(self, open_subject: Callable[[], AbstractAsyncContextManager[T]], what: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.pending = 0
        self._what = what
        self._news: deque[Delivery] = deque()
        self._is_flushing = False
        self._is_waking = False
        self._started = self.loop.create_future()
        self._ended = self.loop.create_future()
        self._thread = TrioThread(
            open_subject,
            what,
            deliver=self.deliver,
            on_started=lambda: self._in_loop(_set, self._started),
            on_ended=lambda: self._in_loop(self._on_ended),
            is_orphaned=self.loop.is_closed,
        )

    @property
    def subject(self) -> T:
        """The opened subject."""
        return self._thread.subject

    async def open(self) -> T:
        """Start the thread; return the subject once it is open. If cancelled, it is closed again.

        Raises:
            BaseException: What opening raised.
        """
        self._thread.start()
        try:
            await self._started
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._ended.done():
            await self.close()
        return self._thread.subject

    async def close(self) -> None:
        """Close the subject and wait for the end of the thread, even if cancelled.

        Raises:
            BaseException: What closing raised.
        """
        self._thread.close()
        await self._outlast(self._ended)
        self._thread.join()
        if (failure := self._thread.failure) is not None:
            self._thread.failure = None
            raise failure

    async def run(self, function: Callable[..., Coroutine[Any, Any, S]], /, *args: Any) -> S:
        """Call an async function in the trio thread.

        If cancelled, the call is cancelled too, and waited for: the engine bounds its clean-up.

        Raises:
            WrongLoopError: Another loop runs here than the one of this host.
            ClosedError: The thread has ended.
        """
        call = self.submit(function, *args)
        try:
            await call.future
        except asyncio.CancelledError:
            await self.end(call)
            raise
        value: S = call.result()
        return value

    def submit(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        /,
        *args: Any,
        on_end: Callable[[], object] | None = None,
    ) -> _LoopCall:
        """Start a call in the trio thread, see `run`; `on_end` is called in the loop at its end."""
        if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001 - documented; a third of the price of the other
            raise self._wrong_loop()
        call = _LoopCall(self, function, args, on_end)
        self._thread.submit(call)
        self.pending += 1
        if self.pending == 1:
            self._thread.wake()
        elif not self._is_waking:
            # Wake trio once for all calls that this turn of the loop starts: each wake-up may cost the interpreter's lock.
            self._is_waking = True
            self.loop.call_soon(self._wake)
        return call

    async def end(self, call: _LoopCall) -> None:
        """Cancel a call and wait for its end."""
        if call.has_ended:
            return
        self._thread.leave(call)

        if call.future.done():  # cancelled with the task that had waited for it
            call.future = self.loop.create_future()
        await self._outlast(call.future)

    async def _outlast(self, future: asyncio.Future[None]) -> None:
        """Wait for a future to its end, whatever cancels the current task meanwhile; then let the cancel continue."""
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def run_soon(self, function: Callable[..., object], /, *args: Any) -> None:
        """Call a function in the trio thread, unless that has ended."""
        self._thread.run_soon(function, *args)

    def deliver(self, news: Sequence[Delivery]) -> None:
        """Resolve calls in the loop. Called in the trio thread."""
        self._news.extend(news)
        if not self._is_flushing:  # else the loop has not begun to take the news
            self._is_flushing = True
            self._in_loop(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        news = self._news
        while news:
            news.popleft().resolve()

    def _wake(self) -> None:
        self._is_waking = False
        self._thread.wake()

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed, so no task waits
            self._thread.close()

    def _on_ended(self) -> None:
        _set(self._started)
        _set(self._ended)

    def _wrong_loop(self) -> Exception:
        if running_loop() == "asyncio":
            advice = "open one in each asyncio loop, or use carmy_engine.blocking in all threads"
            return wrong_loop(f"{self._what} belongs to another asyncio loop", trio=advice, aio=advice, blocking=advice)
        return wrong_loop(
            f"{self._what} was opened by carmy_engine.aio",
            trio="async with app.open()",
            aio="async with carmy_engine.aio.open_app(app)",
            blocking="with carmy_engine.blocking.open_app(app)",
        )


class Opening(Generic[S]):
    """An async context manager that opens a trio thread and leaves it.

    Args:
        make_host: Creates the host, in the loop.
        make: The value of the block, for an open host.
    """

    # No generator: a loop that is closed inside the block could not close one.

    def __init__(self, make_host: Callable[[], AsyncioHost[T]], make: Callable[[AsyncioHost[T], T], S]) -> None:
        self._make_host = make_host
        self._make: Callable[[Any, Any], S] = make
        self._host: AsyncioHost[Any] | None = None

    async def __aenter__(self) -> S:
        self._host = self._make_host()
        return self._make(self._host, await self._host.open())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._host is not None
        await self._host.close()


class EventStream:
    """The events of one execution: an async context manager and an async iterator. Leaving the block cancels the execution.

    Reading is bounded: a tool that sends parts of its result faster than they are read has to wait.
    """

    def __init__(self, host: AsyncioHost[Any], executor: Executor, request: ExecutionRequest) -> None:
        self._host = host
        self._feed = EventFeed(executor, request, host.run_soon, self._notify)
        self._call: _LoopCall | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_notifying = False

    async def __aenter__(self) -> Self:
        self._call = self._host.submit(self._feed.run, on_end=self._wake)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._call is not None
        await self._host.end(self._call)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ExecutionEvent:
        if self._call is None:
            raise TypeError("a stream is entered first: 'async with engine.stream(request) as events'")
        while True:
            if self._call.is_left:
                raise StopAsyncIteration
            if (event := self._feed.take()) is not None:
                return event
            if self._call.has_ended:
                self._call.result()
                raise StopAsyncIteration
            if self._waiter is None:
                self._waiter = self._host.loop.create_future()
            await asyncio.shield(self._waiter)  # another task may wait for it, too

    def resolve(self) -> None:
        """See `Delivery`."""
        self._is_notifying = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            self._waiter.set_result(None)
            self._waiter = None

    def _notify(self) -> None:
        if not self._is_notifying:
            self._is_notifying = True
            self._host.deliver([self])


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
