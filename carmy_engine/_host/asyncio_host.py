"""A trio thread of an asyncio loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .._loops.asyncio_caller import AsyncioCaller, LoopCall
from .._loops.running import host_caller
from .._model.events import ExecutionEvent
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .event_feed import EventFeed
from .trio_thread import TrioThread

T = TypeVar("T")
S = TypeVar("S")


class AsyncioHost(AsyncioCaller, Generic[T]):
    """A trio thread that belongs to the running asyncio loop.

    Args:
        open_subject: Opens the subject of the calls, in the trio thread.
        what: The noun for it in messages.
    """

    def __init__(self, open_subject: Callable[[], AbstractAsyncContextManager[T]], what: str) -> None:
        super().__init__(asyncio.get_running_loop(), threading.get_ident())
        self._started: asyncio.Future[None] = self.loop.create_future()
        self._ended: asyncio.Future[None] = self.loop.create_future()
        context = contextvars.copy_context()
        context.run(host_caller.set, self)  # asyncio tools run in this loop
        self._thread = TrioThread(
            open_subject,
            what,
            deliver=self.deliver,
            on_started=lambda: self.in_loop(_set, self._started),
            on_ended=lambda: self.in_loop(self._on_ended),
            is_orphaned=self.loop.is_closed,
            context=context,
        )
        self.dispatcher = self._thread.dispatcher

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
        await self.outlast(self._ended)
        self._thread.join()
        if (failure := self._thread.failure) is not None:
            self._thread.failure = None
            raise failure

    def _on_ended(self) -> None:
        _set(self._started)
        _set(self._ended)


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

    def __init__(self, host: AsyncioCaller, executor: Executor, request: ExecutionRequest) -> None:
        self._host = host
        self._feed = EventFeed(executor, request, host.run_soon, self._notify)
        self._call: LoopCall | None = None
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
