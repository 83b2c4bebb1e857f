"""The application that granian imports in `test_granian.py`: `api` alone, and `web` with it below a path. It prints what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio
from fastapi import FastAPI

from carmy_engine import AgentContext, App, State


class Log:
    """Lines for the test."""

    def add(self, line: str) -> None:
        """Print a line."""
        print(line, flush=True)


app = App("shop")


async def opened() -> AsyncIterator[Log]:
    """State with a life."""
    log = Log()
    log.add("opened")
    yield log
    log.add("closed")


app.provide(opened)


@app.tool(effect="none")
async def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"


@app.tool(effect="write", timeout=20)
async def wait(log: State[Log], ctx: AgentContext) -> None:
    """Wait to be cancelled."""
    await ctx.progress.partial("begun")
    log.add("waiting")
    try:
        await trio.sleep_forever()
    finally:
        cause = ctx.cancellation.cause
        log.add(f"ended {cause.value if cause else None}")


@app.tool(effect="write", timeout=20)
async def finish(log: State[Log]) -> str:
    """Take longer than the server takes to begin its stop."""
    log.add("finishing")
    await trio.sleep(0.5)
    return "finished"


@app.tool(effect="none")
async def many(ctx: AgentContext, size: int) -> int:
    """Send parts."""
    for number in range(size):
        await ctx.progress.partial("x" * 1000 + str(number))
    return size


api = app.asgi()
web = FastAPI(lifespan=api.lifespan)
web.mount("/agents", api)
