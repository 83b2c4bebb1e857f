"""Watchdog for tasks that block the event loop, and with it all deadlines and health checks.

A thread schedules a callback on the loop. If the callback does not run in time, the thread logs the stack of the loop's thread.
Calls have no extra cost.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

import trio

from .invoke import Invoker

log = logging.getLogger("carmy.engine")

STALL_SECONDS = 1.0
"""Time without a response of the event loop that counts as a stall."""

_POLL_SECONDS = 0.25


Post = Callable[[Callable[[], object]], object]
"""Calls a function in an event loop."""


class Watchdog:
    """Watches an event loop for as long as its block lasts: that of the current trio run, unless `watching` names another.

    Args:
        stall_seconds: See `STALL_SECONDS`.

    Attributes:
        stalls: Number of detected stalls.
        last_stalled: Tool that blocked the loop in the last stall; None if no tool was on the stack.
        lag: Seconds in which the loop ran the last callback.
    """

    def __init__(self, stall_seconds: float = STALL_SECONDS) -> None:
        self._stall_seconds = stall_seconds
        self._poll_seconds = min(_POLL_SECONDS, stall_seconds / 2)
        self.stalls = 0
        self.last_stalled: str | None = None
        self.lag = 0.0
        self._stop = threading.Event()

    def __enter__(self) -> Watchdog:
        token = trio.lowlevel.current_trio_token()
        return self.watching(token.run_sync_soon, threading.get_ident(), tool_on, "the event loop")

    def watching(
        self,
        post: Post,
        loop_thread: int,
        tool_on: Callable[[FrameType | None], str | None],
        loop: str,
        *,
        only_tools: bool = False,
    ) -> Watchdog:
        """Start to watch a loop.

        Args:
            post: Calls a function in the loop; callable in any thread.
            loop_thread: Identifier of its thread.
            tool_on: Finds the tool on a stack.
            loop: The noun for it in messages.
            only_tools: Do not report a stall without a tool on the stack.
        """
        # A daemon thread, so that the watchdog of a blocked loop does not keep the process alive.
        self._thread = threading.Thread(
            target=self._watch, args=(post, loop_thread, tool_on, loop, only_tools), name="carmy-watchdog", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()

    def _watch(
        self,
        post: Post,
        loop_thread: int,
        tool_on: Callable[[FrameType | None], str | None],
        loop: str,
        only_tools: bool,
    ) -> None:
        sign = threading.Event()
        while not self._stop.wait(self._poll_seconds):
            sign.clear()
            asked = time.monotonic()
            try:
                post(sign.set)
            except trio.RunFinishedError:
                return
            answered = sign.wait(self._stall_seconds) or self._stop.is_set()
            self.lag = time.monotonic() - asked
            if answered:
                continue
            frame = sys._current_frames().get(loop_thread)  # noqa: SLF001 - the documented way to see another thread's stack
            found = tool_on(frame)
            if found is None and only_tools:
                del frame
                while not sign.wait(self._poll_seconds) and not self._stop.is_set():
                    pass
                continue
            self.stalls += 1
            self.last_stalled = found
            stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
            del frame
            if self.last_stalled is not None:
                what = f"the tool {self.last_stalled} holds {loop}"
                advice = "Declare it with a plain def, so that it runs in a thread, or await between its steps."
            else:
                what = f"{loop} gives no sign of life"
                advice = "A task computes without awaiting, or threads that compute leave it no time."
            log.warning(
                "%s for more than %g s; nothing else runs meanwhile. %s\n%s", what, self._stall_seconds, advice, stack
            )
            while not sign.wait(self._poll_seconds):
                self.lag = time.monotonic() - asked
                if self._stop.is_set():
                    return
            log.warning("%s runs again after %.1f s", loop, time.monotonic() - asked)


def tool_on(frame: FrameType | None) -> str | None:
    """Name of the tool whose invocation is on this stack; None if there is none."""
    while frame is not None:
        if frame.f_code is Invoker.invoke.__code__:
            tool: str = frame.f_locals["execution"].tool
            return tool
        frame = frame.f_back
    return None
