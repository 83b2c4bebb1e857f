"""Tools for the tests of HTTP."""

from __future__ import annotations

import trio

from carmy_engine import AgentContext, tool
from carmy_engine.errors import AgentError


@tool(effect="none", idempotent=True, parallel_safe=True, register=False)
async def echo(text: str = "") -> str:
    """Say it again."""
    return text


@tool(effect="read", parallel_safe=True, register=False)
async def sleep(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "slept"


@tool(effect="none", parallel_safe=True, register=False)
async def nothing() -> None:
    """Return null."""


@tool(effect="none", parallel_safe=True, register=False)
async def progress(ctx: AgentContext, count: int) -> int:
    """Report a number of times."""
    for step in range(count):
        ctx.progress.report(step + 1, count, "step")
        await trio.lowlevel.checkpoint()
    return count


@tool(effect="none", parallel_safe=True, register=False)
async def parts(ctx: AgentContext, count: int, size: int) -> int:
    """Send parts of a result."""
    for _ in range(count):
        await ctx.progress.partial("x" * size)
    return count


@tool(effect="none", parallel_safe=True, register=False)
async def big(size: int) -> str:
    """Return a long text."""
    return "x" * size


@tool(effect="destructive", register=False)
async def delete(name: str) -> str:
    """Delete something."""
    return name


@tool(effect="write", parallel_safe=True, register=False)
async def fail(code: str, category: str, retryable: bool = False, retry_after: float | None = None) -> str:
    """Fail as asked."""
    raise AgentError(code, "as asked", category, retryable=retryable, retry_after=retry_after)


@tool(effect="write", parallel_safe=True, register=False)
async def crash() -> str:
    """Fail without saying so."""
    raise RuntimeError("a secret")


@tool(effect="none", parallel_safe=True, register=False)
async def whoami(ctx: AgentContext) -> str | None:
    """Tell the principal."""
    return ctx.principal
