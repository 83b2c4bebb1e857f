"""Servers and clients as processes of their own, which can be killed."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import trio

from carmy_engine.transport import descendants

CARMY = [sys.executable, "-c", "from carmy_engine.cli import main; main()"]

SCRIPTED = """\
from carmy_engine import App
from carmy_engine.testing import SCRIPTED_TOOLS, Stage

app = App("scripted").add(*SCRIPTED_TOOLS).state(Stage())
"""

GATEWAY = """\
import sys
from carmy_engine import App
from carmy_stdio import open_stdio

app = App("gateway").mount(open_stdio([{command}]))
"""


def program(text: str) -> str:
    """A file with a program."""
    directory = tempfile.mkdtemp(prefix="carmy-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory, "program.py")
    path.write_text(text)
    return str(path)


def scripted() -> list[str]:
    """The command that serves the scripted tools over stdio."""
    return [*CARMY, "stdio", program(SCRIPTED)]


def gateway() -> list[str]:
    """The command that serves, over stdio, the tools of a child of its own."""
    return [*CARMY, "stdio", program(GATEWAY.format(command=", ".join(map(repr, scripted()))))]


class Server(NamedTuple):
    """A server that listens.

    Attributes:
        process: Its process.
        url: Where.
    """

    process: trio.Process
    url: str


@asynccontextmanager
async def listening(command: str) -> AsyncIterator[Server]:
    """The scripted tools served by a process, until the end of the block."""
    async with running([*CARMY, command, program(SCRIPTED), "--address", "127.0.0.1:0"], stderr=PIPE) as process:
        assert process.stderr is not None
        said = b""
        with trio.fail_after(20):
            while b"listening on " not in said or not said.endswith(b"\n"):
                data = await process.stderr.receive_some()
                assert data, said
                said += data
        yield Server(process, said.split(b"listening on ")[1].split(b"\n")[0].decode())


@asynccontextmanager
async def running(command: list[str], **options: Any) -> AsyncIterator[trio.Process]:
    """A process; nothing of it is left afterwards."""
    process = await trio.lowlevel.open_process(command, **options)
    try:
        yield process
    finally:
        kill(process.pid)
        with trio.CancelScope(shield=True):
            await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


def kill(pid: int) -> None:
    """Kill a process and what it has started."""
    for found in [*descendants(pid), pid]:
        try:
            os.kill(found, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended meanwhile


def children_of(pid: int) -> list[int]:
    """What a process has started, however far down."""
    return descendants(pid)


async def all_gone(pids: list[int], seconds: float = 10) -> None:
    """Wait until processes have ended."""
    with trio.fail_after(seconds):
        while any(map(_runs, pids)):  # noqa: ASYNC110 - nobody tells of somebody else's child
            await trio.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
