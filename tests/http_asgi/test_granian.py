"""`App.asgi` on granian, in a process of its own as it is used: streams, clients that leave, the drain, and below a path."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from carmy_engine import ExecutionRequest
from carmy_http import open_http

ROOT = Path(__file__).parents[2]

WAIT_SECONDS = 30.0
"""Limit for each line that is waited for."""


class Granian:
    """A process of granian that serves over a socket with a file.

    Attributes:
        path: The file.
        prefix: The path below which the application is mounted.
        lines: What the application has printed.
    """

    def __init__(self, process: trio.Process, path: str, prefix: str) -> None:
        self.path = path
        self.prefix = prefix
        self.lines: list[str] = []
        self.process = process
        self._rest = b""

    async def until(self, line: str) -> None:
        """Read lines up to this one."""
        with trio.fail_after(WAIT_SECONDS):
            while line not in self.lines:
                await self._read()

    async def rest(self) -> None:
        """Read all lines, up to the end of the process."""
        with trio.fail_after(WAIT_SECONDS):
            while await self._read():
                pass

    async def _read(self) -> bool:
        assert self.process.stdout is not None
        chunk = await self.process.stdout.receive_some()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.lines += [line.decode() for line in lines]
        assert chunk or not self._rest
        return bool(chunk)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client that has nothing to do with this project."""
        transport = httpx2.AsyncHTTPTransport(uds=self.path)
        async with httpx2.AsyncClient(
            transport=transport, base_url=f"http://localhost{self.prefix}", timeout=20
        ) as made:
            yield made

    async def post(self, body: Any, **headers: str) -> Any:
        """Call a tool."""
        async with self.client() as client:
            return await client.post("/agent/execute", json=body, headers=headers)


@asynccontextmanager
async def granian(target: str = "api", prefix: str = "", *options: str) -> AsyncIterator[Granian]:
    """Serve ``api`` or ``web`` of `granian_app`; at the end, stop the server and read all that the application prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/g.sock"
        command = [
            sys.executable,
            "-m",
            "granian",
            "--interface",
            "asgi",
            "--loop",
            "asyncio",
            "--no-log",
            "--uds",
            path,
        ]
        process = await trio.lowlevel.open_process(
            [*command, *options, f"tests.http_asgi.granian_app:{target}"], cwd=ROOT, stdout=subprocess.PIPE
        )
        try:
            served = Granian(process, path, prefix)
            await served.until("opened")
            await _listens(path)
            yield served
            process.send_signal(signal.SIGTERM)
            await served.rest()
            assert await process.wait() == 0
        finally:
            if process.poll() is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _listens(path: str) -> None:
    """Wait until the socket takes connections, which is after the lifespan has begun."""
    with trio.fail_after(WAIT_SECONDS):
        while True:
            try:
                await (await trio.open_unix_socket(path)).aclose()
            except OSError:
                await trio.sleep(0.01)
            else:
                return


async def test_calls_and_streams() -> None:
    """A call, a stream that arrives while its tool runs, and one of more pieces than the way between the threads holds."""
    async with granian() as served, open_http(f"http://unix:{served.path}") as client:
        result = await client.execute(ExecutionRequest(tool="greet", arguments={"name": "ana"}))
        assert result.unwrap() == "hello ana"
        async with client.stream(ExecutionRequest(tool="many", arguments={"size": 500})) as events:
            found = [event.seq async for event in events]
        assert found == list(range(504))
        async with client.stream(ExecutionRequest(tool="wait")) as events:
            async for event in events:
                if event.kind == "tool.progress":
                    break  # the tool has not ended
        await served.until("ended disconnect")
    assert served.lines == ["opened", "waiting", "ended disconnect", "closed"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_leaves_cancels_its_call(accept: str) -> None:
    """With the cause `disconnect`, before the answer and in a stream."""
    async with granian() as served, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: served.post({"tool": "wait"}, accept=accept))
        await served.until("waiting")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await served.until("ended disconnect")


async def test_a_stop_drains() -> None:
    """The running call gets its answer, then the state is closed."""
    answers: list[Any] = []
    async with granian() as served, trio.open_nursery() as nursery:

        async def call() -> None:
            answers.append((await served.post({"tool": "finish"})).json()["data"])

        nursery.start_soon(call)
        await served.until("finishing")
        served.process.send_signal(signal.SIGTERM)
    assert answers == ["finished"]
    assert served.lines == ["opened", "finishing", "closed"]


@pytest.mark.parametrize(("target", "options"), [("web", ()), ("api", ("--url-path-prefix", "/agents"))])
async def test_below_a_path(target: str, options: tuple[str, ...]) -> None:
    """Mounted in FastAPI with its lifespan, and with granian's own prefix: discovery and MCP have the prefix; WebSocket is refused."""
    async with granian(target, "/agents", *options) as served, served.client() as client:
        assert (await served.post({"tool": "greet", "arguments": {"name": "ana"}})).json()["data"] == "hello ana"
        document = (await client.get("/.well-known/agent")).json()
        assert document["execute_url"] == "/agents/agent/execute"
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            },
        }
        answer = await client.post("/mcp", json=hello, headers={"accept": "application/json, text/event-stream"})
        assert (answer.status_code, "serverInfo" in answer.text) == (200, True)
        upgrade = {
            "connection": "upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        assert (await client.get("/agent/ws", headers=upgrade)).status_code in {400, 403}
        assert (await client.get("/health")).status_code == 200
