"""Messages on their way to a peer that may be slow: bounded by their bytes, written one after the other."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol

import trio

DEFAULT_LOGGER = logging.getLogger("carmy.engine")
"""Used where a transport names no logger of its own."""

MAX_QUEUED_BYTES = 1024 * 1024
"""Waiting for the peer to read, on one connection. What comes next waits where it is made; one larger message passes."""


BATCH_BYTES = 65536
"""Taken at once by the writer: what a pipe holds."""


class Batches(Protocol):
    """A channel that sends several messages for less than each of them alone would cost."""

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Send them all, in order; as `trio.abc.SendChannel.send` otherwise."""
        ...


class Immediate(Protocol):
    """A channel that knows what can be done without waiting."""

    def has_more(self) -> bool:
        """Whether a message has been received that nobody has taken yet."""
        ...

    def send_at_once(self, value: bytes) -> bool:
        """Send all of it now. False when that cannot be done, for whatever reason; then nothing was sent."""
        ...


class QueuedMessage:
    """One message in the queue.

    Attributes:
        data: Its bytes.
        taken: It has been sent, or the writer has it: the peer may get it.
    """

    __slots__ = ("data", "taken")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = False


class SendQueue:
    """The queue between those who have something to say and the one task that writes.

    Args:
        limit: Bytes that may wait.
        log: The transport's logger.

    Attributes:
        written: Set when `write_shielded` has ended.
    """

    def __init__(
        self,
        limit: int = MAX_QUEUED_BYTES,
        *,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger] = DEFAULT_LOGGER,
    ) -> None:
        self._limit = limit
        self._log = log
        self._queue: deque[QueuedMessage] = deque()
        self._bytes = 0
        self._closed = False
        self._turn = trio.StrictFIFOLock()
        self._filled = trio.Event()
        self._drained = trio.Event()
        self._send_at_once: Callable[[bytes], bool] | None = None
        self._writing = trio.CancelScope(shield=True)
        self.written = trio.Event()
        self._is_idle = False
        """The writer waits for something to write."""

    async def wait_for_room(self, size: int) -> None:
        """Wait until a message of about this size may be put, in the order of asking.

        Nothing is reserved: put before the next checkpoint.

        Raises:
            trio.ClosedResourceError: Nothing can be put any more.
        """
        if not self._turn.locked() and self._has_room(size):
            return
        async with self._turn:
            while not self._has_room(size):
                self._drained = trio.Event()
                await self._drained.wait()

    def put(self, data: bytes, *, alone: bool = False) -> QueuedMessage:
        """Add a message.

        Args:
            data: Its bytes.
            alone: No other is about to follow, with which it could leave. Then it does not wait for the writer's turn,
                where the channel is `Immediate`.

        Raises:
            trio.ClosedResourceError: Nothing can be put any more.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = QueuedMessage(data)
        if alone and self._is_idle and not self._queue and self._send_at_once is not None and self._send_at_once(data):
            message.taken = True
            return message
        self._queue.append(message)
        self._bytes += len(data)
        self._filled.set()
        return message

    def discard(self, message: QueuedMessage) -> bool:
        """Take a message back. False when the writer has it already."""
        if message.taken or message not in self._queue:
            return False
        self._queue.remove(message)
        self._bytes -= len(message.data)
        self._drained.set()
        return True

    async def take(self) -> list[bytes]:
        """For the writer: the next messages, in order; none when there will be none. They no longer count as waiting."""
        while not self._queue:
            if self._closed:
                return []
            self._filled = trio.Event()
            self._is_idle = True
            try:
                await self._filled.wait()
            finally:
                self._is_idle = False
        taken: list[bytes] = []
        size = 0
        while self._queue and (not taken or size + len(self._queue[0].data) <= BATCH_BYTES):
            message = self._queue.popleft()
            message.taken = True
            size += len(message.data)
            taken.append(message.data)
        self._bytes -= size
        self._drained.set()
        return taken

    async def write_shielded(self, channel: trio.abc.SendChannel[bytes], seconds: float = math.inf) -> bool:
        """Be the writer like `write_to`, and never be cancelled in the middle of a message but by `flush_within`.

        Returns:
            Whether all has left. If not, the peer has gone, or took nothing for too long.
        """
        try:
            with self._writing:
                await self.write_to(channel, seconds)
                return True
        except trio.TooSlowError:
            self._log.warning("a client took no message for %g s and is cut off", seconds)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has gone, which is its right
        finally:
            self.written.set()
        return False

    def flush_within(self, seconds: float) -> None:
        """What `write_shielded` has not written by then stays unwritten."""
        self._writing.deadline = min(self._writing.deadline, trio.current_time() + seconds)

    async def write_to(self, channel: trio.abc.SendChannel[bytes], seconds: float = math.inf) -> None:
        """Be the writer, until there is nothing left to write.

        Args:
            channel: Where to. What it can do as one of `Batches`, or as `Immediate`, is used.
            seconds: For each message, or batch.

        Raises:
            trio.TooSlowError: The limit has passed.
            trio.BrokenResourceError: The peer has gone.
        """
        send_batch: Callable[[Sequence[bytes]], Awaitable[None]] | None = getattr(channel, "send_batch", None)
        self._send_at_once = getattr(channel, "send_at_once", None)
        # A scope costs as much as writing a short message.
        limit: Callable[[], AbstractContextManager[object]] = (
            nullcontext if math.isinf(seconds) else partial(trio.fail_after, seconds)
        )
        while messages := await self.take():
            if send_batch is not None:
                with limit():
                    await send_batch(messages)
            else:
                for message in messages:
                    with limit():
                        await channel.send(message)

    def close(self) -> None:
        """Nothing can be put any more; what waits is still written."""
        self._closed = True
        self._filled.set()
        self._drained.set()

    def clear(self) -> None:
        """Close, and drop what waits: nobody will write it."""
        self._queue.clear()
        self._bytes = 0
        self.close()

    def _has_room(self, size: int) -> bool:
        if self._closed:
            raise trio.ClosedResourceError
        return not self._queue or self._bytes + size <= self._limit
