"""A graph as a tool, over HTTP and MCP, and a server that is killed in the middle of a run."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from carmy_engine import ExecutionRequest, OutcomeUnknownError
from carmy_http import open_http
from carmy_mcp import open_mcp

from .conftest import EXAMPLES

PROGRAM = EXAMPLES / "checkout.py"

DYING = """
import os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
import checkout
enter = checkout.enter
def dies(line):
    enter(line)
    if line.startswith("charge"):
        os.kill(os.getpid(), signal.SIGKILL)
checkout.enter = dies
checkout.app.run()
"""
"""The example as a program that is killed when the card has been charged."""

WHOLE = {"number": "1001", "reserved": "reserve 1001", "charged": "charge 1001", "parcel": "ship 1001"}
LINES = ["reserve 1001", "charge 1001", "ship 1001"]


@contextlib.asynccontextmanager
async def serving(directory: Path, *command: str) -> AsyncIterator[str]:
    """Serve in a process of its own; gives the URL."""
    process = await trio.lowlevel.open_process(
        [sys.executable, *command, "serve", "--address", "127.0.0.1:0"], stderr=subprocess.PIPE, cwd=directory
    )
    try:
        assert process.stderr is not None
        said = b""
        while (found := re.search(rb"listening on (http://\S+)\n", said)) is None:
            more = await process.stderr.receive_some()
            assert more, said.decode()
            said += more
        yield found[1].decode()
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


def lines(directory: Path) -> list[str]:
    return (directory / "ledger.txt").read_text().splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_over_http_with_a_server_that_is_killed(tmp_path: Path) -> None:
    """The first server dies after the charge; the second one continues the run for the same request, and charges no second time."""
    request = ExecutionRequest(tool="checkout", arguments={"number": "1001"}, request_id="order-1001")
    with trio.fail_after(50):
        async with serving(tmp_path, "-c", DYING, str(EXAMPLES)) as url, open_http(url) as shop:
            with pytest.raises(OutcomeUnknownError):
                await shop.execute(request)
        assert lines(tmp_path) == LINES[:2]
        async with serving(tmp_path, str(PROGRAM)) as url, open_http(url) as shop:
            result = await shop.execute(request)
            again = await shop.execute(request)
    assert (result.unwrap(), again.unwrap(), again.replayed) == (WHOLE, WHOLE, True)
    assert lines(tmp_path) == LINES


async def test_over_mcp(tmp_path: Path) -> None:
    """A client of MCP finds the graph as a tool with the schema of its state, and gets the last state."""
    command = [
        sys.executable,
        "-c",
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); sys.argv = ['checkout.py', 'mcp']",
    ]
    command[-1] += f"; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    with trio.fail_after(50):
        async with open_mcp(command) as server:
            (spec,) = [spec for spec in (await server.catalog()).tools if spec.name == "checkout"]
            result = await server.execute(ExecutionRequest(tool="checkout", arguments={"number": "1001"}))
    assert spec.description == "Check an order out."
    assert spec.input_schema["required"] == ["number"]
    assert result.unwrap() == WHOLE
    assert lines(tmp_path) == LINES
