"""Keeps standard output for data: whatever tools, libraries and child processes print goes to standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Protocol

from ._outcome import ReaderGone


class Out(Protocol):
    """Where a command writes its data."""

    def __call__(self, data: bytes, /) -> None:
        """Write all of it.

        Raises:
            ReaderGone: Nobody reads any more.
            OSError: It could not be written, for example to a full disk.
        """
        ...


@contextlib.contextmanager
def claimed_stdout() -> Iterator[Out]:
    """Give the real standard output to the block alone; until its end, descriptor 1 is standard error."""
    _fill_gaps()
    if sys.stdout is not None:
        sys.stdout.flush()
    real = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):  # in order with it, and wherever somebody has pointed sys.stdout
            yield lambda data: _write(real, data)
        if sys.stdout is not None:
            with contextlib.suppress(OSError):  # standard error has lost its reader
                sys.stdout.flush()
    finally:
        os.dup2(real, 1)
        os.close(real)


def _fill_gaps() -> None:
    """Open what of the standard descriptors was closed when the process started; else the next socket would be one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise ReaderGone from None
