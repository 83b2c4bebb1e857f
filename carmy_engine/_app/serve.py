"""The life of a serving process: signals, draining, and the end.

The first SIGTERM, SIGINT or SIGHUP drains: the engine takes no new calls, running ones get ``drain_timeout_secs``, the rest are
cancelled and still answered, and the process exits with 0. A second signal ends the process at once, with its children;
so does the hard limit, for a tool that ignores its cancellation.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

import trio

from .._config.settings import Settings
from .._engine.engine import Engine

log = logging.getLogger("carmy.engine")

FLUSH_SECONDS = 5.0
"""Limit for a transport to return after the last execution. It bounds its own flush more tightly; this is for bugs."""

MAX_EXIT_SECONDS = 5.0
"""Limit for the interpreter to exit after serving: libraries may send data at exit."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""The last is sent where a terminal is closed; Windows has none."""


class Serve(Protocol):
    """A function that serves an engine, such as a `Transport`."""

    def __call__(self, engine: Engine, /, *, task_status: trio.TaskStatus[str]) -> Awaitable[None]:
        """Serve until cancelled or until ``engine.stopped``; report the address once listening."""
        ...


async def serve(engine: Engine, transport: Serve, *, announce: Callable[[str], None], patient: bool = False) -> None:
    """Serve until the transport returns or a signal has been obeyed. Returns with the engine shut down.

    Args:
        engine: An open engine.
        transport: What serves it.
        announce: Gets one line once the transport is listening, and one when draining begins.
        patient: See `stop_signals`.

    Raises:
        OSError: The transport cannot listen.
        ConfigurationError: The transport refuses the settings.
    """
    stop = trio.Event()
    with hard_limit(stop_limit(engine.settings)) as stopping, stop_signals(stop.set, stopping, patient=patient):
        async with trio.open_nursery() as nursery:
            serving = trio.CancelScope()
            nursery.start_soon(_drain_after, stop, engine, serving, announce)
            with serving:
                await _serve(engine, transport, announce)
            # The transport returned by itself, because its input ended, or after a signal.
            await engine.shut_down()
            nursery.cancel_scope.cancel()


async def _serve(engine: Engine, transport: Serve, announce: Callable[[str], None]) -> None:
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(_call, transport, engine))
        # Freeze everything loaded so far: a full collection would stall the loop, for 90 ms with the SDK of MCP loaded.
        gc.freeze()
        announce(listening)


async def _call(transport: Serve, engine: Engine, *, task_status: trio.TaskStatus[str]) -> None:
    await transport(engine, task_status=task_status)


async def _drain_after(
    stop: trio.Event, engine: Engine, serving: trio.CancelScope, announce: Callable[[str], None]
) -> None:
    await stop.wait()
    announce("stopping once running calls have ended; a second signal ends the process at once")
    await engine.shut_down()
    serving.deadline = trio.current_time() + FLUSH_SECONDS


def stop_limit(settings: Settings) -> float:
    """Seconds in which a process that stops has ended: the drain, and the cancel and the answers of what runs then."""
    return settings.drain_timeout_secs + settings.exit_timeout_secs


@contextlib.contextmanager
def hard_limit(seconds: float) -> Iterator[Callable[[int], None]]:
    """Yield a function that limits the rest of the block, in seconds. A block that takes longer ends the process.

    A thread watches, because a tool may hold the event loop, or swallow every cancel and so keep its task for ever.
    """
    began, over = threading.Event(), threading.Event()
    numbers: list[int] = []

    def watch() -> None:
        began.wait()
        if not over.wait(seconds):
            log.error("a call does not end although it was cancelled: ending the process without it")
            end_flushed(numbers[0])

    def begin(number: int) -> None:
        numbers.append(number)
        began.set()

    threading.Thread(target=watch, name="carmy-hard-limit", daemon=True).start()
    try:
        yield begin
    finally:
        over.set()
        began.set()


def limit_exit(settings: Settings) -> None:
    """Limit the end of the interpreter, which waits for every thread that a tool has left behind.

    A process that takes longer ends with the exit code 1 and without its children.
    """

    def watch() -> None:
        threading.main_thread().join()  # which ends before the interpreter waits for the others
        time.sleep(min(MAX_EXIT_SECONDS, settings.exit_timeout_secs))
        log.error("a thread that a tool or a library has started does not end: ending the process without it")
        _flush()
        try:
            kill_descendants(os.getpid())
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="carmy-exit", daemon=True).start()


@contextlib.contextmanager
def stop_signals(
    on_first: Callable[[], object],
    stopping: Callable[[int], object] | None = None,
    *,
    patient: bool = False,
) -> Iterator[None]:
    """Call `on_first` in the trio thread when the first stop signal arrives; end the process at the second.

    The handler also calls `stopping` with the first signal's number, at once and whatever the event loop does.
    If `patient`, it ignores later signals, and all signals after the block: a supervisor ends the process.

    The handlers run between any two byte codes of the main thread, so the second signal works even while a tool holds
    the event loop. Outside the main thread signals cannot be handled, and nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    token = trio.lowlevel.current_trio_token()
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            if not patient:
                end_at_once(number)
            return
        if stopping is not None:
            stopping(number)
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(on_first)

    # Signals that are ignored stay ignored: `nohup` starts a process in this way.
    handled = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if patient else handler)


_flushes: list[Callable[[], object]] = []


def flush_at_forced_exit(flush: Callable[[], object]) -> None:
    """Call `flush` before `end_flushed` or the limit of the interpreter's exit ends the process, which skips `atexit`.

    Args:
        flush: Writes pending output within a limit of its own. Called in any thread, at most once.
    """
    _flushes.append(flush)


def _flush() -> None:
    while _flushes:
        _flushes.pop()()


def end_flushed(number: int) -> None:
    """End this process and everything it started, after its pending output. Does not return."""
    _flush()
    end_at_once(number)


def end_at_once(number: int) -> None:
    """End this process and everything it started, without any clean-up. Does not return."""
    try:
        kill_descendants(os.getpid())
    finally:
        os._exit(128 + number)


def kill_descendants(ancestor: int) -> None:
    """Kill everything that a process has started."""
    for pid in descendants(ancestor):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)


def descendants(ancestor: int) -> list[int]:
    """The processes that `ancestor` started, and theirs, deepest last. Empty where there is no ``/proc``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid ...; the name may contain anything, also brackets and spaces.
            parent = int(entry.read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(entry.parent.name))
    found = list(children.get(ancestor, []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found
