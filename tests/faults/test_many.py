"""Many large answers at once, on each carrier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from carmy_engine import App, ExecutionRequest
from carmy_engine.abc import Executor
from carmy_http import open_http
from carmy_stdio import open_stdio
from carmy_websocket import open_websocket
from tests.faults.processes import scripted
from tests.support import http_client as http_support
from tests.support import websocket as websocket_support

CALLS = 200
SIZE = 1_000_000


@asynccontextmanager
async def stdio() -> AsyncIterator[Executor]:
    async with open_stdio(scripted()) as client:
        yield client


@asynccontextmanager
async def websocket() -> AsyncIterator[Executor]:
    async with websocket_support.serving() as server, open_websocket(server.url) as client:
        yield client


@asynccontextmanager
async def http() -> AsyncIterator[Executor]:
    async with http_support.serving() as server, open_http(server.url) as client:
        yield client


@asynccontextmanager
async def gateway() -> AsyncIterator[Executor]:
    async with App("near").mount(open_stdio(scripted())).open() as engine:
        yield engine


CARRIERS: dict[str, Callable[[], AbstractAsyncContextManager[Executor]]] = {
    "stdio": stdio,
    "websocket": websocket,
    "http": http,
    "gateway": gateway,
}


@pytest.mark.parametrize("name", CARRIERS)
async def test_large_answers_at_once(name: str) -> None:
    """Each of 200 calls at the same time gets its own answer of a megabyte, whole."""
    checked = 0

    async def call(executor: Executor, number: int) -> None:
        nonlocal checked
        text = f"{number:04};"
        request = ExecutionRequest(tool="echo", arguments={"text": text, "times": SIZE // 5})
        assert (await executor.execute(request)).unwrap() == text * (SIZE // 5)
        checked += 1

    with trio.fail_after(50):
        async with CARRIERS[name]() as executor, trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(call, executor, number)
    assert checked == CALLS
