"""Serves an engine to the MCP client that started this process."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from carmy_engine import Engine
from carmy_stdio import open_lines

from .connection import CLEANUP_SECONDS, LINGER_SECONDS, serve_connection
from .server import McpServer

END_SECONDS = LINGER_SECONDS + CLEANUP_SECONDS + 0.25
"""From the end of input to the end of the process, by force if need be. Clients send SIGTERM after 2 s and SIGKILL after 4 s, which
would leave the children of tools behind."""


async def serve_stdio(
    engine: Engine,
    *,
    principal: str | None = None,
    permissions: Iterable[str] = (),
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the process that started this one, until the input ends.

    The caller needs no credentials: it has started this process. A client that has left, which the end of input or of the
    output shows, has its running calls and tasks cancelled (cause ``disconnect``); the process ends within `END_SECONDS`.

    Args:
        engine: An open engine.
        principal: The caller's.
        permissions: The caller's.
        task_status: Started with a line for people.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    caller = engine.bind(transport="mcp", principal=principal, permissions=permissions)
    async with open_lines(engine, END_SECONDS) as channel, trio.open_nursery() as nursery:
        task_status.started("mcp ready")
        server = McpServer(engine, nursery)
        await serve_connection(
            server,
            channel,
            caller,
            stopped=engine.stopped,
            limits=engine.settings.mcp,
            on_left=bool if server.tasks is None else server.tasks.cancel,
        )
        nursery.cancel_scope.cancel()
