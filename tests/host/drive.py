"""Runs an application under trio and under asyncio with the same code, which only awaits the engine."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from carmy_engine import App, ExecutionRequest, aio

Main = Callable[[Any], Awaitable[None]]

HOSTS = ("trio", "asyncio")


def drive(host: str, app: App, main: Main) -> None:
    """Open the application in a program of this kind, and run `main` with the engine. No task and no thread is left."""

    async def under_trio() -> None:
        async with app.open() as engine:
            await main(engine)
            assert engine.statistics().running == engine.statistics().stuck_tasks == 0

    async def under_asyncio() -> None:
        async with aio.open_app(app) as engine:
            await main(engine)
            assert engine.statistics().running == engine.statistics().stuck_tasks == 0
        assert len(asyncio.all_tasks()) == 1

    if host == "trio":
        trio.run(under_trio)
    else:
        asyncio.run(under_asyncio(), debug=True)
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"carmy-asyncio", "carmy-trio"}


async def call_together(engine: Any, requests: Sequence[ExecutionRequest], *, leave: float = 0.0) -> list[Any]:
    """Run requests at the same time; return their results. A share of the calls is left at random moments, without a result."""
    chance = random.Random(7)
    delays = [chance.random() * 0.2 if chance.random() < leave else None for _ in requests]
    results: list[Any] = []

    async def call(request: ExecutionRequest) -> None:
        results.append(await engine.execute(request))

    if trio.lowlevel.in_trio_run():

        async def leave_trio(request: ExecutionRequest, delay: float | None) -> None:
            with trio.move_on_after(1000 if delay is None else delay):
                await call(request)

        async with trio.open_nursery() as nursery:
            for request, delay in zip(requests, delays, strict=True):
                nursery.start_soon(leave_trio, request, delay)
        return results

    async def leave_asyncio(request: ExecutionRequest, delay: float | None) -> None:
        try:
            async with asyncio.timeout(delay):
                await call(request)
        except TimeoutError:
            pass

    async with asyncio.TaskGroup() as group:
        for request, delay in zip(requests, delays, strict=True):
            group.create_task(leave_asyncio(request, delay))
    return results


async def pause(seconds: float) -> None:
    """Let other tasks run."""
    await (trio.sleep(seconds) if trio.lowlevel.in_trio_run() else asyncio.sleep(seconds))  # noqa: ASYNC105 - it is


def timed(tool: str, timeout_ms: float, **arguments: Any) -> ExecutionRequest:
    """A request with a deadline."""
    return ExecutionRequest(tool=tool, arguments=arguments, timeout_ms=timeout_ms)
