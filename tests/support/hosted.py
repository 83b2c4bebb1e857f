"""Executors of `carmy_engine.aio` and `carmy_engine.blocking` as executors under trio, so that one suite judges them all."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from carmy_engine import Catalog, ExecutionEvent, ExecutionRequest, ExecutionResult, aio, blocking
from carmy_engine.transport import raise_single

T = TypeVar("T")


class LoopThread:
    """An asyncio loop in a thread, whose coroutines tasks of trio wait for."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="host-loop")

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        left = asyncio.all_tasks(self.loop)
        self.loop.close()
        assert not left

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as a task of the loop. A cancel of trio cancels the task, which is waited for."""
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # a task that is cancelled before its first step does nothing
        except trio.Cancelled:
            coro.close()
            raise
        token, ended = trio.lowlevel.current_trio_token(), trio.Event()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(task := self.loop.create_task(coro))
            task.add_done_callback(lambda _: token.run_sync_soon(ended.set))

        self.loop.call_soon_threadsafe(start)
        try:
            await ended.wait()
        except trio.Cancelled:
            self.loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            with trio.CancelScope(shield=True):
                await ended.wait()
            raise
        return tasks[0].result()


class Reader(trio.abc.ReceiveChannel[ExecutionEvent]):
    """Events of a stream of `aio`."""

    def __init__(self, loop: LoopThread, stream: aio.EventStream) -> None:
        self._loop = loop
        self._stream = stream

    async def receive(self) -> ExecutionEvent:
        event = await self._loop.run(anext(self._stream, None))  # type: ignore[arg-type] # it is a coroutine
        if event is None:
            raise trio.EndOfChannel
        return event

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class AioExecutor:
    """An executor of `aio`."""

    def __init__(self, loop: LoopThread, inner: aio.Executor[Any]) -> None:
        self._loop = loop
        self._inner = inner

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        return await self._loop.run(self._inner.execute(request))

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        stream = self._inner.stream(request)
        await self._loop.run(stream.__aenter__())
        try:
            yield Reader(self._loop, stream)
        finally:
            with trio.CancelScope(shield=True):
                await self._loop.run(stream.__aexit__(None, None, None))

    async def catalog(self) -> Catalog:
        return await self._loop.run(self._inner.catalog())


@asynccontextmanager
async def through_aio(opened: Any) -> AsyncIterator[AioExecutor]:
    """The executor that an async context manager of `aio` opens."""
    with LoopThread() as loop:
        inner = await loop.run(opened.__aenter__())
        try:
            yield AioExecutor(loop, inner)
        finally:
            with trio.CancelScope(shield=True):
                await loop.run(opened.__aexit__(None, None, None))


class BlockingExecutor:
    """An executor of `blocking`. Calls are read as streams, since only these can be left."""

    def __init__(self, inner: blocking.Executor[Any], limiter: trio.CapacityLimiter) -> None:
        self._inner = inner
        self._in_thread = functools.partial(trio.to_thread.run_sync, limiter=limiter)

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        async with self.stream(request) as channel:
            async for event in channel:
                if event.kind == "execution.completed":
                    return event.result  # type: ignore[attr-defined,no-any-return] # the kind has one
        raise AssertionError("a stream without an end")

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        stream = await self._in_thread(self._inner.stream(request).__enter__)
        send, receive = trio.open_memory_channel[ExecutionEvent](0)

        async def read() -> None:
            async with send:
                while (event := await self._in_thread(next, stream, None)) is not None:
                    await send.send(event)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                try:
                    yield receive
                finally:
                    nursery.cancel_scope.cancel()
                    with trio.CancelScope(shield=True):
                        await self._in_thread(stream.close)
        except BaseExceptionGroup as group:
            raise_single(group)

    async def catalog(self) -> Catalog:
        return await self._in_thread(self._inner.catalog)


@asynccontextmanager
async def through_blocking(opened: blocking.OpenEngine) -> AsyncIterator[BlockingExecutor]:
    """An open engine of `blocking`."""
    yield BlockingExecutor(opened, trio.CapacityLimiter(200))
