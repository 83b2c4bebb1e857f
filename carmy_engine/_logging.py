"""Logging of what strangers can cause, limited in rate: no client can fill a disk with our log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

BURST_LINES = 5
"""Lines of one message in each interval. Enough to show that something repeats, and with what values."""

INTERVAL_SECONDS = 60.0
"""Between two bursts of one message. A flood then writes a few kilobytes an hour."""


class _Window:
    """The count of one message since its interval began."""

    __slots__ = ("began", "seen")

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen = 0


class RateLimitedLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger adapter that writes the first lines of each message and counts the others.

    Messages are told apart by level and format string; the arguments do not count. So the format string must be a constant.
    After an interval with omitted lines, the next call writes one line with their number, whatever message it is about.
    Safe to use from several threads. A server or a store has one of its own, so that two in a process share no limit.

    Args:
        logger: Writes the lines.
        burst: Lines of one message in each interval.
        seconds: Length of an interval, which begins with a message's first line.
        clock: Seconds that never go back.
    """

    logger: logging.Logger

    def __init__(
        self,
        logger: logging.Logger,
        *,
        burst: int = BURST_LINES,
        seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(logger)
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._windows: dict[tuple[int, object], _Window] = {}
        self._lock = threading.Lock()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line, or count it; and write how many lines of past intervals were omitted."""
        if not self.isEnabledFor(level):
            return
        with self._lock:
            now = self._clock()
            ended = [key for key, window in self._windows.items() if window.began + self._seconds <= now]
            past = [(key, self._windows.pop(key).seen - self._burst) for key in ended]
            window = self._windows.setdefault((level, msg), _Window(now))
            window.seen += 1
            is_written = window.seen <= self._burst
        for (omitted_level, omitted_msg), omitted in past:
            if omitted > 0:
                self.logger.log(omitted_level, "%d more lines omitted: %s", omitted, omitted_msg)
        if is_written:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, not this one
            self.logger.log(level, msg, *args, **kwargs)
