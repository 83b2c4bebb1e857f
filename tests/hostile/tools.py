"""Tools for the hostile peers to call."""

from __future__ import annotations

import threading

import trio

from carmy_engine import AgentContext, tool


@tool(effect="none", idempotent=True, parallel_safe=True, register=False)
async def echo(text: str = "") -> str:
    """Say it again."""
    return text


class Hold:
    """A tool that runs until it is cancelled, how often it does at present, and how often it has begun."""

    def __init__(self) -> None:
        self.running = 0
        self.begun = 0
        self._begun: set[int] = set()
        self._changed = trio.Event()

    def tool(self):
        """The declared tool."""

        @tool(effect="write", parallel_safe=True, register=False)
        async def hold(number: int = 0) -> None:
            """Wait until cancelled."""
            self.begun += 1
            self._begun.add(number)
            self._count(1)
            try:
                await trio.sleep_forever()
            finally:
                self._begun.discard(number)
                self._count(-1)

        return hold

    async def reaches(self, count: int) -> None:
        """Wait until exactly so many run."""
        with trio.fail_after(20):
            while self.running != count:
                await self._changed.wait()

    async def begins(self, number: int) -> None:
        """Wait until the call with this number runs."""
        with trio.fail_after(20):
            while number not in self._begun:
                await self._changed.wait()

    def _count(self, change: int) -> None:
        self.running += change
        self._changed.set()
        self._changed = trio.Event()


@tool(effect="none", parallel_safe=True, register=False)
async def big(size: int) -> str:
    """Return a long text."""
    return "x" * size


@tool(effect="none", parallel_safe=True, register=False)
async def parts(ctx: AgentContext, size: int = 65536) -> str:
    """Send parts of a result for ever."""
    while True:
        await ctx.progress.partial("x" * size)


@tool(effect="none", parallel_safe=True, register=False)
async def reports(ctx: AgentContext, count: int) -> int:
    """Report progress a number of times."""
    for step in range(count):
        ctx.progress.report(step, count, "step")
        if step % 100 == 0:
            await trio.lowlevel.checkpoint()
    return count


class Block:
    """A plain function that holds its thread until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def tool(self):
        """The declared tool."""

        @tool(effect="none", parallel_safe=True, register=False)
        def block() -> str:
            """Hold a thread."""
            self.released.wait(60)
            return "released"

        return block


@tool(effect="none", parallel_safe=True, register=False)
def quick() -> str:
    """Return from a thread at once."""
    return "quick"


ALL = (echo, big, parts, reports, quick)
