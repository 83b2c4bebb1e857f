"""``tools/call`` over standard input and output: this engine, and the official SDK's own high-level server.

Both serve the same tool to the same raw client, one call after the other, and sixteen at a time. Then the processor time of
the same calls, beside that of servers that run no tool: the SDK's low-level one with a constant answer, over its own streams and
over our connection. What they take nobody who stands on the SDK can save.
"""

from __future__ import annotations

import statistics
import sys
import time
from subprocess import PIPE
from typing import NamedTuple

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
CONSTANT = """
from mcp.server.lowlevel.server import Server
answer = {"content": [{"type": "text", "text": '{"sum":3}'}], "structuredContent": {"sum": 3}, "isError": False}
async def call(context, params):
    return answer | {"resultType": "complete"}
server = Server("bench", on_call_tool=call)
"""
LOW_LEVEL = f"""
import trio
from mcp.server.stdio import stdio_server
{CONSTANT}
async def main():
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())
trio.run(main)
"""
OUR_CONNECTION = f"""
import trio
from carmy_stdio import claim
from carmy_stdio._channel import LineChannel
from carmy_stdio._pipe_io import ThreadReader, ThreadWriter
from carmy_mcp.server.connection import serve_connection
{CONSTANT}
server.middleware.clear()  # as ours, which has one of its own in the place of the SDK's
async def main():
    found = claim()
    reader, writer = ThreadReader(found.input), ThreadWriter(found.output, found.turns)
    channel = LineChannel(reader.receive_some, writer.send_all, 1 << 22)
    await serve_connection(server, channel, stopped=trio.Event())
trio.run(main)
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


class _Cost(NamedTuple):
    """Of a call, in microseconds: how long it takes, and what its server's processor does for it."""

    took: float
    worked: float


def _worked(pid: int) -> float:
    """Seconds of the processor that a process has used: the clock that Linux has for each."""
    return time.clock_gettime((~pid << 3) | 2)


async def _measure(script: str, batch: int) -> _Cost:
    process = await trio.lowlevel.open_process([sys.executable, "-c", script], stdin=PIPE, stdout=PIPE, stderr=PIPE)
    client = _Client(process)
    await client.send(*HELLO)
    await client.lines(1)
    number = 0
    started = worked = 0.0
    for calls in (CALLS // 10, CALLS):  # the first ones warm it up
        started, worked = time.perf_counter(), _worked(process.pid)
        for _ in range(calls // batch):
            calls_now = []
            for _ in range(batch):
                number += 1
                params = {"name": "add", "arguments": {"a": number, "b": 2}}
                calls_now.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
            await client.send(*calls_now)
            await client.lines(batch)
    took, worked = time.perf_counter() - started, _worked(process.pid) - worked
    process.kill()
    await process.wait()
    calls = CALLS // batch * batch
    return _Cost(took / calls * 1e6, worked / calls * 1e6)


async def main() -> None:
    for batch in (1, 16):
        scripts = (OURS, THEIRS, LOW_LEVEL, OUR_CONNECTION)
        rounds = [[await _measure(script, batch) for script in scripts] for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(found[place].took for found in rounds) for place in (0, 1))
        ratio = statistics.median(found[1].took / found[0].took for found in rounds)
        print(f"{batch:2} at a time: {ours:6.0f} µs, the SDK's own {theirs:6.0f} µs: {ratio:.2f} times as fast")
        whole, high, low, bare = (statistics.median(found[place].worked for found in rounds) for place in range(4))
        share = statistics.median(found[3].worked / found[0].worked for found in rounds)
        print(f"   processor: {whole:6.0f} µs, the SDK's own {high:6.0f} µs")
        print(f"   a constant answer: {low:6.0f} µs over its streams, {bare:6.0f} µs over ours: {share:.0%} of ours")


if __name__ == "__main__":
    trio.run(main)
