"""The processes under load."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import trio

from tests.faults.processes import CARMY, running

APP = str(Path(__file__).with_name("app.py"))


class Served(NamedTuple):
    """A server.

    Attributes:
        process: Its process.
        url: Its address.
    """

    process: trio.Process
    url: str


def environment(directory: Path, name: str) -> dict[str, str]:
    """Of a server whose ledger and store are in a directory."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CARMY_")}
    return {
        **kept,
        "SOAK_LEDGER": str(directory / f"{name}.ledger"),
        "CARMY_STORE_URL": f"sqlite:{directory / f'{name}.db'}",
        "CARMY_STORE_DURABILITY": "normal",
        "CARMY_WORKERS_MAX_PROCESSES": "2",
        "CARMY_MAX_EXECUTIONS": "200",
    }


@asynccontextmanager
async def served(
    command: str, directory: Path, name: str, listener: socket.socket | None = None, **changes: str
) -> AsyncIterator[Served]:
    """Run a server until the end of the block, with its log in the directory."""
    words = [*CARMY, command, APP, "--address", "127.0.0.1:0" if listener is None else f"fd://{listener.fileno()}"]
    log = directory / f"{name}.log"
    options = {} if listener is None else {"pass_fds": [listener.fileno()]}
    async with (
        running(words, stderr=PIPE, env={**environment(directory, name), **changes}, **options) as process,
        trio.open_nursery() as nursery,
    ):
        url = await nursery.start(_follow, process, log)
        yield Served(process, url)
        nursery.cancel_scope.cancel()


async def _follow(process: trio.Process, log: Path, *, task_status: trio.TaskStatus[str]) -> None:
    """Copy standard error to a file, so that the pipe never fills; report the address."""
    assert process.stderr is not None
    said, announced = b"", False
    with log.open("ab") as file, contextlib.suppress(trio.BrokenResourceError):
        while data := await process.stderr.receive_some():
            file.write(data)
            file.flush()
            if not announced:
                said += data
                if b"listening on " in said and said.endswith(b"\n"):
                    announced = True
                    task_status.started(said.rpartition(b"listening on ")[2].split(b"\n")[0].decode())
    if not announced:
        raise RuntimeError(f"the server did not start:\n{said.decode()}")
