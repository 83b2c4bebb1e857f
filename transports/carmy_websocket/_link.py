"""The stream below a WebSocket: who writes to it, and how it ends."""

from __future__ import annotations

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


class Link:
    """One end of the connection: whole writes, one at a time, and a close frame that fits.

    Args:
        stream: The connection; closed by `finish`.
        is_client: Which end we are: clients mask what they send.
    """

    def __init__(self, stream: trio.abc.Stream, *, is_client: bool) -> None:
        self.is_client = is_client
        self._stream = stream
        self._writing = trio.StrictFIFOLock()
        self._is_torn = False
        self._has_closed = False
        self.last_life = trio.current_time()
        """When the peer last sent something or took something."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """The next bytes; empty at the end.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        data = bytes(await self._stream.receive_some(max_bytes))
        if data:
            self.last_life = trio.current_time()
        return data

    async def write(self, data: bytes, *, is_close: bool = False) -> None:
        """Write whole frames, piece by piece, after those that are being written. If cancelled, they are the last ones.

        Args:
            data: Frames, or the handshake.
            is_close: It ends with a close frame, which nothing may follow (RFC 6455, 5.5.1).

        Raises:
            trio.BrokenResourceError: The peer has gone, or nothing can be written any more.
        """
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            await self._writing.acquire()
        try:
            if self._has_closed or self._is_torn:
                await trio.lowlevel.checkpoint()
                raise trio.BrokenResourceError
            await trio.lowlevel.checkpoint_if_cancelled()  # from here on, only a peer that does not read can tear it
            self._has_closed = is_close
            self._is_torn = True
            view = memoryview(data)
            for start in range(0, len(view), PIECE_BYTES):
                await self._stream.send_all(view[start : start + PIECE_BYTES])
                self.last_life = trio.current_time()
            self._is_torn = False
        finally:
            self._writing.release()

    async def finish(self, code: int | None, reason: str = "") -> None:
        """Say goodbye if that has not been done and still can be; wait briefly for the peer; close.

        Never raises but `trio.Cancelled`, and then the connection is closed as well.

        Args:
            code: Of the close frame; None to send none. A client then does not wait either.
            reason: Its text, ASCII.
        """
        try:
            if not self._is_torn and not (self.is_client and code is None):
                with trio.move_on_after(LINGER_SECONDS):
                    if code is not None and not self._has_closed:
                        frame = FrameProtocol(self.is_client, []).close(code, reason[:MAX_REASON_BYTES])
                        await self._stream.send_all(frame)
                    if not self.is_client and isinstance(self._stream, trio.abc.HalfCloseableStream):
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
