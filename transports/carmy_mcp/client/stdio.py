"""The link to a server that is a child process: JSON-RPC over its standard input and output."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from carmy_engine import grace
from carmy_engine.transport import RateLimitedLogger
from carmy_net import FLUSH_SECONDS, QueuedMessage, SendQueue
from carmy_stdio import Child, LineChannel, open_child

from ..protocol.connection import key_of
from ..protocol.messages import ErrorResponse, Id, Notification, Request, Response, decode_leniently, id_in_unreadable
from .limits import McpClientLimits
from .link import LostError, NotSentError, Outgoing, Receiver, UnreadableError

log = RateLimitedLogger(logging.getLogger("carmy.mcp"))

INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables that every program needs. A server sees no others, except those that it is given."""


@asynccontextmanager
async def open_process(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None, limits: McpClientLimits
) -> AsyncIterator[StdioLink]:
    """Run a server for the length of a block; see `carmy_stdio.open_child`.

    Raises:
        ClosedError: The command cannot be started.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    async with open_child(command, inherited | dict(env or {}), cwd) as child:
        link = StdioLink(child, limits.max_answer_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.write)
            try:
                yield link
            finally:
                await link.flush()
                nursery.cancel_scope.cancel()


class _Waiting:
    """A request without an answer."""

    __slots__ = ("answer", "answered", "message")

    def __init__(self, message: QueuedMessage) -> None:
        self.message = message
        self.answered = trio.Event()
        self.answer: Response | ErrorResponse | None = None


class StdioLink:
    """See `carmy_mcp.client.link.Link`.

    Args:
        child: The server.
        max_answer_bytes: Of one message of the server. A longer one ends the connection: the rest of it is not to be had.
    """

    has_headers = False
    session = ""

    def __init__(self, child: Child, max_answer_bytes: int) -> None:
        self._max_bytes = max_answer_bytes
        self._child = child
        self._channel = LineChannel(child.receive_some, child.send_all, self._max_bytes, child.write_at_once)
        self._out = SendQueue(log=log)
        self._waiting: dict[Id, _Waiting] = {}
        self._lost: str | None = None
        self._receiver: Receiver | None = None

    async def run(self, receiver: Receiver) -> None:
        """See `Link.run`."""
        self._receiver = receiver
        while self._lost is None:
            try:
                line = await self._channel.receive()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
                self._lose(f"{self._child.name} was lost{self._child.describe_exit()}")
                break
            if len(line) > self._max_bytes:
                self._lose(f"{self._child.name} sent a message of more than {self._max_bytes} bytes")
                break
            await self._take(line, receiver)
        self._out.clear()

    async def request(self, outgoing: Outgoing) -> Response | ErrorResponse:
        """See `Link.request`."""
        waiting = _Waiting(await self._put(outgoing.data))
        self._waiting[outgoing.id] = waiting
        try:
            await waiting.answered.wait()
        finally:
            del self._waiting[outgoing.id]
        if waiting.answer is not None:
            return waiting.answer
        if self._lost is None:
            raise UnreadableError(f"the answer of {self._child.name} cannot be read")
        raise (LostError if waiting.message.taken else NotSentError)(self._lost)

    async def _put(self, data: bytes) -> QueuedMessage:
        try:
            await self._out.wait_for_room(len(data))
            if self._lost is None:
                return self._out.put(data, alone=not self._waiting)
        except trio.ClosedResourceError:
            self._lose(f"{self._child.name} was lost{self._child.describe_exit()}")
        assert self._lost is not None
        raise NotSentError(self._lost)

    async def send(self, data: bytes, headers: Mapping[str, str]) -> None:
        """See `Link.send`."""
        with contextlib.suppress(trio.ClosedResourceError):
            await self._out.wait_for_room(len(data))
            self._out.put(data)

    async def listen(self, headers: Mapping[str, str]) -> None:
        """See `Link.listen`: `run` receives everything."""

    async def write(self) -> None:
        """Write what is queued, until nothing more comes, or the server does not read any more."""
        if not await self._out.write_shielded(self._channel):
            self._out.clear()
            self._lose(f"{self._child.name} was lost{self._child.describe_exit()}")

    def close(self) -> None:
        """See `Link.close`."""
        self._lose(f"the client of {self._child.name} was closed")

    async def flush(self) -> None:
        """Close the link, and let what is queued leave within `FLUSH_SECONDS`; mostly cancels."""
        self.close()
        self._out.close()
        self._out.flush_within(FLUSH_SECONDS)
        with grace(FLUSH_SECONDS):
            await self._out.written.wait()

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
            for waiting in self._waiting.values():
                waiting.answered.set()
            if self._receiver is not None:
                self._receiver.receive_end(why)

    async def _take(self, line: bytes, receiver: Receiver) -> None:
        message = decode_leniently(line)
        if isinstance(message, Request | Notification):
            await receiver.receive(message, None)
            return
        number = id_in_unreadable(line) if message is None else message.id
        waiting = None if number is None else self._waiting.get(key_of(number))
        if waiting is not None and not waiting.answered.is_set():
            waiting.answer = message
            waiting.answered.set()
        elif message is None and line.strip():
            log.warning("%s printed a line that is no message", self._child.name)
