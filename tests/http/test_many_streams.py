"""What many silent streams cost."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from tests.cli.served import CARMY, connected, served
from tests.support.http import JSON, Client, render

STREAMS = 1000
MAX_STREAM_KIB = {"native": 16, "hypercorn": 30}

PROGRAM = f"""\
import trio
from carmy_engine import App, Settings

app = App("silent", settings=Settings(max_executions={2 * STREAMS}, timeout_secs=600))

@app.tool(effect="read", parallel_safe=True)
async def keep_silent() -> None:
    '''Say nothing.'''
    await trio.sleep_forever()
"""


def memory_of(pid: int) -> int:
    """The memory that a process has, in KiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


async def follow(client: Client) -> None:
    """Start a call and follow it until its tool runs."""
    headers = {"content-type": JSON, "accept": "text/event-stream"}
    await client.send(render("POST", "/agent/execute", headers, b'{"tool":"keep_silent"}'))
    await client.head()
    while b"tool.started" not in await client.chunk():
        pass


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_silent_streams_are_cheap(server: str, tmp_path: Path) -> None:
    """A thousand streams of calls that say nothing cost the server at most 16 KiB each on the native front end."""
    program = tmp_path / "silent.py"
    program.write_text(PROGRAM)
    with trio.fail_after(150):
        async with (
            served(*CARMY, "serve", str(program), "--server", server, "--address", "127.0.0.1:0") as process,
            AsyncExitStack() as stack,
        ):
            port = await process.port()
            await follow(await stack.enter_async_context(connected(port)))
            before = memory_of(process.process.pid)
            for _ in range(STREAMS):
                await follow(await stack.enter_async_context(connected(port)))
            each = (memory_of(process.process.pid) - before) / STREAMS
    print(f"{server}: {each:.1f} KiB for each silent stream")
    assert each <= MAX_STREAM_KIB[server]
