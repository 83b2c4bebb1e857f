"""Lines as messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from carmy_wire.protocol import LineBuffer

LINES_AT_ONCE = 16
"""Given before others run: as many as a call's few steps are worth, far fewer than would be noticed. What they lead to is then
done in one pass of the event loop, and written at once."""


class LineChannel(trio.abc.Channel[bytes]):
    """Messages over a stream of bytes, one a line.

    Args:
        receive_some: Gives bytes; empty at the end.
        send_all: Takes bytes.
        limit: Bytes of one received line; of a longer one, a byte more than that is given.
    """

    def __init__(
        self, receive_some: Callable[[], Awaitable[bytes]], send_all: Callable[[bytes], Awaitable[None]], limit: int
    ) -> None:
        self._receive_some = receive_some
        self._send_all = send_all
        self._buffer = LineBuffer(limit)
        self._lines: deque[bytes] = deque()
        self._ended = False
        self._given = 0

    async def receive(self) -> bytes:
        """The next line.

        Raises:
            trio.EndOfChannel: The stream has ended.
            trio.BrokenResourceError: The peer has gone.
        """
        self._given += 1
        if self._lines and self._given % LINES_AT_ONCE:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()  # a thousand lines may be here, and others want to run as well
        while not self._lines:
            if self._ended:
                raise trio.EndOfChannel
            data = await self._receive_some()
            self._ended = not data
            self._lines.extend(self._buffer.feed(data) if data else self._buffer.finish())
        return self._lines.popleft()

    async def send(self, value: bytes) -> None:
        """Send one line.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._send_all(value + b"\n")

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Send lines at once: in a thread of its own, each write costs far more than what is written.

        Raises:
            trio.BrokenResourceError: The peer has gone.
        """
        await self._send_all(b"\n".join([*values, b""]))

    async def aclose(self) -> None:
        """Nothing to do: whoever brought the stream closes it."""
        await trio.lowlevel.checkpoint()
