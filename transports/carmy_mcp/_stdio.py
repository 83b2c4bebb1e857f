"""Serves an engine to the MCP client that started this process."""

from __future__ import annotations

import trio

from carmy_engine import BoundEngine, Cause, Engine
from carmy_stdio import claim, open_lines

from ._confirm import Questions
from ._connection import serve_connection
from ._exchange import Exchange
from ._server import Context, make_server
from ._tasks import Tasks


class _Mcp:
    """The transport. An object, because the command has to `prepare` it before it loads what it serves."""

    def prepare(self) -> None:
        """Take standard input and output; see `carmy_stdio.claim`."""
        claim()

    async def __call__(self, engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the process that started this one, until the input ends.

        The caller has no principal and no permissions: whoever could start this process needs no further proof, and gets
        no further rights. Requests that were accepted before the end of input, and tasks, get ``drain_timeout_secs``. When
        nobody reads the output any more, running calls are cancelled (cause ``disconnect``) and this returns at once.

        Args:
            engine: An open engine.
            task_status: Started with a line for people.

        Raises:
            ConfigurationError: Standard output is closed.
        """
        caller = engine.bind(transport="mcp")
        questions = Questions(engine.stopping) if engine.settings.mcp.confirm == "ask" else None

        def executor_of(_: Context) -> BoundEngine:
            return caller

        async with open_lines(engine) as channel, trio.open_nursery() as nursery:
            task_status.started("mcp ready")
            after = engine.settings.mcp.promote_after_secs
            tasks = Tasks(nursery, after) if after else None
            is_gone = await serve_connection(
                make_server(engine.name, executor_of, _exchange_of, questions, tasks),
                channel,
                stopped=engine.stopped,
                drain_seconds=engine.settings.drain_timeout_secs,
            )
            if tasks is not None:
                drain_seconds = 0 if is_gone else engine.settings.drain_timeout_secs
                await tasks.finish(drain_seconds, Cause.DISCONNECT if is_gone else Cause.SHUTDOWN)
            nursery.cancel_scope.cancel()


serve = _Mcp()
"""The transport; see `_Mcp.__call__`."""


def _exchange_of(context: Context) -> Exchange:
    assert isinstance(context.request, Exchange)  # the connection has put it there
    return context.request
