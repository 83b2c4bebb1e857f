"""One entry for each way to reach an engine; the executor suite runs on all of them.

To add a transport, write a maker and enter it below. What costs a process to open is shared by all checks of a run.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

import carmy_websocket
from carmy_engine import App, Engine, Settings, aio, blocking, open_engine
from carmy_engine.abc import Executor
from carmy_engine.testing import SCRIPTED_TOOLS, MakeExecutor, Stage, compile_scripted
from carmy_engine.testing.tools import MAX_WAITING
from carmy_http import open_http
from carmy_mcp import open_mcp, serve_http
from carmy_stdio import open_stdio
from carmy_websocket import open_websocket
from tests.support import asgi_servers, hosted
from tests.support import http_client as http_support
from tests.support import websocket as websocket_support
from tests.wire.pair import connected

SCRIPTED = """\
from carmy_engine import App
from carmy_engine.testing import SCRIPTED_TOOLS, Stage

app = App("scripted").add(*SCRIPTED_TOOLS).state(Stage())
"""


@asynccontextmanager
async def in_process() -> AsyncIterator[Executor]:
    """The engine itself."""
    async with open_engine(compile_scripted(Stage())) as engine:
        yield engine


@asynccontextmanager
async def bound() -> AsyncIterator[Executor]:
    """A bound view of it."""
    async with open_engine(compile_scripted(Stage())) as engine:
        yield engine.bind(principal="ana", session="s1")


@asynccontextmanager
async def frames() -> AsyncIterator[Executor]:
    """The client of the frame protocol, over a channel in memory."""
    async with connected() as (client, _):
        yield client


@asynccontextmanager
async def http(front_end: str) -> AsyncIterator[Executor]:
    """The client of an HTTP server on one of the front ends."""
    async with http_support.serving(http={"server": front_end}) as server, open_http(server.url) as client:
        yield client


@asynccontextmanager
async def asgi(serve: Callable[[Any], AbstractContextManager[asgi_servers.Served]]) -> AsyncIterator[Executor]:
    """The client of an ASGI server of somebody else that runs the application."""
    app = App("scripted").add(*SCRIPTED_TOOLS).state(Stage())
    with serve(app.asgi()) as served:
        async with open_http(served.url) as client:
            yield client


@asynccontextmanager
async def websocket() -> AsyncIterator[Executor]:
    """The client of a WebSocket server."""
    async with websocket_support.serving() as server, open_websocket(server.url) as client:
        yield client


@asynccontextmanager
async def stdio() -> AsyncIterator[Executor]:
    """The client of a child process."""
    async with open_stdio(command(SCRIPTED)) as client:
        yield client


@asynccontextmanager
async def mcp() -> AsyncIterator[Executor]:
    """The client of a child process that speaks MCP."""
    directories = os.pathsep.join(path for path in sys.path if path)
    async with open_mcp(command(SCRIPTED, "mcp"), env={"PYTHONPATH": directories}, trusted=True) as client:
        yield client


@asynccontextmanager
async def mcp_http() -> AsyncIterator[Executor]:
    """The client of an MCP server over HTTP."""
    app = App("scripted", settings=Settings(address="127.0.0.1:0")).add(*SCRIPTED_TOOLS).state(Stage())
    async with app.open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(serve_http, engine))
        async with open_mcp(line.rpartition(" ")[2], trusted=True) as client:
            yield client
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def gateway() -> AsyncIterator[Executor]:
    """An engine whose tools are all those of another one."""
    async with App("scripted").add(*SCRIPTED_TOOLS).state(Stage()).open() as engine, gateway_to(engine) as found:
        yield found


@asynccontextmanager
async def gateway_stdio() -> AsyncIterator[Executor]:
    """A gateway to a child process."""
    async with gateway_to(open_stdio(command(SCRIPTED))) as found:
        yield found


@asynccontextmanager
async def gateway_mcp() -> AsyncIterator[Executor]:
    """A gateway to a child process that speaks MCP."""
    async with gateway_to(mcp()) as found:
        yield found


@asynccontextmanager
async def two_hops() -> AsyncIterator[Executor]:
    """The client of a WebSocket server, whose engine is a gateway to another WebSocket server."""
    async with (
        websocket_support.serving() as server,
        gateway_to(open_websocket(server.url)) as engine,
        trio.open_nursery() as nursery,
    ):
        line: str = await nursery.start(_serve, engine)
        async with open_websocket(line.rpartition(" ")[2]) as client:
            yield client
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def through_aio() -> AsyncIterator[Executor]:
    """The engine, as an asyncio program uses it."""
    app = App("scripted").add(*SCRIPTED_TOOLS).state(Stage())
    async with hosted.through_aio(aio.open_app(app)) as executor:
        yield executor


@asynccontextmanager
async def through_aio_http() -> AsyncIterator[Executor]:
    """The client of an HTTP server, as an asyncio program uses it."""
    async with http_support.serving() as server, hosted.through_aio(aio.open_http(server.url)) as executor:
        yield executor


@asynccontextmanager
async def through_blocking() -> AsyncIterator[Executor]:
    """The engine, as a program without a loop uses it."""
    app = App("scripted").add(*SCRIPTED_TOOLS).state(Stage())
    opened = await trio.to_thread.run_sync(blocking.open_app, app)
    try:
        async with hosted.through_blocking(opened) as executor:
            yield executor
    finally:
        await trio.to_thread.run_sync(opened.close)


@asynccontextmanager
async def gateway_to(far: object) -> AsyncIterator[Engine]:
    """An engine that has all tools of another executor, under their own names."""
    app = App("gateway", settings=Settings(address="127.0.0.1:0"))
    async with app.mount(far, max_waiting=MAX_WAITING).open() as engine:  # type: ignore[arg-type]
        yield engine


async def _serve(engine: Engine, *, task_status: trio.TaskStatus[str]) -> None:
    await carmy_websocket.serve(engine, task_status=task_status)


def command(program: str, transport: str = "stdio") -> list[str]:
    """The command that serves a program to the process that starts it."""
    directory = tempfile.mkdtemp(prefix="carmy-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = Path(directory, "scripted.py")
    path.write_text(program)
    return [sys.executable, "-c", "from carmy_engine.cli import main; main()", transport, str(path)]


class Transport(NamedTuple):
    """A way to reach an engine.

    Attributes:
        make: Opens it.
        shared: One is opened for all checks of a run, because it costs a process.
        departs: Why a requirement is not met, by its identifier. The check is run all the same, and has to fail.
    """

    make: MakeExecutor
    shared: bool = False
    departs: Mapping[str, str] = {}


_GATEWAY = {
    "E-317": "a gateway keeps the timeout that it was told, so that it can replay it even when the far side has forgotten; that"
    " a thread runs on there is no part of the answer",
}

_NO_PARTS = "the protocol has no messages for parts of a result"
_NO_WAITING = "the protocol does not say that a call waits for its turn, which this check has to know"
_LATE_ID = "the execution's id comes with the answer; the events before it have one of the client's"

_NO_BEGIN = "the protocol does not say that a tool has begun: it is told with the first report, or with the answer"

_MCP = {
    "E-401": _LATE_ID,
    "E-406": _NO_PARTS,
    "E-407": _NO_PARTS,
    "E-408": _NO_WAITING,
    "E-409": _NO_BEGIN,
    "E-412": _LATE_ID,
    "E-414": _NO_PARTS,
    "E-605": _NO_WAITING,
    "E-703": _NO_WAITING,
    "E-704": _NO_WAITING,
}

_GATEWAY_MCP = {
    **_GATEWAY,
    "E-406": _NO_PARTS,
    "E-407": _NO_PARTS,
    "E-409": _NO_BEGIN,
    "E-414": _NO_PARTS,
}

TRANSPORTS: dict[str, Transport] = {
    "in_process": Transport(in_process),
    "bound": Transport(bound),
    "frames": Transport(frames),
    "http": Transport(partial(http, "hypercorn")),
    "http_native": Transport(partial(http, "native")),
    **{f"asgi_{name}": Transport(partial(asgi, serve), shared=True) for name, serve in asgi_servers.SERVERS.items()},
    "websocket": Transport(websocket),
    "stdio": Transport(stdio, shared=True),
    "mcp": Transport(mcp, shared=True, departs=_MCP),
    "mcp_http": Transport(mcp_http, departs=_MCP),
    "aio": Transport(through_aio),
    "aio_http": Transport(through_aio_http),
    "blocking": Transport(through_blocking),
    "gateway": Transport(gateway, departs=_GATEWAY),
    "gateway_stdio": Transport(gateway_stdio, shared=True, departs=_GATEWAY),
    "gateway_mcp": Transport(gateway_mcp, shared=True, departs=_GATEWAY_MCP),
    "two_hops": Transport(two_hops, departs=_GATEWAY),
}
