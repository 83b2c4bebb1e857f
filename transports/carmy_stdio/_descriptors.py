"""Takes descriptors 0 and 1 for the protocol, and gives everybody else harmless ones in their place."""

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
"""The protocol's descriptors are at least this: away from the numbers that programs close, or duplicate onto, by habit."""


class Descriptors:
    """Where the protocol is read and written, once descriptors.

    Attributes:
        input: A descriptor to read from.
        output: A descriptor to write to.
        output_lock: Of those who write to the output. If it is the same pipe as standard error, they are shared with that.
        parent: The process that started this one.
    """

    def __init__(self, input: int, output: int, output_lock: OutputLock, parent: int) -> None:  # noqa: A002 - its name
        self.input = input
        self.output = output
        self.output_lock = output_lock
        self.parent = parent


@functools.cache
def claim() -> Descriptors:
    """Take standard input and output for the protocol, for the rest of the process's life.

    From now on descriptor 0 is empty, and whatever is written to descriptor 1, by whomever, goes to standard error. The
    descriptors of the protocol are closed in child processes. Text that is still buffered in `sys.stdout` counts as
    printed after this. Where standard error is a pipe, it no longer blocks, full or not; see `relay_stderr`.

    Call it before the program's own modules are imported. Calling it again gives the same.

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
    # Programs that a tool starts do not get them anyway; copies of this process (`multiprocessing`) would.
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
    """A copy with a high number, which child processes do not get."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR)
