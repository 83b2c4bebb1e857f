"""How a command ends when it does not end well."""

from __future__ import annotations

SUCCESS = 0
FAILURE = 1
USAGE = 2
INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


class UsageError(Exception):
    """The command line is wrong; exit code 2."""


class ReaderGone(Exception):  # noqa: N818 - it is their right
    """Whoever read standard output has seen enough; nothing is left to say."""


class Failure(Exception):  # noqa: N818 - not every failure is an error of this program
    """The command could not do its work; exit code 1."""
