"""The clients of `bench.transports`: for each contender, a block that gives a function which asks once and waits."""

# ruff: noqa: PLC0415 - what a contender needs is imported when it is measured

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from bench.carriers import servers
from carmy_engine import App, ExecutionRequest
from carmy_engine.abc import Executor

TEXT = "quiet mouse"
FRAME = b'{"id":1,"op":"call","tool":"echo","arguments":{"text":"quiet mouse"}}'

Ask = Callable[[], Awaitable[object]]
Opens = Callable[[], AbstractAsyncContextManager[Ask]]


def command(kind: str) -> list[str]:
    return [sys.executable, "-m", "bench.carriers.servers", kind]


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
    async with App("bench").add(servers.echo).open() as engine:
        yield through(engine)


class Lines:
    """Sends lines, and counts those that come back: each wakes one who waits."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._waiting: list[trio.Event] = []
        self._writing = trio.Lock()

    async def ask(self, line: bytes) -> None:
        event = trio.Event()
        self._waiting.append(event)
        async with self._writing:
            await self._in.send_all(line)
        await event.wait()

    async def read(self) -> None:
        async for data in self._out:
            for _ in range(bytes(data).count(b"\n")):
                self._waiting.pop(0).set()


@asynccontextmanager
async def raw(kind: str, *, first: bool) -> AsyncIterator[Ask]:
    process = await trio.lowlevel.open_process(command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    lines = Lines(process)
    numbers = itertools.count(1)
    if first:
        await process.stdout.receive_some()  # the first frame

    async def ask() -> None:
        await lines.ask(FRAME.replace(b'"id":1', b'"id":%d' % next(numbers)) + b"\n")

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
