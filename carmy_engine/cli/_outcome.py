"""Exit codes, and the exceptions that lead to them."""

from __future__ import annotations

SUCCESS = 0
FAILURE = 1
USAGE = 2
WAITING = 3
"""A run of a graph waits for an answer, or for the settlement of what is in doubt."""
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


class UsageError(Exception):
    """The command line is wrong; exit code 2."""


class ReaderGone(Exception):  # noqa: N818 - a closed pipe is no error
    """The reader of standard output has closed it."""


class Failure(Exception):  # noqa: N818 - not every failure is an error of this program
    """The command failed; exit code 1."""
