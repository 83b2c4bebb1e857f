"""A channel of lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from carmy_frames.protocol import LineBuffer
from carmy_net import BatchChannel

LINES_AT_ONCE = 8
"""Lines that are returned before other tasks run. Their answers then leave in one write: enough to share its cost, and few enough
for the peer to handle these answers while the next lines are handled here."""


class LineChannel(BatchChannel):
    """Messages over a stream of bytes, one per line.

    Args:
        receive_some: Returns bytes, without waiting if there are any; empty at the end.
        send_all: Writes bytes.
        limit: Bytes of one received line. A longer line is cut to one byte more than the limit.
        write_at_once: Writes all of some bytes without waiting and returns True, or writes none; None if unsupported.
    """

    def __init__(
        self,
        receive_some: Callable[[], Awaitable[bytes]],
        send_all: Callable[[bytes], Awaitable[None]],
        limit: int,
        write_at_once: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._receive_some = receive_some
        self._send_all = send_all
        self._write_at_once = write_at_once
        self._buffer = LineBuffer(limit)
        self._lines: deque[bytes] = deque()
        self._ended = False
        self._steps = 0

    async def receive(self) -> bytes:
        """Return the next line.

        Raises:
            trio.EndOfChannel: The stream has ended.
            trio.BrokenResourceError: The peer has gone.
        """
        await self._pause()
        while not self._lines:
            if self._ended:
                raise trio.EndOfChannel
            data = await self._receive_some()
            self._ended = not data
            self._lines.extend(self._buffer.feed(data) if data else self._buffer.finish())
            if not self._lines:
                await self._pause()
        return self._lines.popleft()

    async def _pause(self) -> None:
        """Yield to other tasks every few steps: a thousand lines may wait, or pieces of one that never ends."""
        self._steps += 1
        if self._steps % LINES_AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()

    async def send(self, value: bytes) -> None:
        """Send one line.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._send_all(value + b"\n")

    def has_more(self) -> bool:
        """True if another line waits."""
        return bool(self._lines)

    def send_at_once(self, value: bytes) -> bool:
        """Send one line if that needs no waiting."""
        return self._write_at_once is not None and self._write_at_once(value + b"\n")

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Send lines in one write: a write in a thread costs far more than its bytes.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._send_all(b"\n".join([*values, b""]))

    async def aclose(self) -> None:
        """Do nothing: the owner of the stream closes it."""
        await trio.lowlevel.checkpoint()
