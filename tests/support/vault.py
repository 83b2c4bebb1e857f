"""An application with a tool that needs a person, the ways to reach it, and the page of the host that answers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trio

import carmy_http
import carmy_websocket
from carmy_engine import (
    AgentContext,
    App,
    BearerTokens,
    Engine,
    ExecutionRequest,
    HttpSettings,
    Settings,
    StoreSettings,
)
from carmy_engine.abc import ConfirmationEntry, Executor
from carmy_engine.stores.sqlite import SqliteStore
from carmy_http import open_http
from carmy_mcp import open_mcp, serve_http
from carmy_stdio import open_stdio
from carmy_websocket import open_websocket
from tests.conformance.makers import command

ANA, BEN, HOST = "token-of-ana", "token-of-ben", "token-of-the-page"

TOKENS = BearerTokens(
    {
        ANA: AgentContext(principal="ana"),
        BEN: AgentContext(principal="ben"),
        HOST: AgentContext(principal="eve", permissions={"confirmations:answer"}),
    }
)

PROGRAM = """\
from pathlib import Path
from carmy_engine import App
from tests.support.vault import vault

app = vault(Path({directory!r}))
"""


def vault(directory: Path, **settings: Any) -> App:
    """An application whose store and effects are files of a directory."""
    store = StoreSettings(url=f"sqlite:{directory / 'state.db'}", durability="normal")
    app = App("vault", settings=Settings(address="127.0.0.1:0", store=store, **settings)).authenticate(TOKENS)

    @app.tool(effect="destructive")
    async def burn(name: str) -> str:
        """Burn what is in it."""
        with (directory / "burnt").open("a") as burnt:
            burnt.write(f"{name}\n")
        if name == "power":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} is gone"

    @app.tool(effect="none")
    async def crash() -> None:
        """End the process, as a fault of the machine would."""
        os.kill(os.getpid(), signal.SIGKILL)

    return app


def burnt(directory: Path) -> list[str]:
    """What has been burnt so far."""
    path = directory / "burnt"
    return path.read_text().split() if path.exists() else []


def burn(name: str = "letters", **fields: Any) -> ExecutionRequest:
    """The request of the tests."""
    return ExecutionRequest(tool="burn", arguments={"name": name}, **fields)


@asynccontextmanager
async def page(directory: Path) -> AsyncIterator[Engine]:
    """Another process's view of the same store, in which persons answer."""
    path = directory / "state.db"
    async with App("page").store(SqliteStore(path, durability="normal")).open() as engine:
        yield engine


@asynccontextmanager
async def in_process(directory: Path) -> AsyncIterator[Executor]:
    """The engine itself."""
    async with vault(directory).open() as engine:
        yield engine.bind(principal="ana")


@asynccontextmanager
async def http(front_end: Literal["hypercorn", "native"], directory: Path) -> AsyncIterator[Executor]:
    """The client of an HTTP server."""
    app = vault(directory, http=HttpSettings(server=front_end))
    async with served(app, carmy_http.serve) as url, open_http(url, token=ANA) as client:
        yield client


@asynccontextmanager
async def websocket(directory: Path) -> AsyncIterator[Executor]:
    """The client of a WebSocket server."""
    async with served(vault(directory), carmy_websocket.serve) as url, open_websocket(url, token=ANA) as client:
        yield client


@asynccontextmanager
async def mcp_http(directory: Path) -> AsyncIterator[Executor]:
    """The client of an MCP server over HTTP."""
    async with served(vault(directory), serve_http) as url, open_mcp(url, token=ANA, trusted=True) as client:
        yield client


@asynccontextmanager
async def stdio(directory: Path) -> AsyncIterator[Executor]:
    """The client of a child process."""
    async with open_stdio(command(PROGRAM.format(directory=str(directory))), env=_environment()) as client:
        yield client


@asynccontextmanager
async def mcp(directory: Path) -> AsyncIterator[Executor]:
    """The client of a child process that speaks MCP."""
    words = command(PROGRAM.format(directory=str(directory)), "mcp")
    async with open_mcp(words, env=_environment(), trusted=True) as client:
        yield client


@asynccontextmanager
async def served(app: App, serve: Callable[..., Any]) -> AsyncIterator[str]:
    """The address of a server of the application."""
    async with app.open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(serve, engine))
        yield line.rpartition(" ")[2]
        nursery.cancel_scope.cancel()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "CARMY_PRINCIPAL": "ana"}


Reach = Callable[[Path], AbstractAsyncContextManager[Executor]]

WAYS: dict[str, Reach] = {
    "in_process": in_process,
    "http_hypercorn": partial(http, "hypercorn"),
    "http_native": partial(http, "native"),
    "websocket": websocket,
    "stdio": stdio,
    "mcp": mcp,
    "mcp_http": mcp_http,
}
"""All of them call as ana."""


async def only_confirmation(host: Engine) -> ConfirmationEntry:
    """The only open one."""
    (found,) = await host.confirmations()
    return found
