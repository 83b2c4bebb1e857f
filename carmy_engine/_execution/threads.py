"""Worker threads for plain functions: bounded, abandoned at the deadline, and counted until they end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import trio

from .._model.error_boundary import raise_foreign
from .._model.errors import AgentError

STUCK_RETRY_SECONDS = 5
"""``retry_after`` when every thread is stuck: the end is unknown, so retries should be rare."""


class ThreadRun:
    """One function in one worker thread.

    Two rules synchronise the worker thread and the trio thread. The side that acquires `_claim` first decides whether the
    function runs. Each side writes its own flag (`finished`, `abandoned`) before it reads the other flag. So at least one side
    detects the end of an abandoned thread.

    Attributes:
        started: The function has begun.
        finished: The function has returned or raised.
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
        """Run the function. Called in the worker thread."""
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
                with contextlib.suppress(trio.RunFinishedError):  # the event loop has ended, so no task waits
                    self._token.run_sync_soon(self._has_ended)

    def give_up(self) -> None:
        """Abandon the run. Called in the trio thread when the wait is cancelled."""
        if self._claim.acquire(blocking=False):
            del self._function, self._on_start
            return  # it had not begun, and will not run
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
    """The engine's worker threads. Trio's default limiter serves files and DNS, which stuck tools must not block.

    Args:
        limit: The number of threads.

    Attributes:
        limiter: Of all threads.
        stuck: Number of abandoned threads that still run.
    """

    def __init__(self, limit: int) -> None:
        self.limiter = trio.CapacityLimiter(limit)
        self.stuck = 0

    @property
    def busy(self) -> bool:
        """True if all threads are in use."""
        return self.limiter.available_tokens == 0

    def prepare(self, function: Callable[[], Any], on_start: Callable[[], None]) -> ThreadRun:
        """Create a run for `run`; `on_start` is called in the thread when the function begins.

        Raises:
            AgentError: ``OVERLOADED``, when every thread is stuck: a wait would have no known end.
        """
        if self.stuck >= self.limiter.total_tokens:
            raise AgentError.standard(
                "OVERLOADED",
                f"all {self.stuck} worker threads are held by calls that outlived their deadline",
                retry_after=STUCK_RETRY_SECONDS,
            )
        return ThreadRun(self, function, on_start)

    async def run(self, run: ThreadRun) -> Any:
        """Run the function in a thread and return its result. Exceptions pass through `raise_foreign`.

        If cancelled before the function began, it never runs. If cancelled later, the thread is abandoned: it runs on, keeps
        its slot, and counts as stuck until it ends. A function that has already ended is not abandoned: its outcome is
        returned.
        """
        try:
            # Trio drops the result of a function that ends during the cancel, so the run stores it.
            await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self.limiter)
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
