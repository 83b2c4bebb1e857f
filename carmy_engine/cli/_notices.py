"""Lines for people, on standard error."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """Write one line, if there is still a standard error."""
    if sys.stderr is None:  # it was closed when the process started
        return
    with contextlib.suppress(OSError):  # it has lost its reader
        sys.stderr.write(f"carmy: {text}\n")
        sys.stderr.flush()
