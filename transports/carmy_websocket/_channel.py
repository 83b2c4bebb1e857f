"""Messages of one WebSocket as a channel: a reader that takes them at once, pings, and the close. For both ends."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Sequence

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection
from wsproto.connection import CLIENT, SERVER, Connection
from wsproto.events import CloseConnection
from wsproto.utilities import LocalProtocolError

from carmy_net import BatchChannel

from ._guarded_stream import LINGER_SECONDS, GuardedStream

LOG = logging.getLogger("carmy.websocket")

MESSAGES_AT_ONCE = 16
"""Returned before other tasks run, as lines are over stdio; and gathered before the first of them is returned."""

RECEIVE_BYTES = 8 * 1024
"""Read at once. More lets one peer hold the loop longer, with thousands of tiny frames between two awaits; less cuts a large
message into more pieces."""

NORMAL = 1000
GOING_AWAY = 1001
UNSUPPORTED = 1003
TOO_LARGE = 1009
FAULT = 1011
OVERLOADED = 1013

_BAD_FRAME = {1002, 1007}
"""Codes under which the library closes on a frame that it cannot read, without a close frame to the peer."""


class ChannelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection.

    Attributes:
        ping_secs: Between pings.
        silence_secs: Without a byte from the peer, and without a byte that it takes.
        max_message_bytes: Of one message from the peer.
        max_waiting_messages: Messages that wait to be handled.
        max_waiting_bytes: Bytes of these messages.
    """

    ping_secs: float
    silence_secs: float
    max_message_bytes: int
    max_waiting_messages: int
    max_waiting_bytes: int


