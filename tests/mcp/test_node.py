"""The clients for Node, where Node is installed and ``make node`` has installed them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.mcp.conftest import COMMAND
from tests.stdio.conftest import peer

FOLDER = Path(__file__).parent / "node"

NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no Node here"),
    pytest.mark.skipif(not (FOLDER / "node_modules").exists(), reason="the clients are not installed: make node"),
]


async def run(script: str, *arguments: str, **env: str) -> dict[str, Any]:
    """What a script tells."""
    assert NODE is not None
    command = [NODE, str(FOLDER / script), *arguments]
    with trio.fail_after(50):
        done = await trio.run_process(command, capture_stdout=True, env=os.environ | env)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@asynccontextmanager
async def served(wire: str, target: Path) -> AsyncIterator[list[str]]:
    """What a script has to be told to reach an application over stdio or HTTP."""
    if wire == "stdio":
        yield [*COMMAND, str(target)]
        return
    command = [*COMMAND, str(target), "--http", "--address", "127.0.0.1:0"]
    async with peer(command=command, listen=False) as server:
        assert server.process.stderr is not None
        said = b""
        with trio.fail_after(20):
            while b"listening on" not in said or not said.endswith(b"\n"):
                said += bytes(await server.process.stderr.receive_some())
        yield [said.decode().rpartition("listening on ")[2].strip()]


@pytest.mark.parametrize("wire", ["stdio", "http"])
@pytest.mark.parametrize("client", [["v1.mjs"], ["v2.mjs", "legacy"], ["v2.mjs", "2026-07-28"]])
async def test_the_typescript_client(noisy: Path, wire: str, client: list[str]) -> None:
    """It lists, calls, and asks its person; it accepts what it gets against the schemas that it was given."""
    script, *options = client
    async with served(wire, noisy) as target:
        told = await run(script, *options, *target)
    assert {"pair", "destroy"} <= set(told["tools"])
    assert told["found"]["structuredContent"] == {"a": 1, "b": 2}
    assert told["wrapped"]["structuredContent"] == {"result": 7}
    assert told["refused"]["_meta"]["carmy/error"]["code"] == "INVALID_ARGUMENTS"
    assert told["destroyed"]["structuredContent"] == {"result": "x"}
    (question,) = told["questions"]
    assert "destroy" in question
    assert '{"name":"x"}' in question


async def test_the_typescript_client_of_tasks(noisy: Path, tmp_path: Path) -> None:
    """It gets the result of a call whether or not that has become a task, and cancels one that has."""
    marker = tmp_path / "held"
    told = await run("tasks.mjs", str(marker), *COMMAND, str(noisy), CARMY_MCP_PROMOTE_AFTER_SECS="0.01")
    assert told["result"]["structuredContent"] == {"result": 7}
    assert told["cancelled"]["status"] == "cancelled"
    assert "working" in told["seen"]
    assert not await trio.Path(marker).exists()
