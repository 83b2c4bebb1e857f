"""A child process, owned from its start until its whole process group has ended."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import msgspec
import trio

from carmy_engine import ClosedError

TAIL_BYTES = 8192
"""End of standard error that is kept for error messages: enough for a traceback."""

_CHUNK = 65536


class ChildLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a child process.

    Attributes:
        end_secs: From the end of its input to the exit of an idle server.
        terminate_secs: From SIGTERM to SIGKILL.
        exit_report_secs: For the exit code and the end of standard error of a process whose output has ended.
    """

    end_secs: float = 5.0
    terminate_secs: float = 3.0
    exit_report_secs: float = 1.0


DEFAULT_LIMITS = ChildLimits()


class Child:
    """A running child process.

    Attributes:
        name: The command line, for messages.
    """

    def __init__(self, process: trio.Process, command: Sequence[str], limits: ChildLimits) -> None:
        assert isinstance(process.stdin, trio.lowlevel.FdStream)
        assert process.stdout is not None
        assert process.stderr is not None
        self.name = shlex.join(command)
        self._limits = limits
        self._process = process
        self._in = process.stdin
        self._out = process.stdout
        self._err = process.stderr
        self._tail = bytearray()
        self._stderr_ended = trio.Event()

    @property
    def pid(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    async def receive_some(self) -> bytes:
        """Return bytes of its standard output; empty at the end, after the exit code and standard error have been collected."""
        try:
            data = bytes(await self._out.receive_some(_CHUNK))
        except trio.BrokenResourceError:
            data = b""
        if not data:
            await self._wait_for_exit()
        return data

    async def send_all(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            trio.BrokenResourceError: The process does not read any more. If it has ended, `describe_exit` has the reason.
        """
        try:
            await self._in.send_all(data)
        except trio.BrokenResourceError:
            await self._wait_for_exit()
            raise

    def write_at_once(self, data: bytes) -> bool:
        """Write all bytes to its standard input without waiting, or none and return False. Not while `send_all` runs."""
        if len(data) > select.PIPE_BUF:
            return False
        try:
            # The descriptor is private and non-blocking, and up to PIPE_BUF bytes are written as a whole or not at all.
            return os.write(self._in.fileno(), data) == len(data)
        except OSError:
            return False

    async def _wait_for_exit(self) -> None:
        with trio.move_on_after(self._limits.exit_report_secs):
            await self._process.wait()
            await self._stderr_ended.wait()

    def describe_exit(self) -> str:
        """Return how the process ended, with the end of its standard error; words that follow its name."""
        code = self._process.returncode
        if code is None:
            ended = ""
        elif code < 0:
            ended = f" (ended by signal {-code})"
        else:
            ended = f" (exit code {code})"
        tail = self._tail.decode("utf-8", "replace").strip()
        return f"{ended}, whose last words were:\n{tail}\n" if tail else ended

    async def drain_stderr(self) -> None:
        """Read its standard error to the end, so that it never blocks; keep the last `TAIL_BYTES`."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._err.receive_some(_CHUNK):
                self._tail += data
                del self._tail[:-TAIL_BYTES]
        self._stderr_ended.set()

    async def end(self) -> None:
        """End the process and its group, within the limits above. Cannot be cancelled."""
        with trio.CancelScope(shield=True):
            await self._in.aclose()
            with trio.move_on_after(self._limits.end_secs):
                await self._process.wait()
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                with trio.move_on_after(self._limits.terminate_secs):
                    await self._process.wait()
            # Its own child processes may outlive it.
            self._signal(signal.SIGKILL)
            await self._process.wait()
            await self._out.aclose()
            await self._err.aclose()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(self._process.pid, number)


@asynccontextmanager
async def open_child(
    command: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | Path | None,
    limits: ChildLimits = DEFAULT_LIMITS,
) -> AsyncIterator[Child]:
    """Run a command in a new session for the length of a block; its process group ends with the block.

    Raises:
        ClosedError: The command cannot be started.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(command), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, env=env, cwd=cwd
        )
    except OSError as error:
        raise ClosedError(f"{shlex.join(command)} cannot be started: {error.strerror or error}") from error
    child = Child(process, command, limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.drain_stderr)
        try:
            yield child
        finally:
            await child.end()
            nursery.cancel_scope.cancel()
