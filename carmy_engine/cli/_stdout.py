"""Keeps standard output for data: whatever tools, libraries and child processes print goes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol


class Out(Protocol):
    """Where a command writes its data."""

    def __call__(self, data: bytes, /) -> None:
        """Write all of it.

        Raises:
            OSError: The reader has gone.
        """
        ...


@contextlib.contextmanager
def claimed_stdout() -> Iterator[Out]:
    """Give the real standard output to the block alone; until its end, descriptor 1 is standard error."""
    sys.stdout.flush()
    real = os.dup(1)
    try:
        _point_to_stderr()
        with contextlib.redirect_stdout(sys.stderr):  # in order with it, and wherever somebody has pointed sys.stdout
            yield lambda data: _write(real, data)
        with contextlib.suppress(OSError):  # a closed standard error
            sys.stdout.flush()
    finally:
        os.dup2(real, 1)
        os.close(real)


def _point_to_stderr() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed: what is printed has nowhere to go
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
