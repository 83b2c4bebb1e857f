"""The lifespan of an ASGI application in process: its start before the first request, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from carmy_engine import AgentError, grace
from carmy_engine.transport import Fault, await_foreign, call_foreign, log_fault

START_SECONDS = 30.0
STOP_SECONDS = 10.0
"""For the start and the end of the application, as long as for state of the engine's own."""


class StartFailed(Exception):  # noqa: N818 - a signal, like trio.TooSlowError
    """The application has not started; the text is the reason."""


@asynccontextmanager
async def run_lifespan(asgi: Any) -> AsyncIterator[Any]:
    """Start an application, and end it after the block. Gives the application with the state of its lifespan in each request.

    An application without a lifespan is given as it is.

    Raises:
        StartFailed: It reported that its start has failed, or takes too long.
    """
    state: dict[str, Any] = {}
    started, stopping, stopped = trio.Event(), trio.Event(), trio.Event()
    failures: list[str] = []

    async def receive() -> dict[str, Any]:
        if not started.is_set():
            return {"type": "lifespan.startup"}
        await stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "lifespan.startup.failed":
            failures.append(str(message.get("message", "")) or "its start failed")
        if message["type"].startswith("lifespan.startup"):
            started.set()
        await trio.lowlevel.checkpoint()

    async def run() -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}
        try:
            await await_foreign(call_foreign(asgi, scope, receive, send))
        except (AgentError, Fault) as fault:
            if started.is_set() and not failures:
                log_fault("the lifespan of an application in process", fault)
        finally:
            started.set()
            stopped.set()

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await asgi({**scope, "state": dict(state)}, receive, send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        with trio.move_on_after(START_SECONDS) as limit:
            await started.wait()
        try:
            if limit.cancelled_caught or failures:
                raise StartFailed(*failures or [f"it has not started within {START_SECONDS:g} s"])
            yield with_state
        finally:
            stopping.set()
            with grace(STOP_SECONDS):
                await stopped.wait()
            nursery.cancel_scope.cancel()
