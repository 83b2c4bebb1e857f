"""Tools in worker processes under each kind of host."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from carmy_engine import App, ExecutionRequest, Settings, WorkerSettings, aio, blocking

from . import kit
from .conftest import PATIENCE_SECONDS, children, code_of, run, until

SETTINGS = Settings(workers=WorkerSettings(max_processes=1))
REPOSITORY = Path(__file__).parents[2]


def app() -> App:
    return App("hosted", settings=SETTINGS).add(*kit.TOOLS)


def test_asyncio_programs_have_workers() -> None:
    """Typed calls, deadlines and the end work from an asyncio program."""

    async def main() -> None:
        async with aio.open_app(app()) as engine:
            assert await engine.call(kit.shift, kit.Point(x=1)) == kit.Point(x=2)
            assert await engine.call(kit.numbers, [*range(50_000)]) == [*range(50_000)]
            result = await engine.execute(ExecutionRequest(tool="spins", timeout_ms=100))
            assert result.error is not None
            assert result.error.code == "TIMEOUT"
            assert (await engine.call(kit.process_id))[0] != os.getpid()

    before = children()
    asyncio.run(main())
    assert children() == before


def test_plain_programs_have_workers() -> None:
    """So do programs without a loop. The engine's thread is not the one that uses it, and a worker outlives callers' threads."""
    before = children()
    with blocking.open_app(app()) as engine:
        pids: list[int] = []
        for _ in range(2):
            caller = threading.Thread(target=lambda: pids.append(engine.call(kit.process_id)[0]))
            caller.start()
            caller.join()
        assert pids[0] == pids[1]
        assert engine.call(kit.shift, kit.Point(x=1)) == kit.Point(x=2)
    assert children() == before


async def test_middleware_of_asyncio_runs_around_a_worker(marker: Path) -> None:
    """With middleware in another loop, a cancel still ends the process at the deadline."""

    async def passes(call: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(0)
        return await proceed()

    layered = App("layered", settings=SETTINGS, backend="asyncio").add(*kit.TOOLS)
    layered.middleware(passes)
    with trio.fail_after(PATIENCE_SECONDS):
        async with layered.open() as engine:
            assert await engine.call(kit.shift, kit.Point(x=1)) == kit.Point(x=2)
            assert await code_of(engine, "dies", how="kill") == "TOOL_CRASHED"
            assert await code_of(engine, "fails", how="declared") == "OUT_OF_STOCK"
            await engine.call(kit.process_id)
            error = (await run(engine, "spins", started=str(marker), timeout_ms=200)).error
            assert error is not None
            assert (error.code, error.details) == ("TIMEOUT", {"phase": "running", "cause": "deadline"})
            worker = int(marker.read_text())
            await until(lambda: worker not in children())
