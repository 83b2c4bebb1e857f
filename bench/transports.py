"""What our transports cost beside the bare carriers, and beside the MCP SDK over stdio where it is installed.

An echo tool behind each transport, its server in a process of its own. Measured in turns, for some rounds: one call after the
other (latency), and 32 at a time (calls per second). The bare carriers move messages of the size of ours and do nothing with
them: pipes under trio's own streams, with lines; and an echo server on trio-websocket. Cold start is the time from starting the
process to its first frame, or for the SDK to the answer to ``initialize``.

The client's side counts as well. ``stdio`` is our client; ``stdio, raw`` writes frames that were made beforehand and looks for
the ends of lines only, as the bare carriers do.

Run with ``python -m bench.transports [--rounds N] [--calls N]``.
"""

# ruff: noqa: PLC0415 - each process imports what it runs and nothing else, which counts for the cold start

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from carmy_engine import App, ExecutionRequest, Settings, tool
from carmy_engine.abc import Executor

IN_FLIGHT = 32
TEXT = "quiet mouse"
FRAME = b'{"id":1,"op":"call","tool":"echo","arguments":{"text":"quiet mouse"}}'
ANSWER = (
    b'{"id":1,"ok":true,"result":{"execution_id":"exec_00000000-0000-4000-8000-000000000000","status":"completed",'
    b'"data":"quiet mouse","_agent":{"cacheable":true,"next_actions":[]},"replayed":false,"duration_ms":0.050}}'
)

Ask = Callable[[], Awaitable[object]]
Opens = Callable[[], AbstractAsyncContextManager[Ask]]


@tool(effect="none", idempotent=True, parallel_safe=True, register=False)
async def echo(text: str) -> str:
    """Say it again."""
    return text


# The servers, each in a process of its own.


