"""Lines as messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from carmy_frames.protocol import LineBuffer
from carmy_net import BatchChannel

LINES_AT_ONCE = 8
"""Given before others run, far fewer than would be noticed. What they lead to is then written at once: enough to share the cost of
a write, and few enough for the peer to work on these answers while we work on its next lines."""


class LineChannel(BatchChannel):
    """Messages over a stream of bytes, one a line.

    Args:
        receive_some: Gives bytes, at once if they are there already; empty at the end.
        send_all: Takes bytes.
        limit: Bytes of one received line; of a longer one, a byte more than that is given.
        write_at_once: Takes bytes if that needs no waiting, all or none, and says whether it did; None when that cannot be.
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
        """The next line.

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
        """Now and then, let others run: a thousand lines may be here, or pieces of one that never ends."""
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
        """Whether another line is here already."""
        return bool(self._lines)

    def send_at_once(self, value: bytes) -> bool:
        """Send one line, if that needs no waiting."""
        return self._write_at_once is not None and self._write_at_once(value + b"\n")

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Send lines at once: in a thread of its own, each write costs far more than what is written.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._send_all(b"\n".join([*values, b""]))

    async def aclose(self) -> None:
        """Nothing to do: whoever brought the stream closes it."""
        await trio.lowlevel.checkpoint()
