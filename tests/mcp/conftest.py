"""A noisy application, and processes that serve it to clients of MCP."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stdio.conftest import Peer, peer

NOISY = r'''
    import os
    import subprocess

    import trio
    import carmy_engine
    from carmy_engine import AgentContext, AgentError

    print("noise: import")
    app = carmy_engine.app()

    @app.tool(effect="none", parallel_safe=True)
    async def echo(text: str) -> str:
        """Repeat."""
        print("noise: print")
        os.write(1, b"noise: raw\n")
        subprocess.run(["echo", "noise: child"], check=True)
        return text

    @app.tool(effect="read", idempotent=True, parallel_safe=True)
    async def pair(a: int, b: int) -> dict[str, int]:
        """An object."""
        return {"a": a, "b": b}

    @app.tool(effect="write", parallel_safe=True)
    async def fail(how: str) -> None:
        """Fail."""
        if how == "declared":
            raise AgentError("NO_STOCK", "there is none left", "conflict", recoverable=True, details={"left": 0})
        raise RuntimeError("postgres://user:hunter2@db")

    @app.tool(effect="destructive")
    async def destroy(name: str) -> str:
        """Needs a confirmation."""
        return name

    @app.tool(effect="external_write", parallel_safe=True)
    async def hold(marker: str) -> str:
        """Say that it runs, and go on for ever."""
        try:
            open(marker, "w").close()
            await trio.sleep_forever()
        finally:
            os.unlink(marker)

    @app.tool(effect="write", parallel_safe=True)
    def child(marker: str) -> None:
        """Wait in a thread for a child process."""
        subprocess.run(["sh", "-c", f"touch {marker}; sleep 1000; true"])

    @app.tool(effect="write", parallel_safe=True)
    async def stubborn(marker: str) -> None:
        """Start a child process, and ignore every cancel."""
        subprocess.Popen(["sh", "-c", f"touch {marker}; exec sleep 1000"])
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    @app.tool(effect="write", parallel_safe=True)
    async def spin(marker: str) -> None:
        """Start a child process, and hold the event loop for ever."""
        subprocess.Popen(["sh", "-c", f"touch {marker}; exec sleep 1000"])
        while True:
            pass

    @app.tool(effect="none", parallel_safe=True)
    async def slow(number: int) -> int:
        """Take a moment."""
        await trio.sleep(0.05)
        return number

    @app.tool(effect="none", parallel_safe=True)
    async def steps(ctx: AgentContext) -> int:
        """Report, also backwards."""
        for number in (1, 2, 2, 1, 3):
            ctx.progress.report(number, 3, f"step {number}")
            await ctx.progress.partial(number)
        return 3
'''

COMMAND = [sys.executable, "-c", "from carmy_engine.cli import main; main()", "mcp"]

HELLO: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": "hello",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    """The application's file."""
    path = tmp_path / "noisy.py"
    path.write_text(textwrap.dedent(NOISY))
    return path


@asynccontextmanager
async def session(target: Path, **options: Any) -> AsyncIterator[Peer]:
    """A serving process that has been greeted."""
    async with peer(target, command=COMMAND, **options) as found:
        await found.send(*HELLO)
        assert (await found.receive())["id"] == "hello"
        yield found


def request(id: object, method: str, **params: Any) -> dict[str, Any]:  # noqa: A002 - its name on the wire
    """A request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: object, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:  # noqa: A002
    """A call of a tool."""
    return request(id, "tools/call", name=tool, arguments=arguments, **({} if meta is None else {"_meta": meta}))


async def ask(found: Peer, message: dict[str, Any]) -> dict[str, Any]:
    """Send a request, and give the next message."""
    await found.send(message)
    return await found.receive()
