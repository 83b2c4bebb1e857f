"""A thread that runs trio, for the calls of other threads."""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import trio

from .._loops.dispatcher import Delivery, Dispatcher
from .._model.error_boundary import raise_single

ORPHAN_SECONDS = 0.5
"""Interval between two checks whether the host's loop is closed."""

EXIT_SECONDS = 5.0
"""Limit for the shutdown of an engine that the program has left open at its end."""

T = TypeVar("T")


class TrioThread(Generic[T]):
    """Runs trio in a daemon thread, from `start` to `close`.

    Args:
        open_subject: Opens the subject of the calls, such as an engine; entered and left in the trio thread.
        what: The noun for it in messages, such as ``the engine 'shop'``.
        deliver: See `Dispatcher`.
        on_started: Called in the trio thread once the subject is open.
        on_ended: Called last in the thread. `failure` is set if opening or closing failed.
        is_orphaned: Returns True once the host is gone without `close`. Called in the trio thread.
        context: The context variables of the thread; None for a copy of the current ones.

    Attributes:
        dispatcher: Takes the calls.
        subject: The opened subject.
        failure: The exception of opening or closing the subject.
    """

    subject: T

    def __init__(
        self,
        open_subject: Callable[[], AbstractAsyncContextManager[T]],
        what: str,
        *,
        deliver: Callable[[Sequence[Delivery]], None],
        on_started: Callable[[], object],
        on_ended: Callable[[], object],
        is_orphaned: Callable[[], bool] | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        self.dispatcher = Dispatcher(what, deliver)
        self.failure: BaseException | None = None
        self._open_subject = open_subject
        self._on_started = on_started
        self._on_ended = on_ended
        self._is_orphaned = is_orphaned
        self._closing: trio.Event | None = None
        self._is_closing = False
        self._opening = trio.CancelScope()
        context = contextvars.copy_context() if context is None else context
        self._thread = threading.Thread(target=lambda: context.run(self._run), name="carmy-trio", daemon=True)

    def start(self) -> None:
        """Start the thread; `on_started` or `on_ended` follows."""
        _open_threads.add(self)
        self._thread.start()

    def close(self) -> None:
        """Begin to close the subject: calls end as it decides, later ones are refused. Opening it is cancelled."""
        self._is_closing = True
        self.dispatcher.run_soon(self._close)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout)

    # --- the trio thread

    def _close(self) -> None:
        if self._closing is None:
            self._opening.cancel()
        else:
            self._closing.set()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the host
            self.failure = error
        finally:
            _open_threads.discard(self)
            self.dispatcher.end()
            self._on_ended()

    async def _main(self) -> None:
        try:
            # Around the subject, so that closing it still answers the calls that run.
            async with trio.open_nursery() as nursery:
                self.dispatcher.start(nursery)
                with self._opening:
                    if self._is_closing:
                        self._opening.cancel()
                    async with self._open_subject() as self.subject:
                        self._closing = trio.Event()
                        if self._is_orphaned is not None:
                            nursery.start_soon(self._close_if_orphaned, self._is_orphaned)
                        self._on_started()
                        await self._closing.wait()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)

    async def _close_if_orphaned(self, is_orphaned: Callable[[], bool]) -> None:
        while not is_orphaned():  # noqa: ASYNC110 - asyncio sends no event when a loop is closed
            await trio.sleep(ORPHAN_SECONDS)
        self.close()


_open_threads: weakref.WeakSet[TrioThread[Any]] = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the process: close what the program has left open, so that executions and stores end properly."""
    threads = [*_open_threads]
    for thread in threads:
        thread.close()
    end = time.monotonic() + EXIT_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _refuse_all() -> None:
    """In a forked process, which does not have the threads."""
    for thread in [*_open_threads]:
        thread.dispatcher.refuse(
            f"{thread.dispatcher.what} was opened before this process was forked, and its thread is in the other process:"
            " open one in each process"
        )


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_all)
