"""Serves an engine over standard input and output."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.transport import descendants
from carmy_wire.driver import serve_channel
from carmy_wire.protocol import MAX_MESSAGE_BYTES

from ._channel import LineChannel
from ._descriptors import Descriptors, claim
from ._threads import Reader, ThreadWriter, reader_of

WATCH_SECONDS = 1.0
"""Between two looks at whether anybody is still there. Only a process that neither reads nor writes depends on it."""

_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class _Stdio:
    """The transport. An object, because the command has to `prepare` it before it loads what it serves."""

    def prepare(self) -> None:
        """Take standard input and output; see `carmy_stdio.claim`."""
        claim()

    async def __call__(self, engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the process that started this one, until the input ends.

        The caller has no principal and no permissions: whoever could start this process needs no further proof, and gets
        no further rights. Calls that were accepted before the end of input get ``drain_timeout_secs``. When nobody reads the
        output any more, running calls are cancelled (cause ``disconnect``) and this returns at once.

        Args:
            engine: An open engine.
            task_status: Started with a line for people.

        Raises:
            ConfigurationError: Standard output is closed.
        """
        async with open_lines(engine) as channel:
            task_status.started("stdio ready")
            await serve_channel(
                engine.bind(transport="stdio"),
                channel,
                server=engine.name,
                stopped=engine.stopped,
                drain_seconds=engine.settings.drain_timeout_secs,
                write_seconds=math.inf,  # a parent may take its time to read, and holds nothing but itself
            )


serve = _Stdio()
"""The transport; see `_Stdio.__call__`."""


@asynccontextmanager
async def open_lines(engine: Engine) -> AsyncIterator[LineChannel]:
    """Standard input and output as a channel, for the length of a block: for any protocol of messages on lines.

    When nobody reads the output any more, the block is cancelled; when the parent has gone, the input ends. After it,
    programs are ended that threads have started and still wait for, if the engine has such threads.

    Args:
        engine: What is served.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    descriptors = claim()
    reader = reader_of(descriptors.input)
    writer = ThreadWriter(descriptors.output, descriptors.turns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, descriptors, reader, nursery.cancel_scope)
        yield LineChannel(reader.receive_some, writer.send_all, MAX_MESSAGE_BYTES, writer.write_at_once)
        nursery.cancel_scope.cancel()
    if engine.statistics().stuck_threads:
        _end_children()


async def _watch(descriptors: Descriptors, reader: Reader, serving: trio.CancelScope) -> None:
    """Notice a parent that has gone, also when nothing is read or written."""
    poll = select.poll()
    poll.register(descriptors.output, 0)
    while True:
        await trio.sleep(WATCH_SECONDS)
        if any(flags & _GONE for _, flags in poll.poll(0)):
            serving.cancel()  # for running calls, that is a disconnect
            return
        if os.getppid() != descriptors.parent:
            # Somebody else may still read the answers, so this is no more than the end of input.
            reader.end()
            descriptors.parent = os.getppid()


def _end_children() -> None:
    """Threads that did not give in may have started programs, which would outlive this process."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)
