"""Programs for the command line to run, and a process to run them in."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

SHOP = '''
    import os
    from carmy_engine import AgentError, ErrorCategory, tool

    print("printed while loading")

    @tool(effect="read", idempotent=True)
    async def search(query: str, limit: int = 2) -> list[str]:
        """Search."""
        print("printed by the tool")
        os.system("echo printed by a child")
        return [f"{query} {number}" for number in range(limit)]

    @tool(effect="read")
    async def fail() -> None:
        """Fail."""
        raise AgentError("SOLD_OUT", "nothing left", ErrorCategory.NOT_FOUND)
'''

SLOW = '''
    import os
    import subprocess
    import time

    import trio
    from carmy_engine import App

    app = App("slow")

    def tell(word):
        if os.path.exists("told"):  # a named pipe: this waits for the reader
            with open("told", "w") as pipe:
                pipe.write(word)

    @app.tool(effect="none", parallel_safe=True)
    async def sleep(seconds: float) -> str:
        """Sleep."""
        tell("sleeping")
        await trio.sleep(seconds)
        return "slept"

    @app.tool(effect="none", parallel_safe=True)
    def block(seconds: float) -> str:
        """Sleep in a thread."""
        tell("sleeping")
        time.sleep(seconds)
        return "slept"

    @app.tool(effect="none", parallel_safe=True)
    async def spin() -> str:
        """Hold the event loop, with a child process."""
        child = subprocess.Popen(["sleep", "1000"])
        tell(str(child.pid))
        while True:
            time.sleep(0.01)

    if __name__ == "__main__":
        app.run()
'''


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with `shop.py` and `slow.py`; modules loaded from it are forgotten afterwards."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class Server:
    """A serving process, and what it has said on standard error so far."""

    def __init__(self, process: trio.Process, url: str, said: bytes) -> None:
        self.process = process
        self.url = url
        self.said = said


@asynccontextmanager
async def running_server(*command: str) -> AsyncIterator[Server]:
    """Run a serving command until it says where it listens; kill it at the end of the block."""
    process = await trio.lowlevel.open_process(command, stderr=PIPE, stdout=PIPE)
    try:
        assert process.stderr is not None
        said = b""
        while b"listening on " not in said or not said.endswith(b"\n"):
            chunk = await process.stderr.receive_some()
            assert chunk, f"it ended: {said!r}"
            said += chunk
        yield Server(process, said.decode().partition("listening on ")[2].split()[0], said)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()  # type: ignore[union-attr] # asked for above
            await process.stdout.aclose()  # type: ignore[union-attr]


Write = Callable[[str, str], Path]


@pytest.fixture
def write(directory: Path) -> Write:
    """Writes a file of the working directory, without the text's indentation."""

    def write(name: str, text: str) -> Path:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write
