"""What one check of long arguments may use up: problems, memory, attempts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .messages import MAX_PROBLEMS

MAX_FAILURES = 4 * MAX_PROBLEMS
"""Values found wrong before the rest of a document is skipped: an answer lists fewer, after unions are put into one."""

MAX_LINES = 1000
"""Errors that pydantic may have found in one value to be put into words one by one."""

MAX_ALL_LINES = 5000
"""The same for a whole document: every wrong value has an error for each arm of its union."""

MAX_BYTES = 96 * 1024 * 1024
"""Of memory that the check of one request's arguments may need, by estimate. A mebibyte of the shortest numbers needs 60."""

MAX_ATTEMPTS = 100_000
"""Values that recursive unions try. Where two arms contain the union again, the attempts double with each level."""

MAX_ATTEMPTS_AT_ONCE = 1000
"""The same for what is validated in one step, on the event loop: one or two milliseconds."""

MAX_SAME_HASH = 100
"""Different items of a set, or keys of a dict, with the same hash, by which a set takes quadratic time. Hashes of numbers
are no secret; by chance not even two of a million are equal."""


RUN_SECONDS = 0.001
"""Time between two pauses of a check. Without them, the event loop waits for a switch interval of the interpreter (5 ms)."""

PAUSE_SECONDS = 0.0001
"""Length of a pause. A thread that waits for the interpreter needs half of it to wake up."""


class TooCostly(Exception):  # noqa: N818 - no error yet: the same bytes may be checked elsewhere, within a larger bound
    """A check has reached one of its bounds.

    Attributes:
        code: Of the problem.
        message: For the caller.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Abandoned(Exception):  # noqa: N818 - not reported
    """The result of this check is of no use any more."""


class Work:
    """What one check has used up so far.

    Attributes:
        abandoned: Set by any thread to end the check at its next step.
        is_output: See `__init__`.
        failures: Values found wrong.
        kept: Errors of items of lists, under the numbers that stand for them.
        slots: Values of an object that were read in pieces, by the names of their fields.
    """

    __slots__ = (
        "_attempts",
        "_bytes",
        "_hashes",
        "_max_attempts",
        "_max_bytes",
        "_max_same_hash",
        "_paused_at",
        "abandoned",
        "failures",
        "is_output",
        "kept",
        "slots",
    )

    def __init__(self, max_attempts: float = MAX_ATTEMPTS, *, is_output: bool = False) -> None:
        """Start counting.

        Args:
            max_attempts: Values that recursive unions may try.
            is_output: Check an output: the value is in memory already, and only the deadline of its call bounds the check.
        """
        self.abandoned = False
        self.is_output = is_output
        self.failures = 0
        self.kept: list[Mapping[str, Any]] = []
        self.slots: Mapping[str, Any] = {}
        self._attempts = 0
        self._bytes = 0
        self._hashes: dict[int, int] = {}
        self._paused_at = time.perf_counter()
        self._max_attempts = math.inf if is_output else max_attempts
        self._max_bytes = math.inf if is_output else MAX_BYTES
        self._max_same_hash = math.inf if is_output else MAX_SAME_HASH

    @property
    def exhausted(self) -> bool:
        """Enough problems have been found."""
        return self.failures >= MAX_FAILURES

    def step(self, size: int) -> None:
        """Count the bytes of objects made.

        Raises:
            Abandoned: See there.
            TooCostly: There are too many.
        """
        if self.abandoned:
            raise Abandoned
        self._bytes += size
        if self._bytes > self._max_bytes:
            raise TooCostly("too_long", f"the arguments need more than {MAX_BYTES // 1024**2} MiB of memory")

    def pause(self) -> None:
        """Let other threads run, if this one has run for `RUN_SECONDS`.

        Raises:
            Abandoned: See there.
        """
        if self.abandoned:
            raise Abandoned
        now = time.perf_counter()
        if now - self._paused_at > RUN_SECONDS:
            time.sleep(PAUSE_SECONDS)
            self._paused_at = time.perf_counter()

    def attempt(self) -> None:
        """Count a value that a recursive union tries.

        Raises:
            Abandoned: See there.
            TooCostly: There are too many.
        """
        self._attempts += 1
        if self._attempts > self._max_attempts:
            raise TooCostly("invalid", "the arguments could fit the types in too many ways: nest them less")
        if self.abandoned:
            raise Abandoned

    def count_hash(self, value: object) -> None:
        """Count a new item of a set or key of a dict.

        Raises:
            TooCostly: Too many have its hash.
        """
        key = hash(value)
        same = self._hashes[key] = self._hashes.get(key, 0) + 1
        if same > self._max_same_hash:
            raise TooCostly(
                "not_allowed", f"more than {MAX_SAME_HASH} numbers or ids in the arguments have the same hash"
            )


class _Current(threading.local):
    work: Work
    """Of the check that this thread runs."""


_current = _Current()


def current() -> Work:
    """The work of the check that calls from this thread."""
    return _current.work


@contextmanager
def begun(work: Work) -> Iterator[None]:
    """Make this the current work of the thread, for a block."""
    _current.work = work
    try:
        yield
    finally:
        del _current.work
