"""The server: an engine over standard input and output."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.transport import Transport, hard_limit, kill_descendants, stop_limit
from carmy_frames.driver import serve_channel
from carmy_frames.protocol import MAX_MESSAGE_BYTES

from ._channel import LineChannel
from ._descriptors import claim
from ._peer_watch import PeerWatch
from ._pipe_io import ThreadWriter, reader_of

log = logging.getLogger("carmy.stdio")


async def serve_stdio(
    engine: Engine,
    *,
    principal: str | None = None,
    permissions: Iterable[str] = (),
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the parent process until the input ends.

    The parent needs no credentials. Calls that were accepted before the end of input get ``drain_timeout_secs``. Once the
    output has no reader, running calls are cancelled (cause ``disconnect``), and this returns at once.

    Args:
        engine: An open engine.
        principal: The principal of the parent.
        permissions: The permissions of the parent.
        task_status: Started with a line for the log.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    drain_seconds = engine.settings.drain_timeout_secs
    # The second drain limit is for a parent that is slow to read the answers.
    limit = stop_limit(engine.settings) + drain_seconds
    async with open_lines(engine, limit, engine.settings.frames.max_message_bytes) as channel:
        task_status.started("stdio ready")
        await serve_channel(
            engine.bind(transport="stdio", principal=principal, permissions=permissions),
            channel,
            server=engine.name,
            stopped=engine.stopped,
            drain_seconds=drain_seconds,
            log=log,
            limits=engine.settings.frames,
            write_seconds=math.inf,  # a slow parent delays only itself
        )


serve = Transport(
    serve_stdio,
    help="Serve the process that started it, over standard input and output.",
    options=(),
    has_local_callers=True,
    claims_stdout=True,
    prepare=claim,
)
"""The transport; see `serve_stdio`."""


@asynccontextmanager
async def open_lines(
    engine: Engine, limit: float, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> AsyncIterator[LineChannel]:
    """Open standard input and output as a channel, for any protocol of one message per line.

    Once the output has no reader, the block is cancelled; once the parent has gone, the input ends. After the block, the child
    processes of abandoned threads are killed. A tool may hold the event loop or swallow cancels: a block that has not ended
    `limit` seconds after the end of input ends the process with its children.

    Args:
        engine: The engine that is served.
        limit: Seconds from the end of input to the end of the block.
        max_message_bytes: Of one line; of a longer one, a part that is too long is returned.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    descriptors = claim()
    reader = reader_of(descriptors.input)
    writer = ThreadWriter(descriptors.output, descriptors.output_lock)

    async def receive_some() -> bytes:
        data = await reader.receive_some()
        if not data:
            begin_limit(signal.SIGHUP)
        return data

    def abandon() -> None:
        begin_limit(signal.SIGHUP)
        serving.cancel()  # running calls end with the cause `disconnect`

    with hard_limit(limit) as begin_limit, trio.CancelScope() as serving:
        # The death of the parent counts as the end of input: another process may read the answers.
        watch = PeerWatch(descriptors, limit, on_unread=abandon, on_orphaned=reader.end)
        watch.start()
        try:
            yield LineChannel(receive_some, writer.send_all, max_message_bytes, writer.write_at_once)
        finally:
            watch.stop()
    if engine.statistics().stuck_threads:
        kill_descendants(os.getpid())