async def serve_ours(kind: str) -> None:
    if kind == "stdio":
        from carmy_stdio import serve as serve_stdio

        serve_stdio.prepare()
        async with App("bench").add(echo).open() as engine:
            await serve_stdio(engine)
        return
    serve: Any
    if kind == "http":
        from carmy_http import serve
    else:
        from carmy_websocket import serve
    app = App("bench", settings=Settings(address="127.0.0.1:0")).add(echo)
    async with app.open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(serve, engine)
        print(line.rpartition(" ")[2], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def serve_pipe() -> None:
    """Answer each line with a line."""
    buffer = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as source, trio.lowlevel.FdStream(os.dup(1)) as sink:
        async for data in source:
            *lines, buffer = (buffer + data).split(b"\n")
            for _ in lines:
                await sink.send_all(ANSWER + b"\n")


async def serve_bare_websocket() -> None:
    from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

    async def answer(request: WebSocketRequest) -> None:
        connection = await request.accept()
        try:
            while True:
                await connection.get_message()
                await connection.send_message(ANSWER.decode())
        except ConnectionClosed:
            pass

    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, answer, "127.0.0.1", 0, None)
        print(f"ws://127.0.0.1:{server.port}", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


def serve_mcp() -> None:
    from mcp.server import MCPServer

    server = MCPServer("bench")

    async def again(text: str) -> str:
        """Say it again."""
        return text

    server.add_tool(again, name="echo")
    server.run("stdio")


# The clients.


def command(kind: str) -> list[str]:
    return [sys.executable, "-m", "bench.transports", "--serve", kind]


@asynccontextmanager
async def listening(kind: str) -> AsyncIterator[str]:
    """The address of a server that listens."""
    process = await trio.lowlevel.open_process(command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield (await process.stdout.receive_some()).decode().strip()
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.wait()
            await process.stdout.aclose()


def through(executor: Executor) -> Ask:
    async def ask() -> None:
        result = await executor.execute(ExecutionRequest(tool="echo", arguments={"text": TEXT}))
        assert result.data == TEXT

    return ask


@asynccontextmanager
async def stdio() -> AsyncIterator[Ask]:
    from carmy_stdio import open_stdio

    async with open_stdio(command("stdio")) as client:
        yield through(client)


@asynccontextmanager
async def websocket() -> AsyncIterator[Ask]:
    from carmy_websocket import open_websocket

    async with listening("websocket") as url, open_websocket(url) as client:
        yield through(client)


@asynccontextmanager
async def http() -> AsyncIterator[Ask]:
    from carmy_http import open_http

    async with listening("http") as url, open_http(url) as client:
        yield through(client)


@asynccontextmanager
async def gateway() -> AsyncIterator[Ask]:
    from carmy_stdio import open_stdio

    async with App("near").mount(open_stdio(command("stdio"))).open() as engine:
        yield through(engine)


@asynccontextmanager
async def in_process() -> AsyncIterator[Ask]:
    async with App("bench").add(echo).open() as engine:
        yield through(engine)


class Lines:
    """Sends one and the same line, and counts the lines that come back: each wakes one who waits."""

    def __init__(self, process: trio.Process, line: bytes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out, self._line = process.stdin, process.stdout, line
        self._waiting: list[trio.Event] = []
        self._writing = trio.Lock()

    async def ask(self) -> None:
        event = trio.Event()
        self._waiting.append(event)
        async with self._writing:
            await self._in.send_all(self._line)
        await event.wait()

    async def read(self) -> None:
        async for data in self._out:
            for _ in range(bytes(data).count(b"\n")):
                self._waiting.pop(0).set()


@asynccontextmanager
async def raw(kind: str, first: bool) -> AsyncIterator[Ask]:
    process = await trio.lowlevel.open_process(command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    # One id for all in flight would be refused.
    lines = Lines(process, FRAME + b"\n")
    if first:
        counter = iter(range(1, 1 << 60))

        async def ask() -> None:
            lines._line = FRAME.replace(b'"id":1', b'"id":%d' % next(counter)) + b"\n"
            await lines.ask()

        await process.stdout.receive_some()  # the first frame
    else:
        ask = lines.ask  # type: ignore[assignment]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lines.read)
        yield ask
        nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await process.stdin.aclose()
        await process.wait()
        await process.stdout.aclose()


def pipe() -> AbstractAsyncContextManager[Ask]:
    return raw("pipe", first=False)


def raw_stdio() -> AbstractAsyncContextManager[Ask]:
    return raw("stdio", first=True)


@asynccontextmanager
async def bare_websocket() -> AsyncIterator[Ask]:
    from trio_websocket import open_websocket_url

    waiting: list[trio.Event] = []
    async with (
        listening("bare_websocket") as url,
        open_websocket_url(url) as connection,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            while True:
                await connection.get_message()
                waiting.pop(0).set()

        async def ask() -> None:
            event = trio.Event()
            waiting.append(event)
            await connection.send_message(FRAME.decode())
            await event.wait()

        nursery.start_soon(read)
        yield ask
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def mcp() -> AsyncIterator[Ask]:
    from mcp import Client, StdioServerParameters, stdio_client

    program, *arguments = command("mcp")
    async with Client(stdio_client(StdioServerParameters(command=program, args=arguments))) as client:

        async def ask() -> None:
            result: Any = await client.call_tool("echo", {"text": TEXT})
            assert result.content[0].text == TEXT

        yield ask


CONTENDERS: dict[str, Opens] = {
    "in process": in_process,
    "bare pipe": pipe,
    "stdio, raw": raw_stdio,
    "stdio": stdio,
    "gateway to stdio": gateway,
    "bare websocket": bare_websocket,
    "websocket": websocket,
    "http": http,
}
if importlib.util.find_spec("mcp") is not None:
    CONTENDERS["mcp sdk, stdio"] = mcp


# The measurements.


async def latencies(ask: Ask, calls: int) -> list[float]:
    """Microseconds of each call, one after the other."""
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        await ask()
        found.append((time.perf_counter() - began) * 1e6)
    return found


async def throughput(ask: Ask, calls: int) -> float:
    """Calls per second, with `IN_FLIGHT` at a time."""
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await ask()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT):
            nursery.start_soon(caller)
    return calls / (time.perf_counter() - began)


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
)


def cold_start(kind: str) -> float:
    """Seconds from starting a process to its first line."""
    began = time.perf_counter()
    with subprocess.Popen(
        command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if kind == "mcp":
            process.stdin.write(INITIALIZE)
            process.stdin.flush()
        assert process.stdout.readline()
        took = time.perf_counter() - began
        process.kill()
    return took


async def measure(rounds: int, calls: int) -> None:
    latency: dict[str, list[float]] = defaultdict(list)
    rate: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, opens in CONTENDERS.items():
            some = max(50, calls // 10) if name.startswith("mcp") else calls
            async with opens() as ask:
                await latencies(ask, some // 10)
                latency[name].append(statistics.median(await latencies(ask, some)))
                rate[name].append(await throughput(ask, some))
    print(f"{'':18}{'latency, µs':>14}{f'calls/s, {IN_FLIGHT} at once':>24}")
    for name in CONTENDERS:
        print(f"{name:18}{statistics.median(latency[name]):14,.0f}{statistics.median(rate[name]):24,.0f}")

    def ratio(found: dict[str, list[float]], one: str, other: str) -> str:
        each = [a / b for a, b in zip(found[one], found[other], strict=True)]
        return f"{statistics.median(each):6.2f}  ({min(each):.2f} to {max(each):.2f})"

    print("\nratios, of each round")
    print(f"  latency, stdio / bare pipe:            {ratio(latency, 'stdio', 'bare pipe')}")
    print(f"  latency, stdio raw / bare pipe:        {ratio(latency, 'stdio, raw', 'bare pipe')}")
    print(f"  throughput, websocket / bare:          {ratio(rate, 'websocket', 'bare websocket')}")
    if "mcp sdk, stdio" in CONTENDERS:
        print(f"  throughput, stdio / mcp sdk:           {ratio(rate, 'stdio', 'mcp sdk, stdio')}")
        print(f"  throughput, stdio raw / mcp sdk:       {ratio(rate, 'stdio, raw', 'mcp sdk, stdio')}")
    starts = {kind: statistics.median(cold_start(kind) for _ in range(rounds)) for kind in _cold_kinds()}
    print("\ncold start: " + ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in starts.items()))
    if "mcp" in starts:
        print(f"  stdio / mcp sdk:                       {starts['stdio'] / starts['mcp']:6.2f}")


def _cold_kinds() -> list[str]:
    return ["stdio", "websocket", "http", *(["mcp"] if "mcp sdk, stdio" in CONTENDERS else [])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.serve is None:
        trio.run(measure, arguments.rounds, arguments.calls)
    elif arguments.serve == "mcp":
        serve_mcp()
    elif arguments.serve == "pipe":
        trio.run(serve_pipe)
    elif arguments.serve == "bare_websocket":
        trio.run(serve_bare_websocket)
    else:
        trio.run(serve_ours, arguments.serve)


if __name__ == "__main__":
    main()
