"""The stream below a WebSocket, which the library must neither close nor leave in the middle of a frame unnoticed."""

from __future__ import annotations

import math

import trio
from wsproto.frame_protocol import FrameProtocol

PIECE_BYTES = 64 * 1024
"""Written at once. What is taken of a large message shows that the peer is alive, long before all of it has been."""

LINGER_SECONDS = 2.0
"""For the peer's side of the closing handshake. Closing with unread bytes would reset the connection, and a peer that is
reset may never see the close frame, nor the answers before it."""

MAX_LINGER_BYTES = 16 * 1024 * 1024
"""Discarded while lingering. A peer that still sends after so much gets its reset."""

MAX_REASON_BYTES = 120
"""Of a close frame's reason: a control frame takes 125 bytes, of which the code takes two."""

_CLOSE_OPCODE = 0x8
_OPCODE_BITS = 0x0F


class Link(trio.abc.Stream):
    """A stream that its owner closes, with the close frame that fits.

    The library closes streams without a close frame when it meets a protocol error, and waits for a peer's close frame
    without limit otherwise. Here its `aclose` only ends its own reading and writing; `finish` does the rest.

    Args:
        stream: The connection.
        is_client: Which end we are: clients mask what they send.
        first: What the library reads before anything else.
        max_unfinished_bytes: Read since the last whole message; more than that ends the reading. The library bounds the
            characters of a message, but not the number of its fragments, and those may be empty.
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
        self._closed = False
        self._receiving: trio.CancelScope | None = None
        self._is_torn = False
        self._has_closed = False
        self._writing = trio.StrictFIFOLock()
        self._held: list[bytes] | None = None
        self.ended = trio.Event()
        """Set when the peer's end, or the library's, has been seen."""
        self.last_life = trio.current_time()
        """When the peer last sent something or took something."""

    @property
    def is_overrun(self) -> bool:
        """The peer has sent too much without finishing a message."""
        return self._unfinished_bytes > self._max_unfinished_bytes

    def finish_message(self) -> None:
        """For the owner: a whole message has been read."""
        self._unfinished_bytes = 0

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """For the library: the next bytes, `first` before those of the peer."""
        if self._first:
            await trio.lowlevel.checkpoint()
            first, self._first = self._first, b""
            return first
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise trio.ClosedResourceError
        with trio.CancelScope() as self._receiving:
            try:
                data = await self._stream.receive_some(max_bytes)
            except trio.BrokenResourceError:
                self.ended.set()
                raise
            if data:
                self.last_life = trio.current_time()
                self._unfinished_bytes += len(data)
                if self.is_overrun:
                    raise trio.BrokenResourceError
            else:
                self.ended.set()
            return data
        raise trio.ClosedResourceError  # the library has closed meanwhile

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """For the library: write one frame (or the handshake), piece by piece, or keep it as long as writes are held."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise trio.ClosedResourceError
        if self._has_closed:
            # Nothing may follow a close frame (RFC 6455, 5.5.1).
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError
        is_close = len(data) > 0 and data[0] & _OPCODE_BITS == _CLOSE_OPCODE and bool(data[0] & 0x80)
        self._has_closed = is_close
        if self._held is not None:
            self._held.append(bytes(data))
        else:
            await self._write_whole(data, is_close=is_close)

    async def _write_whole(self, data: bytes | bytearray | memoryview, *, is_close: bool) -> None:
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            await self._writing.acquire()
        try:
            if self._is_torn or (self._has_closed and not is_close):
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

    def hold(self) -> None:
        """For the owner: keep what the library writes from now on, until `release`."""
        self._held = []

    def release(self) -> list[bytes]:
        """For the owner: keep nothing any more.

        Returns:
            What was kept, for `write_held`.
        """
        held, self._held = self._held, None
        return held or []

    async def write_held(self, held: list[bytes]) -> None:
        """For the owner: write what was kept, at once.

        Raises:
            trio.BrokenResourceError: The peer has gone, or nothing can be written any more.
        """
        if held:
            await self._write_whole(b"".join(held), is_close=self._has_closed)

    async def wait_send_all_might_not_block(self) -> None:
        """For the library: part of the interface of streams."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """For the library: it neither reads nor writes any more. The connection stays open for `finish`."""
        self._closed = True
        self.ended.set()
        if self._receiving is not None:
            self._receiving.cancel()
        await trio.lowlevel.checkpoint()

    async def write(self, data: bytes) -> None:
        """For the owner, before or after the library's time: write bytes as they are.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._stream.send_all(data)

    async def finish(self, code: int | None, reason: str = "") -> None:
        """Say goodbye if that has not been done and still can be; wait briefly for the peer; close.

        Never raises but `trio.Cancelled`, and then the connection is closed as well.

        Args:
            code: Of the close frame; None to send none. A client then does not wait either.
            reason: Its text, ASCII.
        """
        try:
            if not self._is_torn and not (self._is_client and code is None):
                with trio.move_on_after(LINGER_SECONDS):
                    if code is not None and not self._has_closed:
                        frame = FrameProtocol(self._is_client, []).close(code, reason[:MAX_REASON_BYTES])
                        await self._stream.send_all(frame)
                    if not self._is_client and isinstance(self._stream, trio.abc.HalfCloseableStream):
                        # The server closes first (RFC 6455, 7.1.1).
                        await self._stream.send_eof()
                    await self._discard()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has gone, which is as good
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _discard(self) -> None:
        discarded = 0
        while discarded <= MAX_LINGER_BYTES:
            data = await self._stream.receive_some(PIECE_BYTES)
            if not data:
                return
            discarded += len(data)
