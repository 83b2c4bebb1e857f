"""The channel that a carrier brings: messages in both directions, in batches where the carrier can send them so."""

from __future__ import annotations

from collections.abc import Sequence

import trio


class BatchChannel(trio.abc.Channel[bytes]):
    """A channel of messages with fast paths. A carrier overrides the ones that it supports.

    ``receive`` raises `trio.EndOfChannel` at the peer's end of input, and `trio.BrokenResourceError` once the peer has gone. One
    task at a time calls ``send``. A cancelled send is the last one.
    """

    async def send_batch(self, values: Sequence[bytes]) -> None:
        """Send several messages in order; raises as ``send`` does."""
        for value in values:
            await self.send(value)

    def send_at_once(self, value: bytes) -> bool:
        """Send one message without waiting. False if that is not possible; then nothing was sent."""
        return False

    def has_more(self) -> bool:
        """True if ``receive`` would return a message without waiting."""
        return False
