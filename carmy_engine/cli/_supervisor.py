"""The supervisor of several processes that serve on the same sockets: it starts, watches, replaces and stops them.

The supervisor opens the sockets and each worker inherits them. So all workers accept connections from one queue: a free worker takes
the next one, and connections that a dying worker has not accepted stay in the queue.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import trio

from .._app.serve import kill_descendants, stop_limit, stop_signals
from .._app.transport import Listen, Listening
from .._config.settings import Settings
from .._execution.grace import grace
from ._outcome import FAILURE, SUCCESS, USAGE
from ._worker import environment

MAX_LINE_BYTES = 8192
"""Longest line in which a worker reports its address."""

ALONE = "each has turns, rate limits and max_executions of its own, and lists its own executions only; MCP has no sessions here"
"""The state that several processes do not share."""


class SupervisorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a supervisor.

    Attributes:
        first_wait_secs: Before a worker is replaced that has ended by itself; twice as long each further time in a row.
        max_crashes: In a row, of one worker; with the waits between them, about a quarter of a minute. Something else has to be done then.
        steady_secs: A worker that has served for so long has not crashed in a row.
        margin_secs: Beyond the time that a worker's own limit gives it to end.
    """

    first_wait_secs: float = 0.5
    max_crashes: int = 6
    steady_secs: float = 60.0
    margin_secs: float = 2.0

    def next_wait(self, crashes: int) -> float | None:
        """Seconds until a worker is replaced that has ended so many times in a row; None when it is not replaced any more."""
        return None if crashes >= self.max_crashes else self.first_wait_secs * 2 ** (crashes - 1)


DEFAULT_LIMITS = SupervisorLimits()


def ending(code: int) -> str:
    """A description of the end of a process."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


async def supervise(
    command: Sequence[str], listen: Listen, settings: Settings, *, authenticated: bool, say: Callable[[str], None]
) -> int:
    """Listen, and serve with as many processes as the settings say until a signal.

    Args:
        command: What each of them runs.
        listen: Opens the sockets that they share.
        settings: Of the application.
        authenticated: Whether callers have to show credentials.
        say: Gets lines for people.

    Returns:
        The exit code.

    Raises:
        ConfigurationError: The settings do not allow it, or the address cannot be had.
    """
    count = settings.http.processes
    listening = await listen(settings, authenticated=authenticated)
    say(f"{count} processes; {ALONE}")
    return await Supervisor(command, listening, count, stop_limit(settings), say).run()


class Supervisor:
    """The processes of one server.

    Args:
        command: What each of them runs.
        listening: What they serve on; closed when they stop, and by `run` in any case.
        count: How many there are.
        stop_seconds: What each may take to end.
        say: Gets lines for people.
        limits: See `SupervisorLimits`.
    """

    def __init__(
        self,
        command: Sequence[str],
        listening: Sequence[Listening],
        count: int,
        stop_seconds: float,
        say: Callable[[str], None],
        limits: SupervisorLimits = DEFAULT_LIMITS,
    ) -> None:
        self._command = command
        self._listening = listening
        self._descriptors = [listener.fileno() for listener in listening]
        # A transport's own kind of socket may not know; then the transport has made it.
        self._are_ours = not any(getattr(listener, "is_inherited", False) for listener in listening)
        self._count = count
        self._limits = limits
        self._stop_seconds = stop_seconds + limits.margin_secs
        self._say = say
        self._stop = trio.Event()
        self._processes: dict[trio.Process, socket.socket] = {}
        """With our end of the socket between us."""
        self._code = SUCCESS

    async def run(self) -> int:
        """Keep the processes running until a signal, or until one keeps crashing. No process is left then.

        The first worker starts alone, so a problem of the application is reported once.

        Returns:
            The exit code.
        """
        try:
            with stop_signals(self._stop.set):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_all)
                    async with trio.open_nursery() as keepers:
                        line = await keepers.start(self._keep, 1)
                        async with trio.open_nursery() as starting:
                            for number in range(2, self._count + 1):
                                starting.start_soon(keepers.start, self._keep, number)
                        if not self._stop.is_set():
                            self._say(line)
                    nursery.cancel_scope.cancel()
        finally:
            self._close()
        return self._code

    def _close(self) -> None:
        for listener in self._listening:
            listener.close()

    def _fail(self) -> None:
        self._code = FAILURE
        self._stop.set()

    async def _stop_all(self) -> None:
        await self._stop.wait()
        self._close()
        if self._processes:
            self._say("stopping once running calls have ended; a second signal ends all processes at once")
        for process, control in self._processes.items():
            _stop(process, control)
        await trio.sleep(self._stop_seconds)
        self._say("not all processes end by themselves: ending them")
        for process in self._processes:
            _kill(process)

    async def _keep(self, number: int, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep one worker running. Started with the line that ends in its address; empty if it never listened."""
        was_ready = False
        crashes = 0
        while not self._stop.is_set():
            async with self._running(number) as (process, control):
                line = await _first_line(control)
                ready_since = trio.current_time()
                if line and not was_ready:
                    was_ready = True
                    task_status.started(line)
                code = await process.wait()
            if self._stop.is_set():
                if line and code != 0:
                    self._code = self._code or (code if code > 0 else 128 - code)
                break
            how = f"process {number} of {self._count} (pid {process.pid}) {ending(code)}"
            if not was_ready:
                if code not in {FAILURE, USAGE}:  # else it has reported the problem itself
                    self._say(f"{how} before it was ready")
                self._fail()
                break
            lasted = trio.current_time() - ready_since if line else 0.0
            crashes = 1 if lasted >= self._limits.steady_secs else crashes + 1
            wait = self._limits.next_wait(crashes)
            if wait is None:
                self._say(f"{how}, for the {crashes}th time in a row: giving up")
                self._fail()
                break
            self._say(f"{how}; starting another one in {wait:g} s")
            with trio.move_on_after(wait):
                await self._stop.wait()
        if not was_ready:
            task_status.started("")

    @contextlib.asynccontextmanager
    async def _running(self, number: int) -> AsyncIterator[tuple[trio.Process, trio.SocketStream]]:
        """A worker, and our end of the socket between us; neither is left behind."""
        ours, there = socket.socketpair()
        with trio.socket.from_stdlib_socket(ours) as here:
            with there:
                process = await trio.lowlevel.open_process(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[there.fileno(), *self._descriptors],
                    env=environment(there.fileno(), number, self._descriptors, are_ours=self._are_ours),
                )
            self._processes[process] = ours
            try:
                if self._stop.is_set():
                    _stop(process, ours)  # the others have been stopped already
                yield process, trio.SocketStream(here)
            finally:
                del self._processes[process]
                if process.returncode is None:
                    _kill(process)
                    with grace():
                        await process.wait()


async def _first_line(stream: trio.SocketStream) -> str:
    """The first line that a worker sends; empty if it ends before."""
    received = b""
    with contextlib.suppress(trio.BrokenResourceError):
        while (
            b"\n" not in received
            and len(received) < MAX_LINE_BYTES
            and (data := await stream.receive_some(MAX_LINE_BYTES))
        ):
            received += data
    line, end, _ = received.partition(b"\n")
    return line.decode(errors="replace") if end else ""


def _stop(process: trio.Process, control: socket.socket) -> None:
    """Notify a worker that all of them stop, then signal it."""
    with contextlib.suppress(OSError):  # it has ended
        control.send(b".")
    process.terminate()


def _kill(process: trio.Process) -> None:
    """Kill it, and what it has started."""
    kill_descendants(process.pid)
    process.kill()
