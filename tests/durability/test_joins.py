"""Joining across processes: the run is in one, and who waits for it in another one, on the same file."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from carmy_engine import App, Engine, ExecutionRequest, ExecutionResult

PROGRAM = """
import sys
import trio
from carmy_engine import App, ExecutionRequest

store, tool = sys.argv[1:]
app = App("holder").store(f"sqlite:{store}")

async def hold() -> str:
    print("begun", flush=True)
    await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return "of the holder"

app.tool(effect="write", parallel_safe=True, name="write")(hold)
app.tool(effect="read", parallel_safe=True, name="read")(hold)

async def main():
    async with app.open() as engine:
        await engine.execute(ExecutionRequest(tool=tool, request_id="r"))

trio.run(main)
"""


@asynccontextmanager
async def holder(path: Path, tool: str) -> AsyncIterator[trio.Process]:
    """A process that runs a tool until it gets a line, or is killed."""
    command = [sys.executable, "-c", PROGRAM, str(path), tool]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, stdin=-1, stdout=-1, check=False, cwd=Path(__file__).parents[2])
        process = await nursery.start(run, command)
        try:
            told = b""
            while not told.endswith(b"\n"):
                told += await process.stdout.receive_some(100)
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def here(path: Path) -> AsyncIterator[Engine]:
    """This process's engine on the file."""
    app = App("here").store(f"sqlite:{path}")

    async def ours() -> str:
        return "of this one"

    app.tool(effect="write", parallel_safe=True, name="write")(ours)
    app.tool(effect="read", parallel_safe=True, name="read")(ours)
    async with app.open() as engine:
        yield engine


def request(tool: str) -> ExecutionRequest:
    return ExecutionRequest(tool=tool, request_id="r", on_running="wait", timeout_ms=25_000)


async def join(engine: Engine, tool: str, results: list[ExecutionResult]) -> None:
    results.append(await engine.execute(request(tool)))


@pytest.mark.parametrize("tool", ["write", "read"])
async def test_the_answer_of_another_process(tmp_path: Path, tool: str) -> None:
    """The answer of a run in another process is replayed to all callers that joined it here."""
    path = tmp_path / "state.db"
    results: list[ExecutionResult] = []
    with trio.fail_after(50):
        async with holder(path, tool) as process, here(path) as engine, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(join, engine, tool, results)
            while engine.statistics().running < 3:
                await trio.lowlevel.checkpoint()
            # Whoever were not waiting would have been refused by now: the file has been asked once more.
            await engine.executions()
            assert process.stdin is not None
            await process.stdin.send_all(b"\n")
    assert [(result.data, result.replayed) for result in results] == [("of the holder", True)] * 3


@pytest.mark.parametrize("tool", ["write", "read"])
async def test_another_process_dies(tmp_path: Path, tool: str) -> None:
    """If the process of the run is killed, a joiner runs what may be repeated; a write is uncertain, and has not run again."""
    path = tmp_path / "state.db"
    results: list[ExecutionResult] = []
    with trio.fail_after(50):
        async with holder(path, tool) as process, here(path) as engine, trio.open_nursery() as nursery:
            nursery.start_soon(join, engine, tool, results)
            while engine.statistics().running < 1:
                await trio.lowlevel.checkpoint()
            await engine.executions()
            process.kill()
    (result,) = results
    if tool == "read":
        assert (result.data, result.replayed) == ("of this one", False)
    else:
        assert result.error is not None
        assert (result.error.code, (result.error.details or {})["state"]) == ("EXECUTION_UNCERTAIN", "interrupted")
