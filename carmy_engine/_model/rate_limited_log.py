"""Rate-limited logging of events that clients cause, so that no client can fill a disk with log lines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

BURST_LINES = 5
"""Lines of one message in each interval. Enough to show that it repeats, and with which values."""

INTERVAL_SECONDS = 60.0
"""Time between two bursts of one message. A flood then writes a few kilobytes an hour."""

K = TypeVar("K", bound=Hashable)


class BurstLimit(Generic[K]):
    """A limiter that admits the first events of each kind in an interval, and counts the others. Thread-safe.

    Args:
        burst: Events of one kind in each interval.
        seconds: Length of an interval, which begins with an event.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, burst: int, seconds: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._seconds = seconds
        self._clock = clock
        self._windows: dict[K, tuple[float, int]] = {}
        """The start of each kind's interval, and the events in it."""
        self._lock = threading.Lock()

    def admit(self, kind: K) -> tuple[bool, list[tuple[K, int]]]:
        """Count an event.

        Args:
            kind: One of a small set: each is stored for an interval.

        Returns:
            True if the event is within the limit; and, by kind, the events over the limit in intervals that have ended.
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

    Level and format string identify a message; the arguments do not count. The format string must be a constant.
    After an interval with omitted lines, the next call, for any message, writes one line with their number.
    Thread-safe. Each server and each store has its own logger, so that two in a process share no limit.

    Args:
        logger: Writes the lines.
        burst: Lines of one message in each interval.
        seconds: Length of an interval, which begins with a message's first line.
        clock: A monotonic clock, in seconds.
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
        """Write a line or count it, and write the number of omitted lines of past intervals."""
        if not self.isEnabledFor(level):
            return
        is_admitted, past = self._limit.admit((level, msg))
        for (omitted_level, omitted_msg), omitted in past:
            self.logger.log(omitted_level, "%d more lines omitted: %s", omitted, omitted_msg)
        if is_admitted:
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, not this one
            self.logger.log(level, msg, *args, **kwargs)
