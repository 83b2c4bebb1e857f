"""Processes that are measured: how they start, what they use, and how they end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

START_SECONDS = 30.0
END_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


class FailedError(Exception):
    """A contender did not start, or not answer."""


class Running:
    """A contender's process.

    Attributes:
        started: When it was started, on the clock of `time.perf_counter`.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], started: float) -> None:
        self._errors = errors
        self.process = process
        self.started = started

    def said(self) -> str:
        """The end of its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace")

    def cpu_seconds(self) -> float:
        """What it has computed, in user and system mode."""
        with open(f"/proc/{self.process.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_kib(self, what: str = "VmHWM") -> int:
        """Its peak memory, or with ``VmRSS`` what it holds now."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(what))

    @property
    def pipes(self) -> tuple[int, int]:
        """The descriptors of its standard input and output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin.fileno(), self.process.stdout.fileno()


@functools.cache
def environment() -> dict[str, str]:
    """The variables of contenders. Python keeps bytecode in a folder of this run, for installed packages and those of a checkout alike."""
    folder = tempfile.TemporaryDirectory(prefix="bench-bytecode-")
    atexit.register(folder.cleanup)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder.name}


@contextlib.contextmanager
def running(command: Sequence[str], *, piped: bool = False) -> Iterator[Running]:
    """Start a process; end it, and wait for it, when the block ends."""
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment())
        try:
            yield Running(process, errors, started)
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def until_it_answers(found: Running, ask: Callable[[], Any]) -> Any:
    """What `ask` gives, as soon as nothing refuses the connection.

    Raises:
        FailedError: The process ended, or took too long.
    """
    while time.perf_counter() - found.started < START_SECONDS:
        if found.process.poll() is not None:
            raise FailedError(f"it ended with {found.process.returncode}: {found.said()}")
        try:
            return ask()
        except ConnectionError:
            time.sleep(0.002)
    raise FailedError(f"it did not answer within {START_SECONDS:g} s: {found.said()}")
