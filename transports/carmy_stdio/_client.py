"""An executor in front of a child process."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from carmy_engine.transport import raise_single
from carmy_frames.driver import ClientExecutor, open_client

from ._channel import LineChannel
from ._child import open_child

log = logging.getLogger("carmy.stdio")

READY_SECONDS = 30.0
"""For the child to import and start an application."""

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Of one line from the child. The largest outputs that tools are allowed by default have a thirtieth of it."""


@asynccontextmanager
async def open_stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    ready_seconds: float = READY_SECONDS,
) -> AsyncIterator[ClientExecutor]:
    """Start a server as a child process, and execute through it for the length of a block.

    ::

        async with open_stdio(["carmy", "stdio", "shop.py"]) as shop:
            result = await shop.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))

    The child gets a session and a process group of its own. At the end of the block its input is closed; it is asked to
    terminate, and killed with its group, as far as it does not end by itself. Nothing of it is left, however the block ends.

    Args:
        command: The program and its arguments.
        env: Its environment; None for this process's.
        cwd: Its working directory; None for this process's.
        ready_seconds: For its first frame.

    Raises:
        ClosedError: It could not be started, ended at once, was not ready in time, or does not speak the protocol. The message
            has its last words.
    """
    try:
        async with open_child(command, env, cwd) as child:
            channel = LineChannel(child.receive_some, child.send_all, MAX_ANSWER_BYTES, child.write_at_once)
            async with open_client(
                channel, what=child.name, describe_loss=child.describe_exit, ready_seconds=ready_seconds, log=log
            ) as client:
                yield client
    except BaseExceptionGroup as group:
        raise_single(group)
