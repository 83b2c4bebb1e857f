"""Tools that run in worker processes."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel

from carmy_engine import AgentContext, AgentError, tool

LOADED_IN = os.getpid()

log = logging.getLogger("kit.tools")


class Point(BaseModel):
    """A model."""

    x: int
    label: str = ""


class Span(msgspec.Struct):
    """A struct."""

    start: Point
    length: float


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def process_id() -> list[int]:
    """The worker, its group, its session, and the process that imported this module."""
    return [os.getpid(), os.getpgid(0), os.getsid(0), LOADED_IN]


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def shift(point: Point, by: int = 1) -> Point:
    """Move a point."""
    return Point(x=point.x + by, label=point.label)


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def whole(span: Span) -> Span:
    """An input that is the arguments."""
    return Span(start=span.start, length=2 * span.length)


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def text(length: int) -> str:
    """A long output."""
    return "x" * length


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def numbers(items: list[int]) -> list[int]:
    """Long arguments and outputs."""
    return items


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def context_of(ctx: AgentContext) -> dict[str, Any]:
    """What a tool sees of its caller."""
    return {
        "principal": ctx.principal,
        "session": ctx.session,
        "permissions": sorted(ctx.permissions),
        "metadata": ctx.metadata,
        "transport": ctx.transport,
        "run_id": ctx.run_id,
        "execution_id": ctx.execution_id,
        "request_id": ctx.request_id,
        "remaining": ctx.remaining(),
        "cancelled": ctx.cancellation.cancelled,
        "is_listening": ctx.progress.is_listening,
    }


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def reports(ctx: AgentContext, parts: int) -> str:
    """Report, send parts and log."""
    ctx.progress.report(1, 2, "half")
    for number in range(parts):
        ctx.progress.partial_from_thread({"part": number})
    ctx.log("warning", "a line for the caller")
    ctx.progress.report(float("nan"), message="done")
    return "reported"


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def counts(ctx: AgentContext, progress: float, total: int) -> None:
    """Report once."""
    ctx.progress.report(int(progress) if progress.is_integer() else progress, total)


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def bad_part(ctx: AgentContext) -> str:
    """Send what is not JSON."""
    ctx.progress.partial_from_thread(object())
    return ""


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def logs(word: str) -> str:
    """Log and print."""
    log.warning("the word is %s", word)
    log.debug("nobody reads this")
    print("printed", word)
    return word


class Odd(Exception):
    """An exception that no other process knows."""


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def fails(how: Literal["declared", "group", "panic", "exit", "interrupt", "output", "large"]) -> str:
    """Raise."""
    error = AgentError("OUT_OF_STOCK", "none left", "conflict", recoverable=True, details={"left": 0, "of": [1, 2]})
    match how:
        case "declared":
            raise error
        case "group":
            raise ExceptionGroup("group", [error])
        case "panic":
            raise Odd("a secret text")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "output":
            return 3  # type: ignore[return-value]
        case "large":
            return "x" * 9_000_000


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def dies(how: Literal["exit", "kill", "segfault", "abort"]) -> str:
    """End the process."""
    match how:
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
    return ""


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def spins(started: str = "") -> str:
    """Never yield: a loop in C that holds the interpreter."""
    if started:
        Path(started).write_text(str(os.getpid()))
    return str(sum(iter(int, 1)))


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def sleeps_with_children(started: str) -> str:
    """Wait, with processes of its own."""
    child = subprocess.Popen(["sleep", "1000"])
    forked = os.fork()
    if forked == 0:
        time.sleep(1000)
        os._exit(0)
    Path(started).write_text(f"{os.getpid()} {child.pid} {forked}")
    time.sleep(1000)
    return ""


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def leaves_child_and_dies(started: str) -> str:
    """Die, and leave a forked process behind."""
    forked = os.fork()
    if forked == 0:
        time.sleep(1000)
        os._exit(0)
    Path(started).write_text(str(forked))
    os._exit(4)


@tool(effect="write", run_in="process", parallel_safe=True, register=False)
def polite(ctx: AgentContext, started: str, then: Literal["raise", "return", "declared", "panic", "ignore"]) -> str:
    """Notice the cancel."""
    Path(started).touch()
    while not ctx.cancellation.cancelled or then == "ignore":
        time.sleep(0.001)
    assert ctx.cancellation.cause is not None
    match then:
        case "raise":
            ctx.cancellation.check()
        case "declared":
            raise AgentError("HALF_DONE", "one of two", "conflict")
        case "panic":
            raise Odd("cut off")
    return ctx.cancellation.cause.value


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def descriptors() -> list[str]:
    """Open descriptors beside the standard ones: what each is."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        if number > 2:
            try:
                found.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
            except OSError:
                continue  # the one of the listing
    return found


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def allocates(megabytes: int) -> int:
    """Fill memory."""
    return len(bytearray(megabytes * 1024 * 1024))


@tool(effect="none", run_in="process", parallel_safe=True, register=False)
def waits(seconds: float) -> int:
    """Wait; return the process."""
    time.sleep(seconds)
    return os.getpid()


@tool(effect="none", run_in="process", register=False)
def takes_turns() -> int:
    """One at a time."""
    return os.getpid()


TOOLS = [
    process_id, shift, whole, text, numbers, context_of, reports, counts, bad_part, logs, fails, dies, spins, sleeps_with_children,
    leaves_child_and_dies, polite, descriptors, allocates, waits, takes_turns,
]  # fmt: skip
