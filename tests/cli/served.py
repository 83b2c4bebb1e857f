"""A serving command as a process: what it says, and connections to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import Any
from urllib.parse import urlsplit

import trio

from carmy_engine.transport import descendants
from tests.support.http import JSON, Client, render

CARMY = (sys.executable, "-c", "from carmy_engine.cli import main; main()")

LIMIT_SECONDS = 55
"""For a whole test: processes start slowly on a machine that does other things."""

MANY = '''
    import os
    import time
    from pathlib import Path

    import trio
    from carmy_engine import App

    app = App("many").store(os.environ.get("STORE", "memory:"))

    @app.tool(effect="read", parallel_safe=True)
    async def pid() -> int:
        """Say who answers."""
        return os.getpid()

    @app.tool(effect="read", parallel_safe=True)
    async def environment() -> list[str]:
        """Say what a child of this process would know."""
        return sorted(os.environ)

    @app.tool(effect="read", parallel_safe=True)
    async def wait(path: str) -> int:
        """Wait until there is a file."""
        while not Path(path).exists():
            await trio.sleep(0.02)
        return os.getpid()

    @app.tool(effect="read", parallel_safe=True)
    async def hog(path: str) -> int:
        """Let nobody else do anything until there is a file."""
        Path(f"{path}-{os.getpid()}").touch()
        while not Path(path).exists():
            time.sleep(0.02)
        return os.getpid()

    @app.tool(effect="write", parallel_safe=True)
    async def note(path: str) -> int:
        """Add a line to a file, slowly."""
        with open(path, "a") as file:
            file.write("noted\\n")
        await trio.sleep(0.2)
        return os.getpid()

    if __name__ == "__main__":
        app.run()
'''


class Served:
    """A serving process.

    Attributes:
        process: It.
        heard: What it has said on standard error, as far as somebody has waited for it.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.heard = ""

    async def says(self, words: str) -> str:
        """Wait until it has said something; give the rest of that line."""
        assert self.process.stderr is not None
        while words not in self.heard or not self.heard.endswith("\n"):
            chunk = await self.process.stderr.receive_some()
            assert chunk, f"it ended without {words!r}: {self.heard}"
            self.heard += chunk.decode()
        return self.heard.partition(words)[2].partition("\n")[0]

    async def last_words(self) -> str:
        """All that it has said, once nobody can say more."""
        assert self.process.stderr is not None
        async for chunk in self.process.stderr:
            self.heard += chunk.decode()
        return self.heard

    async def port(self) -> int:
        """Where it listens, once it does."""
        port = urlsplit(await self.says("listening on ")).port
        assert port is not None
        return port

    def workers(self) -> list[int]:
        """The processes that it has started."""
        return descendants(self.process.pid)


@asynccontextmanager
async def served(*command: str, **options: Any) -> AsyncIterator[Served]:
    """Run a command until the end of the block; nothing of it is left then."""
    process = await trio.lowlevel.open_process(command, stderr=PIPE, **options)
    try:
        yield Served(process)
    finally:
        for pid in [*descendants(process.pid), process.pid] if process.returncode is None else []:
            os.kill(pid, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stderr is not None
            await process.stderr.aclose()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    """One connection."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Client(stream)


async def begin(client: Client, tool: str, arguments: str) -> None:
    """Start a call, and wait until its tool runs."""
    body = b'{"tool":"%b","arguments":%b}' % (tool.encode(), arguments.encode())
    await client.send(render("POST", "/agent/execute", {"content-type": JSON, "accept": "text/event-stream"}, body))
    status, _ = await client.head()
    assert status == 200
    while b"tool.started" not in await client.chunk():
        pass


async def outcome(client: Client) -> bytes:
    """The rest of what `begin` has begun."""
    return b"".join([chunk async for chunk in client.chunks()])
