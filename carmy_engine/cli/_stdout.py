"""Standard output for data only: output of tools, libraries and child processes goes to standard error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Protocol, cast

from ._outcome import Failure, ReaderGone

if TYPE_CHECKING:
    from rich.console import Console


class Out(Protocol):
    """Where a command writes its data."""

    def __call__(self, data: bytes, /) -> None:
        """Write all of it.

        Raises:
            ReaderGone: The reader has closed it.
            Failure: It could not be written, for example to a full disk.
        """
        ...


@contextlib.contextmanager
def claimed_stdout(*, is_needed: bool = True) -> Iterator[Out]:
    """Give the real standard output to the block alone; until its end, descriptor 1 is standard error.

    Args:
        is_needed: The block writes data.

    Raises:
        Failure: It is needed, and closed.
    """
    if is_needed and not _is_open(1):
        raise Failure("standard output is closed, so there is nowhere to write to")
    _fill_gaps()
    if sys.stdout is not None:
        sys.stdout.flush()
    real = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):  # in order with it, even if sys.stdout was replaced
            yield lambda data: _write(real, data)
        if sys.stdout is not None:
            with contextlib.suppress(OSError):  # standard error has lost its reader
                sys.stdout.flush()
    finally:
        os.dup2(real, 1)
        os.close(real)


def help_console() -> Console:
    """What prints the texts of ``--help``. Fails as data on standard output does."""
    from rich.console import Console  # noqa: PLC0415 - other commands would start 25 ms later

    return Console(file=cast("IO[str]", _Help()))


class _Help(io.TextIOBase):
    def isatty(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    def write(self, text: str, /) -> int:
        if sys.stdout is None:
            raise Failure("standard output is closed, so there is nowhere to write to")
        with _writing():
            written = sys.stdout.write(text)
            sys.stdout.flush()
        return written


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Failure(f"cannot write to standard output: {error.strerror}") from None


def _fill_gaps() -> None:
    """Open what of the standard descriptors was closed when the process started; else the next socket would be one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    with _writing():
        while view:
            view = view[os.write(descriptor, view) :]
