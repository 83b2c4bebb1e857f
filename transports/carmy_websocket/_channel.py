"""Text messages over one WebSocket, as a channel: the reader that always reads, and the heartbeat. For both ends."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from carmy_frames.protocol import MAX_MESSAGE_BYTES

from ._link import Link

LOG = logging.getLogger("carmy.websocket")

PING_SECONDS = 20.0
"""Between pings. Common proxies cut a silent connection after 30 to 100 seconds."""

SILENCE_SECONDS = 2 * PING_SECONDS
"""Without a byte from the peer, and without it taking one: its answer to a ping is overdue by a whole interval."""

MAX_WAITING_MESSAGES = 1024
"""Messages that have been received and that nobody has taken yet."""

MAX_WAITING_BYTES = 2 * MAX_MESSAGE_BYTES
"""Of these messages."""

MESSAGES_AT_ONCE = 16
"""Given before others run, as lines are over stdio."""

RECEIVE_BYTES = 8 * 1024
"""Read at once. More would let one peer hold the loop for longer, with thousands of tiny frames between two awaits; less
would make more pieces of a large message."""

MAX_OVERHEAD = 8
"""Bytes on the wire for each byte of a message, at most: that of one in fragments of a single byte, masked."""

GOING_AWAY = 1001
UNSUPPORTED = 1003
TOO_LARGE = 1009
FAULT = 1011
OVERLOADED = 1013

_BAD_FRAME = {1002, 1007}
"""Codes that the library gives to what it cannot read, without telling the peer."""


class MessageChannel(trio.abc.Channel[bytes]):
    """A connection after its handshake.

    `run` reads at all times, so that pings and close frames are noticed however busy others are. What it has read waits
    in a bounded queue.

    Args:
        connection: Of the library.
        link: Below it.
        max_message_bytes: Of one message to us.
        log: For a peer that is silent.
    """

    def __init__(
        self,
        connection: WebSocketConnection,
        link: Link,
        max_message_bytes: int,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] = LOG,
    ) -> None:
        self._connection = connection
        self._link = link
        self._max_message_bytes = max_message_bytes
        self._log = log
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._given = 0
        self._readable = trio.Event()
        self._drained = trio.Event()
        self._waits_for_room = False
        self._is_blocked = False
        self._ended = False
        self._running = trio.CancelScope()
        self.verdict: tuple[int, str] | None = None
        """Why we end the connection, as code and reason of the close frame; None when we do not."""

    async def run(self, *, waits_for_room: bool = False) -> None:
        """Read, ping and watch until the connection has ended. Then `receive` says so.

        Args:
            waits_for_room: When the queue is full, stop reading. A server rather closes the connection.
        """
        self._waits_for_room = waits_for_room
        try:
            async with trio.open_nursery() as nursery:
                self._running = nursery.cancel_scope
                nursery.start_soon(self._ping)
                nursery.start_soon(self._watch)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._ended = True
            self._readable.set()

    async def receive(self) -> bytes:
        """The next message.

        Raises:
            trio.BrokenResourceError: The connection has ended. What was received before that has been given.
        """
        self._given += 1
        if self._given % MESSAGES_AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        while not self._messages:
            if self._ended:
                raise trio.BrokenResourceError
            self._readable = trio.Event()
            await self._readable.wait()
        if self.verdict is not None:
            raise trio.BrokenResourceError  # what came before is not answered either
        message = self._messages.popleft()
        self._bytes -= len(message)
        self._drained.set()
        return message

    def has_more(self) -> bool:
        """Whether another message is here already."""
        return bool(self._messages)

    async def send(self, value: bytes) -> None:
        """Write a message of UTF-8. If cancelled, it is the last one.

        Raises:
            trio.BrokenResourceError: The connection has ended.
        """
        try:
            await self._connection.send_message(value.decode())
        except ConnectionClosed:
            raise trio.BrokenResourceError from None

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Write several messages at once, as `send` does one."""
        self._link.hold()
        ended = False
        try:
            for value in values:
                await self._connection.send_message(value.decode())
        except ConnectionClosed:
            ended = True
        finally:
            held = self._link.release()
        await self._link.write_held(held)
        if ended:
            raise trio.BrokenResourceError

    async def aclose(self) -> None:
        """Nothing: who opened the connection closes it."""
        await trio.lowlevel.checkpoint()

    async def _read(self) -> None:
        while early := self._early():
            for message in early:
                await self._take(message)
        # Private parts: the version of the library is pinned. Its own queue costs a message three trips through the scheduler.
        connection: Any = self._connection
        connection._send_channel = _Inbox(self._take, connection._send_channel.aclose)  # noqa: SLF001
        with contextlib.suppress(ConnectionClosed):
            await self._connection.get_message()  # nothing comes here any more but the end
        self._judge_end()

    def _early(self) -> list[str | bytes]:
        """What the library's reader has put into its queue."""
        queue: trio.MemoryReceiveChannel[str | bytes] = self._connection._recv_channel  # noqa: SLF001
        found: list[str | bytes] = []
        with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
            while True:
                found.append(queue.receive_nowait())
        return found

    async def _take(self, message: str | bytes) -> None:
        """A whole message has come."""
        self._link.finish_message()
        await self._keep(message)
        if self.verdict is not None:
            self._running.cancel()

    async def _keep(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self.verdict = (UNSUPPORTED, "messages are text")
            return
        data = message.encode()
        if len(data) > self._max_message_bytes:
            # The library counts characters.
            self.verdict = (TOO_LARGE, f"a message has more than {self._max_message_bytes} bytes")
            return
        while len(self._messages) >= MAX_WAITING_MESSAGES or (
            self._messages and self._bytes + len(data) > MAX_WAITING_BYTES
        ):
            if not self._waits_for_room:
                self.verdict = (OVERLOADED, "too many messages wait to be handled")
                return
            self._drained = trio.Event()
            self._is_blocked = True
            await self._drained.wait()
            self._is_blocked = False
            self._link.last_life = trio.current_time()  # it was us who did not listen
        self._messages.append(data)
        self._bytes += len(data)
        self._readable.set()

    def _judge_end(self) -> None:
        """The library has ended the connection: say why, where it does not."""
        closed = self._connection.closed
        if self._link.is_overrun:
            self.verdict = (TOO_LARGE, "too many fragments without an end")
        elif closed is not None and closed.code in _BAD_FRAME:
            self.verdict = (closed.code, closed.reason or "bad frame")

    async def _ping(self) -> None:
        """Ping now and then. A pong shows that the peer is alive, as does anything else that comes or goes."""
        while True:
            await trio.sleep(PING_SECONDS)
            try:
                await self._connection.ping()
            except ConnectionClosed:
                return

    async def _watch(self) -> None:
        """End it when the peer has shown no sign of life for too long."""
        while True:
            rest = self._link.last_life + SILENCE_SECONDS - trio.current_time()
            if rest <= 0 and not self._is_blocked:
                break
            await trio.sleep(rest if rest > 0 else PING_SECONDS)
        self._log.info("a WebSocket peer has been silent for %g s and counts as gone", SILENCE_SECONDS)
        self.verdict = (GOING_AWAY, "no answer to pings")
        self._running.cancel()


class _Inbox:
    """What the library's reader takes for the entrance to its queue."""

    def __init__(self, send: Callable[[str | bytes], Awaitable[None]], aclose: Callable[[], Awaitable[None]]) -> None:
        self.send = send
        self.aclose = aclose
