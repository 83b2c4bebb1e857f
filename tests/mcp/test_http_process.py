"""MCP over HTTP as a process: the command, its end, and what starting ``carmy serve`` costs those who do not use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from carmy_mcp.server.http import HttpApplication
from tests.mcp.conftest import COMMAND
from tests.mcp.http import Caller, calling, echo, messages
from tests.stdio.conftest import Peer, appears, is_there, peer
from tests.support.http import Client, serving

_LISTENING = re.compile(rb"mcp listening on http://127\.0\.0\.1:(\d+)/mcp\n")

SCRIPT = """
import sys
for name in ("mcp", "mcp_types", "anyio", "starlette", "sse_starlette", "httpx2"):
    sys.modules[name] = None
import trio, carmy_http
from carmy_engine import App, Settings
from tests.mcp.http import calling, echo
from tests.support.http import Running

async def main():
    app = App("test", settings=Settings(address="127.0.0.1:0"))
    app.add(echo)
    async with app.open() as engine, trio.open_nursery() as nursery:
        line = await nursery.start(carmy_http.serve, engine)
        server = Running(engine, int(line.rpartition(":")[2]), line, nursery.cancel_scope, trio.Event())
        assert (await server.get("/.well-known/agent")).json["mcp_url"] == "/mcp"
        async with calling(server) as caller:
            print((await caller.call("echo", text="hi"))["structuredContent"]["result"])
        nursery.cancel_scope.cancel()

trio.run(main)
"""


@asynccontextmanager
async def serving_process(target: Path, *options: str, **env: str) -> AsyncIterator[tuple[Peer, int]]:
    """``carmy mcp --http``, and its port."""
    command = [*COMMAND, str(target), "--http", "--address", "127.0.0.1:0", *options]
    async with peer(command=command, env=os.environ | env) as found:
        with trio.fail_after(40):
            while (match := _LISTENING.search(found.said)) is None:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.01)
        yield found, int(match[1])


@asynccontextmanager
async def caller_of(port: int) -> AsyncIterator[Caller]:
    """A client in a session."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        caller = Caller(Client(stream), "2025-11-25")
        await caller.hello()
        yield caller


@pytest.mark.parametrize("server", ["hypercorn", "native"])
async def test_the_command(noisy: Path, tmp_path: Path, server: str) -> None:
    """It serves MCP and health alone, reports the address, and at SIGTERM lets what runs be answered and exits with 0."""
    marker = tmp_path / "held"
    async with serving_process(noisy, "--server", server, CARMY_DRAIN_TIMEOUT_SECS="0.2") as (process, port):
        async with caller_of(port) as caller:
            assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}
            for path, status in (("/health", 200), ("/ready", 200), ("/.well-known/agent", 404), ("/agent/tools", 404)):
                await caller.client.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                assert (await caller.client.answer()).status == status
            await caller.send("tools/call", name="hold", arguments={"marker": str(marker)})
            await appears(marker)
            process.process.send_signal(signal.SIGTERM)
            (told,) = messages(await caller.client.answer())
            assert told["result"]["_meta"]["carmy/error"]["code"] == "SHUTTING_DOWN"
        assert await process.exit_code() == 0
        assert not is_there(marker)


async def test_a_client_that_never_reads_cannot_hold_the_process(noisy: Path) -> None:
    """With an open stream and an unread answer the process still ends by itself after SIGTERM, with 0."""
    async with (
        serving_process(noisy, CARMY_DRAIN_TIMEOUT_SECS="0.2") as (process, port),
        caller_of(port) as caller,
        caller_of(port) as deaf,
    ):
        headers = f"host: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {caller.session}\r\n"
        await caller.client.send(f"GET /mcp HTTP/1.1\r\n{headers}\r\n".encode())
        assert (await caller.client.head())[0] == 200
        await deaf.send("tools/call", name="echo", arguments={"text": "x" * 900_000})
        process.process.send_signal(signal.SIGTERM)
        assert await process.exit_code() == 0


def test_no_sdk_is_needed() -> None:
    """``carmy serve`` serves MCP where the official SDK and its libraries cannot be imported."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["hi"], done.stderr


async def test_a_fault_of_what_is_mounted(caplog: pytest.LogCaptureFixture) -> None:
    """It costs one answer, without its text, and not the connection, let alone the server."""

    def broken(*_: Any) -> None:
        raise RuntimeError("hunter2")

    async with serving(echo) as server, calling(server) as caller:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HttpApplication, "_post_in_session", broken)
            await caller.send("tools/list")
            answer = await caller.client.answer()
        assert (answer.status, answer.code) == (500, "INTERNAL_ERROR")
        assert "hunter2" not in json.dumps(answer.json)
        assert "hunter2" in caplog.text
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


async def test_a_failure_of_the_housekeeping(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A task that ends idle sessions and fails is logged, and costs neither a session nor the server."""

    async def broken(_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(HttpApplication, "_end_idle", broken)
    async with serving(echo) as server, calling(server) as caller:
        assert "a background task of MCP failed" in caplog.text
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}
