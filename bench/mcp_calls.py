"""``tools/call`` over standard input and output: this engine, and the official SDK's own high-level server.

Both serve the same tool to the same raw client, one call after the other, and sixteen at a time.
"""

from __future__ import annotations

import statistics
import sys
import time
from subprocess import PIPE

import msgspec
import trio

ROUNDS = 5
CALLS = 1000

OURS = """
from carmy_engine import App
app = App("bench")
@app.tool(effect="none", parallel_safe=True)
async def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}
app.run(["mcp"])
"""
THEIRS = """
import trio
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench", log_level="ERROR")
@server.tool()
async def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}
trio.run(server.run_stdio_async)
"""
HELLO = [
    {
        "jsonrpc": "2.0",
        "id": "hello",
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


class _Client:
    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._buffer = b""

    async def send(self, *messages: object) -> None:
        await self._in.send_all(b"".join(msgspec.json.encode(message) + b"\n" for message in messages))

    async def lines(self, count: int) -> None:
        while self._buffer.count(b"\n") < count:
            self._buffer += bytes(await self._out.receive_some(65536))
        assert b'"error"' not in self._buffer
        self._buffer = self._buffer.split(b"\n", count)[count]


async def _measure(script: str, batch: int) -> float:
    """Microseconds of a call."""
    process = await trio.lowlevel.open_process([sys.executable, "-c", script], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    client = _Client(process)
    await client.send(*HELLO)
    await client.lines(1)
    number = 0
    started = 0.0
    for calls in (CALLS // 10, CALLS):  # the first ones warm it up
        started = time.perf_counter()
        for _ in range(calls // batch):
            calls_now = []
            for _ in range(batch):
                number += 1
                params = {"name": "add", "arguments": {"a": number, "b": 2}}
                calls_now.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
            await client.send(*calls_now)
            await client.lines(batch)
    took = time.perf_counter() - started
    process.kill()
    await process.wait()
    return took / (CALLS // batch * batch) * 1e6


async def main() -> None:
    for batch in (1, 16):
        found = [(await _measure(OURS, batch), await _measure(THEIRS, batch)) for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(times) for times in zip(*found, strict=True))
        ratio = statistics.median(theirs / ours for ours, theirs in found)
        print(f"{batch:2} at a time: {ours:6.0f} µs, the SDK's own {theirs:6.0f} µs: {ratio:.2f} times as fast")


if __name__ == "__main__":
    trio.run(main)
