"""A server to be ended: run as a process by the tests. Says where it listens, and what begins, on standard output."""

from __future__ import annotations

import resource
import sys
import time

import trio

import carmy_http
from carmy_engine import AgentContext, App, Settings, tool
from carmy_engine._app import serve


def say(line: str) -> None:
    """Write a line in one piece: log lines go to the same pipe, and ``print`` may write its newline apart."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@tool(effect="write", parallel_safe=True, register=False)
async def until(seconds: float) -> str:
    """Take some time."""
    say("begun")
    await trio.sleep(seconds)
    return "done"


@tool(effect="none", parallel_safe=True, register=False)
async def big() -> str:
    """Return a long text."""
    say("begun")
    return "x" * 7_000_000


@tool(effect="none", parallel_safe=True, register=False)
async def flood(ctx: AgentContext) -> str:
    """Send parts for ever."""
    say("begun")
    while True:
        await ctx.progress.partial("x" * 65536)


@tool(effect="none", parallel_safe=True, register=False)
async def stubborn() -> str:
    """Refuse to be cancelled."""
    say("begun")
    while True:
        try:
            await trio.sleep_forever()
        except BaseException:
            continue


@tool(effect="none", parallel_safe=True, register=False)
async def spin() -> str:
    """Hold the event loop."""
    say("begun")
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 - the very thing that is tested


async def main(drain_timeout: float) -> None:
    # The limit is shorter than the default, and longer than what the transport itself needs.
    settings = Settings(address="127.0.0.1:0", drain_timeout_secs=drain_timeout, exit_timeout_secs=4.7)
    app = App("loaded", settings=settings).add(until, big, flood, stubborn, spin)
    async with app.open() as engine:
        await serve.serve(engine, carmy_http.serve, announce=say)


if __name__ == "__main__":
    if limit := int(sys.argv[2]):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    trio.run(main, float(sys.argv[1]))
