"""The asyncio loop of an engine. asyncio is imported only where something runs in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from .._model.compiled_tool import Backend, CompiledTool
from .grace import GRACE_SECONDS
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .._loops.asyncio_loop import AsyncioLoop


@asynccontextmanager
async def open_loop_if_needed(
    tools: Iterable[CompiledTool], backend: Backend, max_stuck: int
) -> AsyncIterator[AsyncioLoop | None]:
    """An asyncio loop, if a tool or its application needs one; else None.

    Args:
        tools: All tools.
        backend: That of the application.
        max_stuck: Tasks that may outlive their cancel.
    """
    if backend != "asyncio" and all(tool.backend != "asyncio" for tool in tools):
        yield None
        return
    from .._loops.asyncio_loop import open_loop  # noqa: PLC0415 - see the module

    async with open_loop(max_stuck, GRACE_SECONDS) as loop:
        yield loop


@contextmanager
def watch_loop(loop: AsyncioLoop | None) -> Iterator[Watchdog]:
    """Watch for tools that block an asyncio loop."""
    if loop is None:
        yield Watchdog()
        return
    from .._loops.asyncio_loop import tool_on  # noqa: PLC0415 - see the module

    what = "the program's asyncio loop" if loop.is_host else "the asyncio loop"
    with Watchdog().watching(
        loop.caller.in_loop, loop.caller.thread, tool_on, what, only_tools=loop.is_host
    ) as watchdog:
        yield watchdog
