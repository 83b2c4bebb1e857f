"""Worker threads for plain functions: bounded, abandoned at the deadline, and counted until they end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import trio

from .._model.error_boundary import raise_foreign
from .._model.errors import AgentError

MAX_THREADS = 64
"""Of one engine. Its own limiter: trio's default one serves files and DNS, and stuck tools must not starve those."""

STUCK_RETRY_SECONDS = 5
"""What a caller is told to wait when every thread is stuck: nobody knows, so not too often."""


class ThreadRun:
    """One function in one worker thread.

    Thread and trio side agree through two rules. Whoever takes `_claim` first decides whether the function runs at all.
    And each side writes its own flag (`finished`, `abandoned`) before it reads the other's, so that at least one of them
    sees that an abandoned thread has ended.

    Attributes:
        started: The function has begun.
        finished: It has ended, one way or another.
        abandoned: The caller stopped waiting for it while it ran.
        ended: Set once an abandoned thread has ended.
    """

    __slots__ = (
        "_claim",
        "_function",
        "_on_start",
        "_threads",
        "_token",
        "abandoned",
        "ended",
        "error",
        "finished",
        "value",
    )

    def __init__(self, threads: Threads, function: Callable[[], Any], on_start: Callable[[], None]) -> None:
        self._threads = threads
        self._function = function
        self._on_start = on_start
        self._token = trio.lowlevel.current_trio_token()
        self._claim = threading.Lock()
        self.finished = self.abandoned = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended = trio.Event()

    def __call__(self) -> None:
        """In the worker thread."""
        if not self._claim.acquire(blocking=False):
            return  # cancelled before it began
        try:
            self._on_start()
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001 - carried over to `run`
            self.error = error
        finally:
            del self._function, self._on_start  # an ended execution is kept for lookups, without its arguments
            self.finished = True
            if self.abandoned:
                with contextlib.suppress(trio.RunFinishedError):  # the program outlived its event loop; nobody waits
                    self._token.run_sync_soon(self._has_ended)

    def give_up(self) -> None:
        """In the trio thread, when the wait for it was cancelled."""
        if self._claim.acquire(blocking=False):
            del self._function, self._on_start
            return  # it had not begun, and now never will
        self._threads.stuck += 1
        self.abandoned = True
        if self.finished:
            self._has_ended()

    def _has_ended(self) -> None:
        if not self.ended.is_set():
            self._threads.stuck -= 1
            self.value = self.error = None
            self.ended.set()


class Threads:
    """The engine's worker threads.

    Attributes:
        stuck: Threads whose caller has given up and which still run.
    """

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limiter = trio.CapacityLimiter(limit)
        self.stuck = 0

    @property
    def busy(self) -> bool:
        """True when the next function has to wait for a thread."""
        return self._limiter.available_tokens == 0

    def prepare(self, function: Callable[[], Any], on_start: Callable[[], None]) -> ThreadRun:
        """A run to be passed to `run`; `on_start` is called in the thread when the function begins.

        Raises:
            AgentError: ``OVERLOADED``, when every thread is stuck: a wait would have no known end.
        """
        if self.stuck >= self._limiter.total_tokens:
            raise AgentError.standard(
                "OVERLOADED",
                f"all {self.stuck} worker threads are held by calls that outlived their deadline",
                retry_after=STUCK_RETRY_SECONDS,
            )
        return ThreadRun(self, function, on_start)

    async def run(self, run: ThreadRun) -> Any:
        """Run it in a thread; return what the function returns, or raise what `raise_foreign` makes of what it raises.

        If cancelled before the function began, it never runs. If cancelled later, the thread is abandoned: it runs on, keeps
        its slot, and counts as stuck until it ends. A function that has ended by then is not abandoned: its outcome
        is the truth about what happened, and counts.
        """
        try:
            # A function that ends while the cancel is on its way: trio drops its result, so it is kept on the run itself.
            await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._limiter)
        except trio.Cancelled:
            if not run.finished:
                run.give_up()
                raise
        error, run.error = run.error, None
        if error is not None:
            try:
                raise_foreign(error, awaits=True)
            finally:
                del error  # its traceback holds this frame
        value, run.value = run.value, None
        return value
