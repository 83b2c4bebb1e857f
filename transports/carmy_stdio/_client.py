"""The client: starts a server as a child process; an executor."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from carmy_engine.transport import raise_single, require_trio
from carmy_frames.driver import ClientExecutor, open_client

from ._channel import LineChannel
from ._child import ChildLimits, open_child

log = logging.getLogger("carmy.stdio")


class StdioClientLimits(ChildLimits, frozen=True, kw_only=True):
    """Limits of `open_stdio`: those of `ChildLimits`, and those of the connection.

    Attributes:
        ready_secs: For the first frame.
        max_answer_bytes: Of one line from the child: 32 times the default limit of a tool's output.
    """

    ready_secs: float = 30.0
    max_answer_bytes: int = 256 * 1024 * 1024


DEFAULT_LIMITS = StdioClientLimits()


@asynccontextmanager
async def open_stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    limits: StdioClientLimits = DEFAULT_LIMITS,
) -> AsyncIterator[ClientExecutor]:
    """Start a server as a child process, and execute its tools for the length of a block.

    ::

        async with open_stdio(["carmy", "stdio", "shop.py"]) as shop:
            result = await shop.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))

    The child gets a new session and process group. At the end of the block its input is closed. A child that does not exit is
    terminated, then killed with its group, however the block ends.

    Args:
        command: The program and its arguments.
        env: The environment; None for that of this process.
        cwd: The working directory; None for that of this process.
        limits: In time and bytes.

    Raises:
        ClosedError: The command could not be started, ended at once, was not ready in time, or uses another protocol. The
            message has the end of its standard error.
    """
    require_trio("open_stdio", "open_stdio(...)")
    try:
        async with open_child(command, env, cwd, limits) as child:
            channel = LineChannel(child.receive_some, child.send_all, limits.max_answer_bytes, child.write_at_once)
            async with open_client(
                channel, what=child.name, describe_loss=child.describe_exit, ready_seconds=limits.ready_secs, log=log
            ) as client:
                yield client
    except BaseExceptionGroup as group:
        raise_single(group)
