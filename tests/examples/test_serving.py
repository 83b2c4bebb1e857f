"""The examples as servers: what the workspace says to try really works."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
import trio

from .conftest import EXAMPLES

REPOSITORY = EXAMPLES.parents[1]


@contextlib.asynccontextmanager
async def serving(example: str, cwd: Path, **environment: str) -> AsyncIterator[str]:
    """Serve an example in a process of its own; gives its address, and asks for a clean end."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(EXAMPLES / example), "serve", "--address", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    try:
        assert process.stderr is not None
        said = b""
        while (found := re.search(rb"listening on http://(\S+)\n", said)) is None:
            more = await process.stderr.receive_some()
            assert more, said.decode()
            said += more
        yield found[1].decode()
        process.terminate()
        assert await process.wait() == 0
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def curl(command: str) -> str:
    """Run a command line as people would."""
    done = await trio.run_process(["bash", "-c", command], capture_stdout=True)
    return done.stdout.decode()


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@needs_curl
async def test_the_tour_works(workspace: ModuleType) -> None:
    """Each of the three command lines that the demo prints has the described output."""
    with trio.fail_after(50):
        async with serving("workspace.py", REPOSITORY) as address:
            tour = workspace.TOUR.format(address=address)
            commands = [part.partition("\n")[2] for part in tour.split("# ")[1:]]
            assert len(commands) == 3
            listed, streamed, read = [await curl(command) for command in commands]
    assert [entry["name"] for entry in json.loads(listed)["tools"]] == ["list_files", "read_file", "search_files"]
    kinds = re.findall(r"^event: (.+)$", streamed, re.MULTILINE)
    assert kinds[:2] == ["execution.started", "tool.started"]
    assert "tool.progress" in kinds
    assert kinds[-2:] == ["tool.completed", "execution.completed"]
    assert json.loads(read)["data"]["text"].startswith("# carmy-engine\n")


@needs_curl
async def test_the_owner_shows_a_token(root: Path) -> None:
    """With a token the server lets in no other caller, and its owner may do everything."""
    (root / "file").write_text("abc")
    call = "curl -sS http://{}/agent/execute -H 'Content-Type: application/json' {} -d '{}'"
    token = "-H 'Authorization: Bearer a-long-random-text'"
    run = '{"tool": "run_command", "arguments": {"argv": ["cat", "file"]}}'
    delete = '{"tool": "delete_file", "arguments": {"path": "file"}}'
    with trio.fail_after(50):
        async with serving("workspace.py", root, WORKSPACE_TOKEN="a-long-random-text") as address:
            assert json.loads(await curl(call.format(address, "", run)))["error"]["code"] == "UNAUTHENTICATED"
            assert json.loads(await curl(call.format(address, token, run)))["data"]["stdout"] == "abc"
            assert json.loads(await curl(call.format(address, token, delete)))["status"] == "completed"
    assert not (root / "file").exists()
