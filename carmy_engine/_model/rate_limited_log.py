"""Logging of what strangers can cause, limited in rate: no client can fill a disk with our log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

BURST_LINES = 5
"""Lines of one message in each interval. Enough to show that something repeats, and with what values."""

INTERVAL_SECONDS = 60.0
"""Between two bursts of one message. A flood then writes a few kilobytes an hour."""

K = TypeVar("K", bound=Hashable)


class BurstLimit(Generic[K]):
    """Admits the first events of each kind in an interval, and counts the others. Safe to use from several threads.

    Args:
        burst: Events of one kind in each interval.
        seconds: Length of an interval, which begins with an event.
        clock: Seconds that never go back.
    """

    def __init__(
        self, burst: int, seconds: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._windows: dict[K, tuple[float, int]] = {}
        """When the interval of each kind began, and its events."""
        self._lock = threading.Lock()

    def admit(self, kind: K) -> tuple[bool, list[tuple[K, int]]]:
        """Count an event.

        Args:
            kind: One of a few: each is kept for an interval.

        Returns:
            Whether it is within the limit; and the events beyond it in the intervals that have ended, by kind.
        """
        with self._lock:
            now = self._clock()
            ended = [kind for kind, (began, _) in self._windows.items() if began + self._seconds <= now]
            past = [(kind, self._windows.pop(kind)[1] - self._burst) for kind in ended]
            began, seen = self._windows.get(kind, (now, 0))
            self._windows[kind] = began, seen + 1
        return seen < self._burst, [(kind, omitted) for kind, omitted in past if omitted > 0]


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
        self._limit = BurstLimit[tuple[int, object]](burst, seconds, clock)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a line, or count it; and write how many lines of past intervals were omitted."""
        if not self.isEnabledFor(level):
            return
        is_admitted, past = self._limit.admit((level, msg))
        for (omitted_level, omitted_msg), omitted in past:
            self.logger.log(omitted_level, "%d more lines omitted: %s", omitted, omitted_msg)
        if is_admitted:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, not this one
            self.logger.log(level, msg, *args, **kwargs)
