"""The client of MCP, cancelled after every few steps of opening, calling and leaving."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_mcp import open_mcp
from tests.cancellation.test_every_await import cancelled_after
from tests.mcp import far
from tests.mcp.test_client import request
from tests.mcp.test_client_http import far_server, result


def children() -> set[str]:
    """The processes that this one has started."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.mark.timeout(180)
async def test_a_command(tmp_path: Path) -> None:
    """Whenever it is cancelled, no process is left, and the cancel is all that comes out."""
    before = children()
    steps, fired = 0, True
    while fired:
        with trio.fail_after(20):
            async with cancelled_after(steps) as canceller, open_mcp(far.scripted(tmp_path)) as client:
                assert (await client.execute(request("count"))).data == "counted"
                async with client.stream(request("count")) as events:
                    assert [event.kind async for event in events][-1] == "execution.completed"
            fired = canceller.fired
        assert children() <= before
        steps += 1
    assert steps > 50


@pytest.mark.timeout(180)
async def test_a_url() -> None:
    """Whenever it is cancelled, the cancel is all that comes out, and the server can be called again."""
    answer: dict[str, Any] = {"content": [{"type": "text", "text": "x"}]}

    async def counted(exchange: Any, message: dict[str, Any]) -> None:
        await result(exchange, message, answer)

    steps, fired = 0, True
    async with far_server(counted) as url:
        while fired:
            with trio.fail_after(20):
                async with cancelled_after(steps) as canceller, open_mcp(url) as client:
                    assert (await client.execute(request("far"))).data == "x"
                    async with client.stream(request("far")) as events:
                        assert [event.kind async for event in events][-1] == "execution.completed"
                fired = canceller.fired
            steps += 2
    assert steps > 50
