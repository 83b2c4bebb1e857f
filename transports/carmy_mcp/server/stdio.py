"""Serves an engine to the MCP client that started this process."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from carmy_engine import BoundEngine, Engine
from carmy_stdio import open_lines

from ..protocol.request_state import Exchange
from .confirmations import Questions
from .connection import CLEANUP_SECONDS, LINGER_SECONDS, serve_connection
from .sdk_server import Context, make_server
from .tasks import Tasks

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
    questions = Questions(engine.stopping, engine.settings.mcp) if engine.settings.mcp.confirm == "ask" else None

    def executor_of(_: Context) -> BoundEngine:
        return caller

    async with open_lines(engine, END_SECONDS) as channel, trio.open_nursery() as nursery:
        task_status.started("mcp ready")
        limits = engine.settings.mcp
        tasks = Tasks(nursery, limits) if limits.promote_after_secs else None
        await serve_connection(
            make_server(engine.name, executor_of, _exchange_of, questions, tasks, version=engine.settings.version),
            channel,
            stopped=engine.stopped,
            limits=limits,
            on_left=bool if tasks is None else tasks.cancel,
        )
        nursery.cancel_scope.cancel()


def _exchange_of(context: Context) -> Exchange:
    assert isinstance(context.request, Exchange)  # the connection has put it there
    return context.request
