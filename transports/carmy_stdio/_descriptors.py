"""Reserves descriptors 0 and 1 for the protocol, and puts harmless ones in their place."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
import sys

from carmy_engine import ConfigurationError

from ._output_lock import OutputLock
from ._stderr_relay import relay_stderr

FIRST_DESCRIPTOR = 64
"""Lowest number of the protocol's descriptors: above those that programs close, or duplicate onto, by habit."""


class Descriptors:
    """The descriptors of the protocol.

    Attributes:
        input: The descriptor to read from.
        output: The descriptor to write to.
        output_lock: Serialises writes to the output; shared with the relay of standard error if both are one pipe.
        parent: The id of the parent process.
    """

    def __init__(self, input: int, output: int, output_lock: OutputLock, parent: int) -> None:  # noqa: A002 - its name
        self.input = input
        self.output = output
        self.output_lock = output_lock
        self.parent = parent


@functools.cache
def claim() -> Descriptors:
    """Reserve standard input and output for the protocol, for the rest of the process's life.

    Afterwards descriptor 0 is empty, and all output on descriptor 1 goes to standard error, text in the buffer of `sys.stdout`
    included. Child processes do not inherit the descriptors of the protocol. A pipe as standard error no longer blocks
    when it is full; see `relay_stderr`.

    Call it before the application is imported. Further calls return the same object.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    parent = os.getppid()
    output_kind = _kind(1)
    if output_kind is None:
        raise ConfigurationError("stdio: standard output is closed, so there is nowhere to answer")
    error_kind = _kind(2)
    nowhere = os.open(os.devnull, os.O_RDWR)
    if error_kind is None:
        os.dup2(nowhere, 2)
    source = nowhere if _kind(0) is None else 0
    output_lock = OutputLock()
    descriptors = Descriptors(_move_high(source), _move_high(1), output_lock, parent)
    if nowhere != 0:
        os.dup2(nowhere, 0)
    if nowhere > 2:
        os.close(nowhere)
    if error_kind is not None and (stat.S_ISFIFO(error_kind.st_mode) or stat.S_ISSOCK(error_kind.st_mode)):
        same = (error_kind.st_dev, error_kind.st_ino) == (output_kind.st_dev, output_kind.st_ino)
        relay_stderr(_move_high(2), output_lock if same else None)
    else:
        os.dup2(2, 1)
    # F_DUPFD_CLOEXEC covers new programs; this covers copies of this process (`multiprocessing`).
    os.register_at_fork(after_in_child=functools.partial(_close, descriptors))
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
    return descriptors


def _close(descriptors: Descriptors) -> None:
    for descriptor in (descriptors.input, descriptors.output):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _kind(descriptor: int) -> os.stat_result | None:
    try:
        return os.fstat(descriptor)
    except OSError:
        return None


def _move_high(descriptor: int) -> int:
    """Duplicate a descriptor to a high number that child processes do not inherit."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
