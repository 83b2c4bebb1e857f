"""Calls from the tasks of an asyncio loop into a trio run in another thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from .dispatcher import Call, Delivery, Dispatcher
from .running import running_loop, wrong_loop

S = TypeVar("S")


class LoopCall(Call):
    """A call that an asyncio task waits for."""

    __slots__ = ("caller", "future", "has_ended", "on_end")

    def __init__(
        self,
        caller: AsyncioCaller,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        on_end: Callable[[], object] | None,
    ) -> None:
        super().__init__(function, args)
        self.caller = caller
        self.on_end = on_end
        self.future: asyncio.Future[None] = caller.loop.create_future()
        self.has_ended = False

    def resolve(self) -> None:
        """See `Delivery`."""
        self.has_ended = True
        self.caller.pending -= 1
        if not self.future.done():
            self.future.set_result(None)
        if self.on_end is not None:
            self.on_end()


class AsyncioCaller:
    """Runs functions of trio for the tasks of an asyncio loop.

    Attributes:
        loop: The loop.
        thread: Identifier of its thread.
        dispatcher: Runs the calls; set by the owner.
        pending: Number of calls that have not ended.
    """

    dispatcher: Dispatcher

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        self.loop = loop
        self.thread = thread
        self.pending = 0
        self._news: deque[Delivery] = deque()
        self._is_flushing = False
        self._is_waking = False

    async def run(self, function: Callable[..., Coroutine[Any, Any, S]], /, *args: Any) -> S:
        """Call an async function in the trio thread.

        If cancelled, the call is cancelled too, and waited for: the engine bounds its clean-up.

        Raises:
            WrongLoopError: Another loop runs here than `loop`.
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
    ) -> LoopCall:
        """Start a call in the trio thread, see `run`; `on_end` is called in the loop at its end."""
        if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001 - documented; a third of the price of the other
            raise self._wrong_loop()
        call = LoopCall(self, function, args, on_end)
        self.dispatcher.submit(call)
        self.pending += 1
        if self.pending == 1:
            self.dispatcher.wake()
        elif not self._is_waking:
            # Wake trio once for all calls that this turn of the loop starts: each wake-up may cost the interpreter's lock.
            self._is_waking = True
            self.loop.call_soon(self._wake)
        return call

    async def end(self, call: LoopCall) -> None:
        """Cancel a call and wait for its end."""
        if call.has_ended:
            return
        self.dispatcher.leave(call)

        if call.future.done():  # cancelled with the task that had waited for it
            call.future = self.loop.create_future()
        await self.outlast(call.future)

    async def outlast(self, future: asyncio.Future[None]) -> None:
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
        self.dispatcher.run_soon(function, *args)

    def deliver(self, news: Sequence[Delivery]) -> None:
        """Resolve calls in the loop. Called in the trio thread."""
        self._news.extend(news)
        if not self._is_flushing:  # else the loop has not begun to take the news
            self._is_flushing = True
            self.in_loop(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        news = self._news
        while news:
            news.popleft().resolve()

    def _wake(self) -> None:
        self._is_waking = False
        self.dispatcher.wake()

    def in_loop(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop. Callable in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
            self.loop.call_soon_threadsafe(function, *args)

    def _wrong_loop(self) -> Exception:
        what = self.dispatcher.what
        if running_loop() == "asyncio":
            advice = "open one in each asyncio loop, or use carmy_engine.blocking in all threads"
            return wrong_loop(f"{what} belongs to another asyncio loop", trio=advice, aio=advice, blocking=advice)
        return wrong_loop(
            f"{what} was opened by carmy_engine.aio",
            trio="async with app.open()",
            aio="async with carmy_engine.aio.open_app(app)",
            blocking="with carmy_engine.blocking.open_app(app)",
        )
