"""Text messages over one WebSocket, as a channel: the reader that always reads, and the heartbeat. For both ends."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Sequence

import trio
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from carmy_wire.protocol import MAX_MESSAGE_BYTES

from ._link import Link

log = logging.getLogger("carmy_websocket")

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


class MessageChannel(trio.abc.Channel[bytes]):
    """A connection after its handshake.

    `run` reads at all times, so that pings and close frames are noticed however busy others are. What it has read waits
    in a bounded queue.

    Args:
        link: What frames are read from and written to.
        connection: What finds them and makes them.
        max_message_bytes: Of one message to us.
        max_unfinished_bytes: Read since the last whole message; more than that ends the connection. A message may have
            any number of fragments, and those may be empty.
    """

    def __init__(
        self,
        link: Link,
        connection: Connection,
        max_message_bytes: int,
        *,
        max_unfinished_bytes: float = math.inf,
    ) -> None:
        self._link = link
        self._connection = connection
        self._max_message_bytes = max_message_bytes
        self._max_unfinished_bytes = max_unfinished_bytes
        self._unfinished_bytes = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._given = 0
        self._readable = trio.Event()
        self._drained = trio.Event()
        self._waits_for_room = False
        self._is_blocked = False
        self._awaits_pong = False
        self._ended = False
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
                nursery.start_soon(self._ping)
                nursery.start_soon(self._watch, nursery.cancel_scope)
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
        await self._send(TextMessage(data=value.decode()))

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Write several messages at once, as `send` does one."""
        await self._send(*(TextMessage(data=value.decode()) for value in values))

    async def _send(self, *events: Event) -> None:
        try:
            frames = b"".join([self._connection.send(event) for event in events])
        except LocalProtocolError:  # after a close frame
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError from None
        await self._link.write(frames, is_close=isinstance(events[-1], CloseConnection))

    async def aclose(self) -> None:
        """Nothing: who opened the connection closes it."""
        await trio.lowlevel.checkpoint()

    async def _read(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await self._handle_events()  # what came together with the handshake
            while self._is_open():
                data = await self._link.receive_some(RECEIVE_BYTES)
                if not data:
                    return
                self._connection.receive_data(data)
                self._unfinished_bytes += len(data)
                await self._handle_events()
                if self._unfinished_bytes > self._max_unfinished_bytes:
                    self.verdict = (TOO_LARGE, "too many fragments without an end")

    def _is_open(self) -> bool:
        return self.verdict is None and self._connection.state is ConnectionState.OPEN

    async def _handle_events(self) -> None:
        for event in self._connection.events():
            await self._handle(event)
            if not self._is_open():
                return

    async def _handle(self, event: Event) -> None:
        match event:
            case TextMessage():
                await self._take(event)
            case BytesMessage():
                self.verdict = (UNSUPPORTED, "messages are text")
            case Ping():
                await self._send(event.response())
            case CloseConnection() if self._connection.state is ConnectionState.REMOTE_CLOSING:
                await self._send(event.response())
            case CloseConnection():  # the library's word for what it cannot read
                self.verdict = (event.code, event.reason or "bad frame")
            case Pong():
                self._awaits_pong = False
            case _:
                raise AssertionError(f"wsproto has no such event after the handshake: {event}")

    async def _take(self, event: TextMessage) -> None:
        data = event.data.encode()
        self._parts_bytes += len(data)
        if self._parts_bytes > self._max_message_bytes:
            self.verdict = (TOO_LARGE, f"a message has more than {self._max_message_bytes} bytes")
            return
        if data:
            self._parts.append(data)
        if not event.message_finished:
            return
        data = b"".join(self._parts)
        self._parts.clear()
        self._parts_bytes = self._unfinished_bytes = 0
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

    async def _ping(self) -> None:
        """Ping now and then. A pong shows that the peer is alive, as does anything else that comes or goes.

        One at a time: a ping that goes nowhere must not count as a sign of life again and again.
        """
        while True:
            await trio.sleep(PING_SECONDS)
            if self._awaits_pong:
                continue
            self._awaits_pong = True
            try:
                await self._send(Ping())
            except trio.BrokenResourceError:
                return  # the reader finds out as well

    async def _watch(self, scope: trio.CancelScope) -> None:
        """End it when the peer has shown no sign of life for too long."""
        while True:
            rest = self._link.last_life + SILENCE_SECONDS - trio.current_time()
            if rest <= 0 and not self._is_blocked:
                break
            await trio.sleep(rest if rest > 0 else PING_SECONDS)
        log.info("a WebSocket peer has been silent for %g s and counts as gone", SILENCE_SECONDS)
        self.verdict = (GOING_AWAY, "no answer to pings")
        scope.cancel()