class MessageChannel(BatchChannel):
    """A connection after its handshake.

    `run` takes messages from the library at all times, so pings and close frames are handled however busy the tools are.
    Messages wait in a bounded queue.

    Args:
        connection: The library's connection.
        stream: The stream below it.
        is_client: Which end this is.
        limits: See `ChannelLimits`.
        log: Gets a line for a silent peer.

    Attributes:
        verdict: Code and reason of the close frame for a peer that broke a rule; None otherwise.
    """

    def __init__(
        self,
        connection: WebSocketConnection,
        stream: GuardedStream,
        *,
        is_client: bool,
        limits: ChannelLimits,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] = LOG,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._is_client = is_client
        self._limits = limits
        self._log = log
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._given = 0
        self._readable = trio.Event()
        self._drained = trio.Event()
        self._waits_for_room = False
        self._is_blocked = False
        self._running = trio.CancelScope()
        self._ended = trio.Event()
        self._owes_close_frame = False
        self.verdict: tuple[int, str] | None = None
        stream.attach(connection)
        stream.on_wait = self._wake

    async def run(self, *, waits_for_room: bool = False) -> None:
        """Read, ping and watch until the connection has ended, or until `close`.

        Once the peer has broken a rule, messages are dropped: a peer that is still sending can read the close frame later.

        Args:
            waits_for_room: Stop reading while the queue is full. Without it, a full queue ends the connection.
        """
        self._waits_for_room = waits_for_room
        try:
            with self._running:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._ping)
                    nursery.start_soon(self._watch)
                    await self._read()
                    self._running.cancel()
        finally:
            self._ended.set()
            self._readable.set()

    async def receive(self) -> bytes:
        """Wait for the next message.

        Raises:
            trio.BrokenResourceError: The connection has ended, and every message before that was returned; or the peer has
                broken a rule.
        """
        self._given += 1
        if self._given % MESSAGES_AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        while not self._messages:
            if self._ended.is_set() or self.verdict is not None:
                raise trio.BrokenResourceError
            self._readable = trio.Event()
            await self._readable.wait()
        if self.verdict is not None:
            raise trio.BrokenResourceError  # messages before the broken rule get no answer either
        message = self._messages.popleft()
        self._bytes -= len(message)
        self._drained.set()
        return message

    def has_more(self) -> bool:
        """True if a message waits."""
        return bool(self._messages)

    async def send(self, value: bytes) -> None:
        """Write a message of UTF-8. A cancelled write is the last one.

        Raises:
            trio.BrokenResourceError: The connection has ended.
        """
        try:
            await self._connection.send_message(value.decode())
        except ConnectionClosed:
            raise trio.BrokenResourceError from None

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Write several messages at once; otherwise as `send`."""
        self._stream.cork()
        try:
            for value in values:
                await self.send(value)
        finally:
            await self._stream.uncork()

    async def aclose(self) -> None:
        """Do nothing: `close` needs the tasks of the connection's owner."""
        await trio.lowlevel.checkpoint()

    async def close(self, code: int | None, reason: str = "") -> None:
        """End `run`, and send a close frame if none was sent and one can still be sent, within `LINGER_SECONDS`.

        No other task may send meanwhile. The stream stays open for `GuardedStream.finish`.

        Args:
            code: Of the close frame, unless there is a `verdict`; None for no frame.
            reason: Its text.
        """
        self._running.cancel()
        with trio.move_on_after(LINGER_SECONDS):
            await self._ended.wait()
            if self.verdict is not None:
                code, reason = self.verdict
            if code is None:
                return
            if self._connection.closed is None:
                await self._close_library(code, reason)
            elif self._owes_close_frame:
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._stream.write(_close_frame(code, reason, is_client=self._is_client))

    def is_behind_close(self, fault: BaseExceptionGroup[BaseException]) -> bool:
        """True if the library only failed to answer a frame behind its own close frame (python-trio/trio-websocket#184)."""
        return self._connection.closed is not None and fault.split(LocalProtocolError)[1] is None

    async def _close_library(self, code: int, reason: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drop_messages)
            await self._stream.pause()
            await self._connection.aclose(code, reason)
            nursery.cancel_scope.cancel()

    async def _drop_messages(self) -> None:
        """Take messages from the library until it has none: its reader waits until each one is taken."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._connection.get_message()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = await self._connection.get_message()
                self._stream.finish_message()
                if self.verdict is None:
                    await self._keep(message)
        if self.verdict is None:
            self._judge_end()

    async def _keep(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self._judge(UNSUPPORTED, "messages are text")
            return
        data = message.encode()
        if len(data) > self._limits.max_message_bytes:
            # The library counts characters.
            self._judge(TOO_LARGE, f"a message has more than {self._limits.max_message_bytes} bytes")
            return
        while len(self._messages) >= self._limits.max_waiting_messages or (
            self._messages and self._bytes + len(data) > self._limits.max_waiting_bytes
        ):
            if not self._waits_for_room:
                self._judge(OVERLOADED, "too many messages wait to be handled")
                return
            self._drained = trio.Event()
            self._is_blocked = True
            self._readable.set()
            await self._drained.wait()
            self._is_blocked = False
            self._stream.last_life = trio.current_time()  # this end has not read
        self._messages.append(data)
        self._bytes += len(data)
        if self._stream.is_waiting or len(self._messages) >= MESSAGES_AT_ONCE:
            self._readable.set()

    def _wake(self) -> None:
        """Return messages that came together, so that their answers leave together."""
        if self._messages:
            self._readable.set()

    def _judge(self, code: int, reason: str) -> None:
        self.verdict = (code, reason)
        self._readable.set()

    def _judge_end(self) -> None:
        """The library has ended the connection. Where it sends no close frame, `close` does."""
        closed = self._connection.closed
        if self._stream.is_overrun:
            self._judge(TOO_LARGE, "too many fragments without an end")
        elif closed is not None and closed.code in _BAD_FRAME and not self._stream.has_answered_close:
            self._judge(closed.code, closed.reason or "bad frame")
        self._owes_close_frame = self.verdict is not None

    async def _ping(self) -> None:
        """Ping at intervals. A pong shows that the peer is alive, as does any byte that it sends or takes."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await trio.sleep(self._limits.ping_secs)
                with trio.move_on_after(self._limits.silence_secs):
                    await self._connection.ping()

    async def _watch(self) -> None:
        """End the connection when the peer has shown no sign of life for too long."""
        while self.verdict is None:
            rest = self._stream.last_life + self._limits.silence_secs - trio.current_time()
            if rest > 0 or self._is_blocked:
                await trio.sleep(rest if rest > 0 else self._limits.ping_secs)
                continue
            self._log.info("a WebSocket peer has been silent for %g s and counts as gone", self._limits.silence_secs)
            self._judge(GOING_AWAY, "no answer to pings")


def _close_frame(code: int, reason: str, *, is_client: bool) -> bytes:
    """The close frame that the library leaves out when it cannot read a frame (trio-websocket 0.12)."""
    return Connection(CLIENT if is_client else SERVER).send(CloseConnection(code=code, reason=reason))
