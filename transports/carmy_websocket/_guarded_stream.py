"""The stream between a socket and the WebSocket library: bounds, whole writes, and a close that its owner controls."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio
from trio_websocket import WebSocketConnection

PIECE_BYTES = 64 * 1024
"""Written at once. Each piece that the peer takes of a large message shows that it is alive."""

LINGER_SECONDS = 2.0
"""For the peer's side of the closing handshake. Closing with unread bytes resets the connection, and a peer that is reset
may lose the close frame and the answers before it."""

MAX_LINGER_BYTES = 16 * 1024 * 1024
"""Discarded while lingering. A peer that sends more is reset."""


class GuardedStream(trio.abc.Stream):
    """A stream that the library may use, and only its owner closes.

    - A write that was cancelled after its first byte is the last one: no frame follows half a frame.
    - The library's `aclose` ends only its own reading and writing. `finish` closes the connection, within bounds.
    - After `pause` the library gets no more bytes, so its close frame meets no ping that it would have to answer.

    Args:
        stream: The connection.
        is_client: Which end this is. A server closes first (RFC 6455, 7.1.1).
        first: Bytes that the library reads before those of the peer.
        max_unfinished_bytes: Read since the last whole message. More than that ends the reading: the library bounds the
            characters of a message, but not the number of its fragments, which may be empty.

    Attributes:
        ended: Set when the peer or the library has ended the connection.
        is_waiting: The library's reader waits for bytes, or writes: it returns no message before that ends.
        on_wait: Called when `is_waiting` becomes true.
        last_life: Time of the last byte that the peer sent or took.
        has_answered_close: The library has answered the peer's close frame.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        is_client: bool,
        first: bytes = b"",
        max_unfinished_bytes: float = math.inf,
    ) -> None:
        self._stream = stream
        self._is_client = is_client
        self._first = first
        self._max_unfinished_bytes = max_unfinished_bytes
        self._unfinished_bytes = 0
        self._connection: WebSocketConnection | None = None
        self._reader: trio.lowlevel.Task | None = None
        self._reading = trio.CancelScope()
        self._is_reading = False
        self._is_paused = False
        self._idle = trio.Event()
        self._closed = False
        self._is_torn = False
        self._writing = trio.StrictFIFOLock()
        self._corked: list[bytes] | None = None
        self.is_waiting = False
        self.on_wait: Callable[[], object] | None = None
        self.ended = trio.Event()
        self.last_life = trio.current_time()
        self.has_answered_close = False

    # For the library

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Wait for bytes: `first`, then those of the peer.

        Raises:
            trio.BrokenResourceError: The connection is lost, or the peer has sent too much without finishing a message.
            trio.ClosedResourceError: The library has closed.
        """
        self._reader = trio.lowlevel.current_task()
        if self._first:
            await trio.lowlevel.checkpoint()
            first, self._first = self._first, b""
            return first
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise trio.ClosedResourceError
        self._is_reading = True
        if self._is_paused:
            self._idle.set()
        self._begin_waiting()
        try:
            with trio.CancelScope() as self._reading:
                return await self._receive(max_bytes)
        finally:
            self._is_reading = self.is_waiting = False
        raise trio.ClosedResourceError  # by the library, meanwhile

    async def _receive(self, max_bytes: int | None) -> bytes | bytearray:
        try:
            data = b"" if self._is_paused else await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self.ended.set()
            raise
        if self._is_paused:
            await trio.sleep_forever()
        if not data:
            self.ended.set()
            return data
        self.last_life = trio.current_time()
        self._unfinished_bytes += len(data)
        if self.is_overrun:
            raise trio.BrokenResourceError
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write one frame, or the handshake. A corked stream collects it.

        Raises:
            trio.BrokenResourceError: The connection is lost, or an earlier write was cut off.
            trio.ClosedResourceError: The library has closed. Also raised behind the write that follows `pause`.
        """
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise trio.ClosedResourceError
        if trio.lowlevel.current_task() is not self._reader:
            await self._write(data)
            return
        # The library's reader writes pongs and close frames, and no pong once the connection is closed.
        if self._connection is not None and self._connection.closed is not None:
            self.has_answered_close = True
        self._begin_waiting()
        try:
            await self._write(data)
        finally:
            self.is_waiting = False

    async def wait_send_all_might_not_block(self) -> None:
        """Part of the interface of streams."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """End reading and writing for the library. The connection stays open for `finish`."""
        self._closed = True
        self.ended.set()
        self._idle.set()
        self._reading.cancel()
        await trio.lowlevel.checkpoint()

    # For the owner

    def attach(self, connection: WebSocketConnection) -> None:
        """Set the connection that uses this stream, after its handshake."""
        self._connection = connection

    @property
    def is_overrun(self) -> bool:
        """The peer has sent too much without finishing a message."""
        return self._unfinished_bytes > self._max_unfinished_bytes

    def finish_message(self) -> None:
        """Count a whole message as read."""
        self._unfinished_bytes = 0

    def cork(self) -> None:
        """Collect writes of the library until `uncork`, so that several frames leave in one packet."""
        self._corked = []

    async def uncork(self) -> None:
        """Write the collected frames.

        Raises:
            trio.BrokenResourceError: The connection is lost, or an earlier write was cut off.
        """
        corked, self._corked = self._corked, None
        if corked:
            await self._write_whole(b"".join(corked))

    async def pause(self) -> None:
        """Give the library no more bytes, and wait until it has handled those that it has."""
        self._is_paused = True
        if self._is_reading:
            self._idle.set()
        await self._idle.wait()

    def detach(self) -> None:
        """The library's reader has ended; `pause` need not wait for it."""
        self._is_paused = True
        self._idle.set()

    async def write(self, data: bytes) -> None:
        """Write bytes in the place of the library, before its time or after it.

        Raises:
            trio.BrokenResourceError: The connection is lost, or an earlier write was cut off.
        """
        await self._write_whole(data)

    async def finish(self, *, lingers: bool = True) -> None:
        """Wait briefly for the peer to end, and close. A connection that was cut off in a write is closed at once.

        Raises:
            trio.Cancelled: The connection is closed as well.
        """
        try:
            if lingers and not self._is_torn:
                with trio.move_on_after(LINGER_SECONDS):
                    if not self._is_client and isinstance(self._stream, trio.abc.HalfCloseableStream):
                        await self._stream.send_eof()
                    await self._discard()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has closed
        finally:
            await trio.aclose_forcefully(self._stream)

    def _begin_waiting(self) -> None:
        self.is_waiting = True
        if self.on_wait is not None:
            self.on_wait()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        if self._corked is not None:
            self._corked.append(bytes(data))
            return
        await self._write_whole(data)
        if self._idle.is_set():
            # The close frame is out. The library would now wait for the peer's without limit; `finish` has one.
            raise trio.ClosedResourceError

    async def _write_whole(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            await self._writing.acquire()
        try:
            if self._is_torn:
                await trio.lowlevel.checkpoint()
                raise trio.BrokenResourceError
            await trio.lowlevel.checkpoint_if_cancelled()  # from here on, only a peer that does not read can tear it
            self._is_torn = True
            view = memoryview(data)
            for start in range(0, len(view), PIECE_BYTES):
                await self._stream.send_all(view[start : start + PIECE_BYTES])
                self.last_life = trio.current_time()
            self._is_torn = False
        finally:
            self._writing.release()

    async def _discard(self) -> None:
        discarded = 0
        while discarded <= MAX_LINGER_BYTES:
            data = await self._stream.receive_some(PIECE_BYTES)
            if not data:
                return
            discarded += len(data)
