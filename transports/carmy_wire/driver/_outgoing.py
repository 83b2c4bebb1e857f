"""Messages on their way to a peer that may be slow: bounded by their bytes, written by one task."""

from __future__ import annotations

from collections import deque

import trio

MAX_OUTGOING_BYTES = 1024 * 1024
"""Waiting for the peer to read, on one connection. What comes next waits where it is made; one larger message passes."""


class Message:
    """One message in the queue.

    Attributes:
        data: Its bytes.
        taken: The writer has it: the peer may get it.
    """

    __slots__ = ("data", "taken")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = False


class Outgoing:
    """The queue between those who have something to say and the one task that writes.

    Args:
        limit: Bytes that may wait.
    """

    def __init__(self, limit: int = MAX_OUTGOING_BYTES) -> None:
        self._limit = limit
        self._queue: deque[Message] = deque()
        self._bytes = 0
        self._closed = False
        self._turn = trio.StrictFIFOLock()
        self._filled = trio.Event()
        self._drained = trio.Event()

    async def wait_room(self, size: int) -> None:
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

    def put(self, data: bytes) -> Message:
        """Add a message.

        Raises:
            trio.ClosedResourceError: Nothing can be put any more.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = Message(data)
        self._queue.append(message)
        self._bytes += len(data)
        self._filled.set()
        return message

    def discard(self, message: Message) -> bool:
        """Take a message back. False when the writer has it already."""
        if message.taken or message not in self._queue:
            return False
        self._queue.remove(message)
        self._bytes -= len(message.data)
        self._drained.set()
        return True

    async def take(self) -> bytes | None:
        """For the writer: the next message; None when there will be none. It no longer counts as waiting."""
        while not self._queue:
            if self._closed:
                return None
            self._filled = trio.Event()
            await self._filled.wait()
        message = self._queue.popleft()
        message.taken = True
        self._bytes -= len(message.data)
        self._drained.set()
        return message.data

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
