"""One entry for each way to reach an engine; the executor suite runs on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from carmy_engine._engine import open_engine
from carmy_engine.abc import Executor
from carmy_engine.testing import MakeExecutor, Stage, compile_scripted
from carmy_http import open_http
from carmy_websocket import open_websocket
from tests.support import http_client as http_support
from tests.support import websocket as websocket_support


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
async def http() -> AsyncIterator[Executor]:
    """The client of an HTTP server."""
    async with http_support.serving() as server, open_http(server.url) as client:
        yield client


@asynccontextmanager
async def websocket() -> AsyncIterator[Executor]:
    """The client of a WebSocket server."""
    async with websocket_support.serving() as server, open_websocket(server.url) as client:
        yield client


MAKERS: dict[str, MakeExecutor] = {
    "in_process": in_process,
    "bound": bound,
    "http": http,
    "websocket": websocket,
}
