"""Calls of a trio thread from plain threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .._loops.dispatcher import Call, Delivery
from .._loops.running import running_loop, wrong_loop
from .._model.events import ExecutionEvent
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .event_feed import EventFeed
from .trio_thread import TrioThread

SIGNAL_SECONDS = 0.2
"""Interval at which the main thread looks for a signal that has arrived just before it began to wait."""

T = TypeVar("T")
S = TypeVar("S")


class _ThreadCall(Call):
    """A call that a thread waits for."""

    __slots__ = ("ended", "has_ended", "on_end")

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        on_end: Callable[[], object] | None,
    ) -> None:
        super().__init__(function, args)
        self.on_end = on_end
        self.has_ended = False
        self.ended = threading.Lock()
        self.ended.acquire()

    def wait(self) -> None:
        """Wait for its end; several threads may."""
        # Unlike an event, a lock is one object of the system. Signals interrupt its wait, but not one that begins just after the signal.
        if threading.current_thread() is threading.main_thread():
            while not self.ended.acquire(timeout=SIGNAL_SECONDS):
                pass
        else:
            self.ended.acquire()
        self.ended.release()

    def resolve(self) -> None:
        """See `Delivery`."""
        self.has_ended = True
        self.ended.release()
        if self.on_end is not None:
            self.on_end()


class BlockingHost(Generic[T]):
    """A trio thread for all threads of the process. Opened when it is made.

    Args:
        open_subject: Opens the subject of the calls, in the trio thread.
        what: The noun for it in messages.

    Raises:
        BaseException: What opening raised.
        WrongLoopError: A loop runs in this thread.
    """

    def __init__(self, open_subject: Callable[[], AbstractAsyncContextManager[T]], what: str) -> None:
        self._what = what
        check_no_loop(what)
        self._started = threading.Event()
        self._thread = TrioThread(
            open_subject, what, deliver=_resolve, on_started=self._started.set, on_ended=self._started.set
        )
        self._thread.start()
        try:
            self._started.wait()
        except BaseException:
            self._thread.close()
            raise
        self._raise_failure()

    @property
    def subject(self) -> T:
        """The opened subject."""
        return self._thread.subject

    def close(self) -> None:
        """Close the subject and wait for the end of the thread. Has no effect once it is closed.

        Raises:
            BaseException: What closing raised.
        """
        check_no_loop(self._what)
        self._thread.close()
        self._thread.join()
        self._raise_failure()

    def run(self, function: Callable[..., Coroutine[Any, Any, S]], /, *args: Any) -> S:
        """Call an async function in the trio thread.

        A `KeyboardInterrupt` cancels the call and waits for its end, which the engine bounds. A second one ends the wait.

        Raises:
            WrongLoopError: A loop runs in this thread, which the call would block.
            ClosedError: The thread has ended.
        """
        check_no_loop(self._what)
        call = _ThreadCall(function, args, None)
        is_submitted = False
        try:
            self._thread.dispatcher.submit(call)
            is_submitted = True
            self._thread.dispatcher.wake()
            call.wait()
        except BaseException:
            self._thread.dispatcher.leave(call)
            if is_submitted:
                call.wait()
            raise
        value: S = call.result()
        return value

    def submit(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        /,
        *args: Any,
        on_end: Callable[[], object] | None = None,
    ) -> _ThreadCall:
        """Start a call in the trio thread, see `run`; `on_end` is called in the trio thread at its end."""
        check_no_loop(self._what)
        call = _ThreadCall(function, args, on_end)
        self._thread.dispatcher.submit(call)
        self._thread.dispatcher.wake()
        return call

    def end(self, call: _ThreadCall) -> None:
        """Cancel a call and wait for its end."""
        if not call.has_ended:
            self._thread.dispatcher.leave(call)
            call.wait()

    def run_soon(self, function: Callable[..., object], /, *args: Any) -> None:
        """Call a function in the trio thread, unless that has ended."""
        self._thread.dispatcher.run_soon(function, *args)

    def _raise_failure(self) -> None:
        if (failure := self._thread.failure) is not None:
            self._thread.failure = None
            raise failure


class EventStream:
    """The events of one execution: a context manager and an iterator. Leaving the block, or `close`, cancels the execution.

    Reading is bounded: a tool that sends parts of its result faster than they are read has to wait.
    """

    def __init__(self, host: BlockingHost[Any], executor: Executor, request: ExecutionRequest) -> None:
        self._host = host
        self._changed = threading.Condition()
        self._feed = EventFeed(executor, request, host.run_soon, self._notify)
        self._call: _ThreadCall | None = None

    def __enter__(self) -> Self:
        self._call = self._host.submit(self._feed.run, on_end=self._notify)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the execution, unless it has ended, and wait for its end. May be called in any thread."""
        if self._call is not None:
            self._host.end(self._call)

    def __iter__(self) -> Iterator[ExecutionEvent]:
        return self

    def __next__(self) -> ExecutionEvent:
        call = self._call
        if call is None:
            raise TypeError("a stream is entered first: 'with engine.stream(request) as events'")
        with self._changed:
            while not call.is_left:
                if (event := self._feed.take()) is not None:
                    return event
                if call.has_ended:
                    call.result()
                    break
                self._changed.wait()
        raise StopIteration

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def check_no_loop(what: str) -> None:
    """Refuse to block a running loop. The loop of a notebook runs its cells, and may be blocked.

    Raises:
        WrongLoopError: A loop runs in this thread.
    """
    loop = running_loop()
    if loop is not None and not (loop == "asyncio" and "ipykernel" in sys.modules):
        raise wrong_loop(
            f"carmy_engine.blocking would hold the event loop of this thread ({what})",
            trio="async with app.open()",
            aio="async with carmy_engine.aio.open_app(app)",
            blocking="",
        )


def _resolve(news: Sequence[Delivery]) -> None:
    for each in news:
        each.resolve()
