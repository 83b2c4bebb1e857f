"""Bounds on what a client of HTTP/2 makes the server do without asking for an answer."""

from __future__ import annotations

import trio

ENHANCE_YOUR_CALM = 0xB


class Http2Error(Exception):
    """What a client did to all streams: the connection ends with GOAWAY."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Budget:
    """A token bucket: a burst, refilled at a rate."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst = burst
        self._rate = per_second
        self._left = float(burst)
        self._at = trio.current_time()

    def spend(self, what: str) -> None:
        """Take one token.

        Raises:
            Http2Error: There is none.
        """
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            raise Http2Error(ENHANCE_YOUR_CALM, f"too many {what}")
        self._left -= 1
