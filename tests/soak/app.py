"""The program under load."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import trio

from carmy_engine import AgentContext, App

app = App("soak")


@app.tool(effect="none", parallel_safe=True)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@app.tool(effect="none", parallel_safe=True)
def add(a: int, b: int) -> int:
    """Add, in a thread."""
    return a + b


@app.tool(effect="write", parallel_safe=True)
async def note(key: str) -> str:
    """Append a line to the ledger. Running it twice for one key is what must not happen."""
    ledger = os.open(os.environ["SOAK_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{key}\n".encode())
    finally:
        os.close(ledger)
    await trio.sleep(0.002)
    return key


@app.tool(effect="none", parallel_safe=True)
async def slow(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "slept"


@app.tool(effect="none", parallel_safe=True)
async def panic() -> str:
    """Fail."""
    raise RuntimeError("on purpose")


@app.tool(effect="none", parallel_safe=True)
async def parts(ctx: AgentContext, count: int, size: int) -> int:
    """Send parts of a size."""
    for number in range(count):
        await ctx.progress.partial(f"{number}:{'x' * size}")
    return count


@app.tool(effect="none", parallel_safe=True, run_in="process")
def square(number: int) -> int:
    """Multiply, in a worker process."""
    return number * number


@app.tool(effect="none", parallel_safe=True, run_in="process")
def die() -> str:
    """End the worker process."""
    os._exit(9)


@app.tool(effect="none", parallel_safe=True, run_in="process")
def spin() -> str:
    """Never yield."""
    return str(sum(iter(int, 1)))


@app.tool(effect="none", parallel_safe=True)
async def vitals() -> dict[str, float]:
    """What must not grow."""
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": sum(map(_children, Path("/proc/self/task").iterdir())),
        "rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "cpu": time.process_time(),
    }


def _children(task: Path) -> int:
    """How many processes a thread of this one has started; 0 if it has ended meanwhile."""
    try:
        return len((task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return 0
