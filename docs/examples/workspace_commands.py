"""Run a command and leave nothing of it behind, however it ends. For Linux: it needs ``/proc`` and process descriptors."""

from __future__ import annotations

import codecs
import dataclasses
import os
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from carmy_engine import AgentError, ErrorCategory, grace

KEPT_BYTES = 32 * 1024
"""Of each stream, at the beginning and again at the end. Errors are mostly at one of these places."""

TERM_SECONDS = 0.4
"""Between SIGTERM and SIGKILL. The engine gives a cancelled tool one second in all."""

ESCAPED_SECONDS = 0.3
"""After SIGKILL, for output that is still in the pipes. A process that has left the group may hold them for ever."""

_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
"""What a command may know of our environment. The rest may be secrets."""

Tell = Callable[[str, str], Awaitable[None]]


@dataclasses.dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        exit_code: Its exit code; null when a signal ended it.
        signal: The signal that ended it, such as ``SIGKILL``.
        stdout: What it printed; the middle of long output is left out.
        stderr: What it printed to standard error.
        left_out_bytes: How much of both is missing here.
    """

    exit_code: int | None
    signal: str | None
    stdout: str
    stderr: str
    left_out_bytes: int


class HeadAndTail:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.left_out = 0
        """Bytes between the two."""

    def add(self, data: bytes | bytearray) -> bytes:
        """Take more of the stream; return the part that went to the beginning."""
        room = self._limit - len(self._head)
        head, rest = bytes(data[:room]), bytes(data[room:])
        self._head += head
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
        while self._tail and self._tail_bytes > self._limit:
            excess = self._tail_bytes - self._limit
            first = self._tail.popleft()
            dropped = min(excess, len(first))
            if dropped < len(first):
                self._tail.appendleft(first[dropped:])
            self._tail_bytes -= dropped
            self.left_out += dropped
        return head

    def text(self) -> str:
        """Both parts as text, with a note between them about what is missing. No character is cut in two."""
        tail = b"".join(self._tail)
        if not self.left_out:
            return (bytes(self._head) + tail).decode(errors="replace")
        begin = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)  # an unfinished end stays inside
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        return f"{begin}\n[... {self.left_out} bytes left out ...]\n{tail.decode(errors='replace')}"


async def run_command_in(directory: int, argv: Sequence[str], tell: Tell) -> CommandResult:
    """Run a command in a process group of its own.

    The group does not outlive this call. When the command ends, and just so when this is cancelled, what is left of the
    group gets SIGTERM and, `TERM_SECONDS` later, SIGKILL. A process that moves itself to another group is out of reach.

    Args:
        directory: An open directory to start in.
        argv: The program and its arguments; no shell is involved.
        tell: Called with ``stdout`` or ``stderr`` and a piece of text, as the first `KEPT_BYTES` of each arrive.

    Raises:
        AgentError: ``COMMAND_NOT_FOUND``, ``COMMAND_NOT_ALLOWED``: it did not start.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Entered by the child before it closes our descriptors, so no name can be exchanged on the way.
            cwd=f"/proc/self/fd/{directory}",
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        raise _did_not_start(argv[0], error) from None
    output = {"stdout": HeadAndTail(), "stderr": HeadAndTail()}
    all_read = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_all, process, output, tell, all_read)
        try:
            await _has_exited(process)
        finally:
            with grace():
                await _end_group(process, all_read)
            nursery.cancel_scope.cancel()
    code = process.returncode
    assert code is not None
    return CommandResult(
        exit_code=code if code >= 0 else None,
        signal=signal.Signals(-code).name if code < 0 else None,
        stdout=output["stdout"].text(),
        stderr=output["stderr"].text(),
        left_out_bytes=sum(kept.left_out for kept in output.values()),
    )


async def _read_all(process: trio.Process, output: dict[str, HeadAndTail], tell: Tell, all_read: trio.Event) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, "stdout", process.stdout, output["stdout"], tell)
            nursery.start_soon(_read, "stderr", process.stderr, output["stderr"], tell)
    finally:
        all_read.set()


async def _read(name: str, stream: trio.abc.ReceiveStream, kept: HeadAndTail, tell: Tell) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async with stream:
        async for data in stream:
            text = decoder.decode(kept.add(data))
            if text:
                await tell(name, text)


async def _has_exited(process: trio.Process) -> None:
    """Wait for the end of the process, but leave it a zombie: as long as it is one, its number names no other group."""
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def _end_group(process: trio.Process, all_read: trio.Event) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    with trio.move_on_after(TERM_SECONDS):
        await _has_exited(process)
        await all_read.wait()
    os.killpg(process.pid, signal.SIGKILL)
    with trio.move_on_after(ESCAPED_SECONDS):
        await all_read.wait()
    await process.wait()


def _did_not_start(program: str, error: OSError) -> AgentError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return AgentError(
            "COMMAND_NOT_FOUND", f"there is no program {program!r}", ErrorCategory.NOT_FOUND, recoverable=True
        )
    return AgentError(
        "COMMAND_NOT_ALLOWED",
        f"{program!r} did not start: {error.strerror}",
        ErrorCategory.PERMISSION,
        recoverable=True,
    )
