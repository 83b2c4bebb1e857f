"""The supervisor over workers that follow a script: how it takes their ends, and how it ends them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from carmy_engine.cli._supervisor import DEFAULT_LIMITS, Supervisor, SupervisorLimits
from carmy_engine.cli._worker import inherited
from tests.faults.processes import all_gone

LIMIT_SECONDS = 50

PRELUDE = """
    import os, signal, socket, sys, time
    number, _, address = os.environ["_CARMY_WORKER"].split(":", 2)
    control = socket.socket(fileno=int(number))
    with open("starts", "a") as file:
        print(os.getpid(), file=file)
    def ready():
        control.sendall(f"test listening on {address}\\n".encode())
    def until_told():
        while control.recv(1):
            pass
"""


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A socket for workers."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


class Run:
    """One supervisor with workers that run a script.

    Attributes:
        said: What it has said.
    """

    def __init__(
        self,
        directory: Path,
        listening: socket.socket,
        script: str,
        count: int,
        limits: SupervisorLimits = DEFAULT_LIMITS,
        stop_seconds: float = 8.0,
    ) -> None:
        self.said: list[str] = []
        self._starts = directory / "starts"
        self._supervisor = Supervisor(
            [sys.executable, "-S", "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(script)],
            [listening],
            count,
            stop_seconds,
            self._say,
            limits,
        )
        self.listening = trio.Event()

    def _say(self, line: str) -> None:
        self.said.append(line)
        if "listening" in line:
            self.listening.set()

    async def __call__(self) -> int:
        with trio.fail_after(LIMIT_SECONDS):
            return await self._supervisor.run()

    @property
    def starts(self) -> list[int]:
        """The workers that there have been, in order."""
        return [int(line) for line in self._starts.read_text().split()] if self._starts.exists() else []


AT_ONCE = SupervisorLimits(first_wait_secs=0.001)
"""No waits between one worker and the next."""


async def test_giving_up(directory: Path, listening: socket.socket) -> None:
    """A worker that ends again and again is given up, and the others with it, with exit code 1."""
    run = Run(
        directory, listening, "ready()\nif len(open('starts').readlines()) != 1: sys.exit(3)\nuntil_told()", 2, AT_ONCE
    )
    assert await run() == 1
    assert len([line for line in run.said if line.startswith("test listening on fd://")]) == 1
    crashes = [line for line in run.said if "exit code 3" in line]
    assert len(crashes) == AT_ONCE.max_crashes
    assert crashes[-1].endswith("for the 6th time in a row: giving up")
    assert len(run.starts) == 1 + AT_ONCE.max_crashes
    await all_gone(run.starts)


async def test_steady_workers_are_never_given_up(directory: Path, listening: socket.socket) -> None:
    """Ends that are long apart do not add up."""
    script = "ready()\nif len(open('starts').readlines()) == 12: os.kill(os.getppid(), signal.SIGTERM); until_told()"
    run = Run(directory, listening, script, 1, SupervisorLimits(first_wait_secs=0.001, steady_secs=0.0))
    assert await run() == 128 + signal.SIGTERM  # which is how the last one ends
    assert len(run.starts) == 12
    assert not [line for line in run.said if "giving up" in line]


async def test_a_worker_that_cannot_start(directory: Path, listening: socket.socket) -> None:
    """When the first worker ends before it is ready, there is no other one, and it is not started again."""
    run = Run(directory, listening, "sys.exit(1)", 3)
    assert await run() == 1
    assert run.said == []  # it has said itself what is wrong
    assert len(run.starts) == 1


async def test_a_worker_that_is_killed_while_it_starts(directory: Path, listening: socket.socket) -> None:
    """The supervisor reports the end of a worker that could not report it."""
    run = Run(directory, listening, "os.kill(os.getpid(), signal.SIGSEGV)", 2)
    assert await run() == 1
    assert run.said == [f"process 1 of 2 (pid {run.starts[0]}) was killed by SIGSEGV before it was ready"]


async def test_a_later_worker_that_cannot_start(directory: Path, listening: socket.socket) -> None:
    """When another worker cannot start, the first is ended as well, and the server is not reported as listening."""
    script = "ready()\nuntil_told()"
    run = Run(directory, listening, f"if len(open('starts').readlines()) > 1: sys.exit(1)\n{script}", 2)
    assert await run() == 1
    assert not run.listening.is_set()
    await all_gone(run.starts)


async def test_workers_that_take_no_notice(directory: Path, listening: socket.socket) -> None:
    """Workers that outlive their own limit are killed, with what they have started."""
    script = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        import subprocess
        child = subprocess.Popen(["sleep", "1000"])
        with open("starts", "a") as file:
            print(child.pid, file=file)
        ready()
        while True:
            time.sleep(1)
    """
    run = Run(directory, listening, textwrap.dedent(script), 2, SupervisorLimits(margin_secs=0.1), stop_seconds=0.1)
    codes: list[int] = []

    async def supervise() -> None:
        codes.append(await run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervise)
        await run.listening.wait()
        signal.raise_signal(signal.SIGTERM)
    assert codes == [128 + signal.SIGKILL]
    assert run.said[-1] == "not all processes end by themselves: ending them"
    assert len(run.starts) == 4
    await all_gone(run.starts)


async def test_a_supervisor_that_is_cancelled(directory: Path, listening: socket.socket) -> None:
    """Cancelling the supervisor leaves neither a process nor a listening socket behind."""
    run = Run(directory, listening, "ready()\nuntil_told()", 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await run.listening.wait()
        nursery.cancel_scope.cancel()
    assert listening.fileno() == -1
    assert len(run.starts) == 2
    await all_gone(run.starts)


async def test_a_worker_that_says_no_end(directory: Path, listening: socket.socket) -> None:
    """A worker's report is bounded: one that never ends its line counts as not ready, and is given up with the rest."""
    run = Run(directory, listening, "control.sendall(b'x' * 20000); sys.exit(4)", 1)
    assert await run() == 1
    assert run.said == [f"process 1 of 1 (pid {run.starts[0]}) ended with exit code 4 before it was ready"]


def test_what_is_meant_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that a worker has started before it looked is no worker, and what it starts is none either."""
    descriptor = os.dup(0)
    os.close(descriptor)
    monkeypatch.setenv("_CARMY_WORKER", f"{descriptor}:1:fd://{descriptor}")
    assert inherited() is None
    assert "_CARMY_WORKER" not in os.environ
    assert inherited() is None
