"""A send queue: messages for a peer that may read slowly, bounded in bytes and written by one task."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import trio

from ._channel import BatchChannel

DEFAULT_LOGGER = logging.getLogger("carmy.engine")
"""The logger of a transport that passes none."""

MAX_QUEUED_BYTES = 1024 * 1024
"""Limit of one connection's queue: enough to keep a fast reader busy. A single larger message passes if the queue is empty."""

BATCH_BYTES = 65536
"""Limit of one batch: the capacity of a pipe."""


class QueuedMessage:
    """One message in the queue.

    Attributes:
        data: Its bytes.
        taken: True once the writer has it: the peer may receive it.
    """

    __slots__ = ("data", "taken")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = False


class SendQueue:
    """A queue between the tasks that produce messages and the one task that writes them.

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
        self._channel: BatchChannel | None = None
        self._writing = trio.CancelScope(shield=True)
        self.written = trio.Event()
        self._is_idle = False
        """The writer waits for a message."""

    async def wait_for_room(self, size: int) -> None:
        """Wait until a message of about `size` bytes fits. Waiting tasks are served first in, first out.

        Nothing is reserved: call `put` before the next checkpoint.

        Raises:
            trio.ClosedResourceError: The queue is closed.
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
            alone: No other message is about to follow, so batching gains nothing. An idle writer is then bypassed
                with `BatchChannel.send_at_once`.

        Raises:
            trio.ClosedResourceError: The queue is closed.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = QueuedMessage(data)
        if (
            alone
            and self._is_idle
            and not self._queue
            and self._channel is not None
            and self._channel.send_at_once(data)
        ):
            message.taken = True
            return message
        self._queue.append(message)
        self._bytes += len(data)
        self._filled.set()
        return message

    def discard(self, message: QueuedMessage) -> bool:
        """Remove a message. False if the writer already has it."""
        if message.taken or message not in self._queue:
            return False
        self._queue.remove(message)
        self._bytes -= len(message.data)
        self._drained.set()
        return True

    async def take(self) -> list[bytes]:
        """Wait for the next batch and remove it from the queue. Empty once the queue is closed and drained."""
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

    async def write_shielded(self, channel: BatchChannel, seconds: float = math.inf) -> bool:
        """Run `write_to` in a shield that only `flush_within` ends, so that no cancel cuts a message.

        Returns:
            True if every message was written. False if the peer has gone, or took nothing within the limit.
        """
        try:
            with self._writing:
                await self.write_to(channel, seconds)
                return True
        except trio.TooSlowError:
            self._log.warning("a client took no message for %g s and is cut off", seconds)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # a peer may leave at any time
        finally:
            self.written.set()
        return False

    def flush_within(self, seconds: float) -> None:
        """End `write_shielded` after at most `seconds`; messages that are left then stay unwritten."""
        self._writing.deadline = min(self._writing.deadline, trio.current_time() + seconds)

    async def write_to(self, channel: BatchChannel, seconds: float = math.inf) -> None:
        """Write batches until the queue is closed and drained.

        Args:
            channel: Where to.
            seconds: Limit for one batch.

        Raises:
            trio.TooSlowError: The limit has passed.
            trio.BrokenResourceError: The peer has gone.
        """
        self._channel = channel
        # A scope costs as much as writing a short message.
        limit: Callable[[], AbstractContextManager[object]] = (
            nullcontext if math.isinf(seconds) else partial(trio.fail_after, seconds)
        )
        while messages := await self.take():
            with limit():
                await channel.send_batch(messages)

    def close(self) -> None:
        """Refuse further messages. The writer still writes the ones that wait."""
        self._closed = True
        self._filled.set()
        self._drained.set()

    def clear(self) -> None:
        """Close the queue and drop the messages that wait."""
        self._queue.clear()
        self._bytes = 0
        self.close()

    def _has_room(self, size: int) -> bool:
        if self._closed:
            raise trio.ClosedResourceError
        return not self._queue or self._bytes + size <= self._limit
