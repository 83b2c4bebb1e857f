"""What the tests of worker processes share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import App, Engine, ExecutionRequest, ExecutionResult, Settings, WorkerSettings

from . import kit

PATIENCE_SECONDS = 45


@asynccontextmanager
async def isolated(*tools: Any, settings: Settings | None = None, processes: int = 1) -> AsyncIterator[Engine]:
    """An engine with the tools of the kit, or with others."""
    settings = settings or Settings(workers=WorkerSettings(max_processes=processes))
    with trio.fail_after(PATIENCE_SECONDS):
        async with App("isolated", settings=settings).add(*(tools or kit.TOOLS)).open() as engine:
            yield engine


async def run(
    engine: Any, tool: str, *, timeout_ms: float | None = None, key: str | None = None, **arguments: Any
) -> ExecutionResult:
    return await engine.execute(ExecutionRequest(tool=tool, arguments=arguments, timeout_ms=timeout_ms, request_id=key))


async def code_of(engine: Any, tool: str, **given: Any) -> str:
    error = (await run(engine, tool, **given)).error
    return "ok" if error is None else error.code


def is_alive(process: int) -> bool:
    """False for a process that has ended, reaped or not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def until(condition: Callable[[], object]) -> None:
    """Wait for something outside of this process."""
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - it has no event
            await trio.sleep(0.005)


def children() -> set[int]:
    """Child processes of this process, zombies among them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that a tool writes."""
    return tmp_path / "marker"
