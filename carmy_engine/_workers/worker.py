"""One worker process, as its engine sees it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import msgspec
import trio

from .._execution.grace import grace
from .messages import (
    MAX_MESSAGE_BYTES,
    FrameReader,
    LogLine,
    Message,
    OfCall,
    Ready,
    framed,
    from_worker,
)

log = logging.getLogger("carmy.engine")

_READ_BYTES = 64 * 1024

_REAP_SECONDS = 0.001
"""First interval between two looks at a process that was killed; it doubles up to `_MAX_REAP_SECONDS`."""

_MAX_REAP_SECONDS = 0.1

END_SECONDS = 5.0
"""Limit for the wait for a killed process. The kernel needs milliseconds, and more for gigabytes of memory."""

_PROGRAM = "import sys; sys.path[:] = sys.argv[4:]; from carmy_engine._workers.child import main; main(*map(int, sys.argv[1:4]))"


class WorkerDied(Exception):  # noqa: N818 - an event
    """The process has ended, or is about to be killed."""


class Worker:
    """One process. It runs one call at a time.

    Attributes:
        pid: Its process id, and the id of its process group and session.
        is_dead: It takes no more calls.
        ended: Set once the process has been reaped.
    """

    def __init__(self, process: subprocess.Popen[bytes], commands: int, replies: int) -> None:
        self._process = process
        self._commands = trio.lowlevel.FdStream(commands)
        self._replies = trio.lowlevel.FdStream(replies)
        self._call = 0
        self._to_call: trio.MemorySendChannel[OfCall] | None = None
        self.pid = process.pid
        self.is_dead = False
        self.ended = trio.Event()

    @property
    def has_served(self) -> bool:
        """True once a call was sent to it."""
        return self._call > 0

    @classmethod
    def start(cls) -> Worker:
        """Start a process, with the pipes as its only descriptors beside the standard ones.

        It runs in the thread of the event loop, for a millisecond or two: the kernel kills a worker when the thread that started it
        ends. What the tools print goes to standard error, since transports may own standard output.

        Raises:
            OSError: The system refuses.
        """
        commands_end, commands = os.pipe()
        replies, replies_end = os.pipe()
        arguments = [str(number) for number in (commands_end, replies_end, os.getpid())]
        try:
            process = subprocess.Popen(  # noqa: S603 - the interpreter that runs here
                [sys.executable, "-c", _PROGRAM, *arguments, *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(commands_end, replies_end),
                start_new_session=True,
            )
        except BaseException:
            os.close(commands)
            os.close(replies)
            raise
        finally:
            os.close(commands_end)
            os.close(replies_end)
        return cls(process, commands, replies)

    async def send(self, message: Message) -> None:
        """Send a message. If cancelled, the pipe may hold a part of it: kill the worker.

        Raises:
            WorkerDied: The process has ended.
        """
        try:
            await self._commands.send_all(framed(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise WorkerDied from None

    def begin(self) -> tuple[int, trio.MemoryReceiveChannel[OfCall]]:
        """Begin a call: return its id, and the channel of its messages, which ends with the process."""
        self._call += 1
        self._to_call, messages = trio.open_memory_channel[OfCall](0)
        return self._call, messages

    async def relay(self, on_ready: Callable[[tuple[str, ...]], object]) -> None:
        """Pass messages to the calls that they belong to, until the process ends or sends what is no message.

        Args:
            on_ready: Called with the problems of the start, once.
        """
        frames = FrameReader(MAX_MESSAGE_BYTES)
        try:
            while data := await self._replies.receive_some(_READ_BYTES):
                for frame in frames.feed(data):
                    message = from_worker.decode(frame)
                    if isinstance(message, LogLine):
                        self._log(message)
                    elif isinstance(message, Ready):
                        on_ready(message.problems)
                    elif self._to_call is not None and message.id == self._call:
                        with contextlib.suppress(trio.BrokenResourceError):  # the call was cancelled
                            await self._to_call.send(message)
                    # else: of a thread that an earlier call has left behind
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except (ValueError, msgspec.MsgspecError):
            log.exception("the worker process %d has sent what is no message", self.pid)

    def _log(self, line: LogLine) -> None:
        logger = logging.getLogger(line.logger)
        if logger.isEnabledFor(line.level):
            logger.handle(
                logger.makeRecord(line.logger, line.level, f"worker process {self.pid}", 0, line.text, (), None)
            )

    def kill(self) -> None:
        """Kill the process and its group. The pool reaps it."""
        self.is_dead = True
        self._replies.close()  # another process may hold the other end
        if self._process.returncode is None:  # not reaped, so the number is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill the process, wait for its end and close the pipes. Cannot be cancelled, and takes at most `END_SECONDS`."""
        self.kill()
        self._commands.close()
        interval = _REAP_SECONDS
        with grace(END_SECONDS):
            while self._process.poll() is None:
                await trio.sleep(interval)
                interval = min(2 * interval, _MAX_REAP_SECONDS)
        self.ended.set()
        if self._to_call is not None:
            self._to_call.close()

    def exit(self) -> dict[str, object]:
        """How the process ended, for the details of an error."""
        code = self._process.returncode
        if code is None:
            return {}
        if code >= 0:
            return {"exit_code": code}
        try:
            return {"signal": signal.Signals(-code).name}
        except ValueError:  # a real-time signal
            return {"signal": str(-code)}
