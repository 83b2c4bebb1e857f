"""A front end outlives whatever leaves one of its connections, also where nothing before it has held that back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import msgspec
import pytest
import trio

from carmy_engine import App, HttpSettings, McpSettings, Settings
from carmy_http.api.endpoints import Endpoints
from carmy_http.message import Answer, BodyWriter, Request, StreamResponse
from carmy_http.server import serve_endpoints
from carmy_mcp.server.connection import serve_connection
from carmy_net import Server, open_listeners
from tests.boundary.escapes import ESCAPES, SECRET, made
from tests.support.http import Client
from tests.wire.pair import channel_pair

LIMIT = 10.0
"""Seconds, for what takes a fraction of one."""

FrontEnd = Literal["native", "hypercorn"]


class Breaking(Endpoints):
    """Endpoints without a boundary of their own: an address names what is raised, and whether that is after a wait."""

    async def answer(self, request: Request) -> Answer:
        match request.head.path.split("/"):
            case [_, "raise", escape]:
                raise made(escape)
            case [_, "wait", escape]:
                await trio.lowlevel.checkpoint()
                raise made(escape)
            case [_, "stream", escape]:
                return StreamResponse(200, (), partial(_break_off, escape))
            case _:
                return await super().answer(request)


async def _break_off(escape: str, writer: BodyWriter) -> None:
    await writer.send(b"some of it")
    raise made(escape)


class Serving:
    """A server of `Breaking` endpoints."""

    def __init__(self, port: int) -> None:
        self.port = port

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connection that has asked something already, so that the server has parked it."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            client = Client(stream)
            await is_served(client)
            yield client
        finally:
            stream.socket.close()


async def is_served(client: Client) -> None:
    assert (await client.request("GET", "/health")).status == 200


@asynccontextmanager
async def serving(front_end: FrontEnd) -> AsyncIterator[Serving]:
    settings = Settings(address="127.0.0.1:0", http=HttpSettings(server=front_end))
    with trio.fail_after(LIMIT):
        async with App("breaking", settings=settings).open() as engine, trio.open_nursery() as nursery:
            line: str = await nursery.start(partial(serve_endpoints, engine, Breaking(engine), "http"))
            yield Serving(int(line.rpartition(":")[2]))
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("front_end", ["native", "hypercorn"])
@pytest.mark.parametrize("how", ["raise", "wait", "stream"])
@pytest.mark.parametrize("escape", ESCAPES)
async def test_an_escape_ends_its_connection_only(
    front_end: FrontEnd, how: str, escape: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed, with one line in the log; the other connections and ``/health`` are served as before."""
    async with serving(front_end) as server, server.client() as other, server.client() as broken:
        caplog.clear()
        await broken.send(f"GET /{how}/{escape} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        received = b""
        while data := await broken.stream.receive_some(65536):
            received += data
        assert SECRET.encode() not in received
        assert not received.endswith(b"0\r\n\r\n")  # a stream that broke off has no proper end
        assert len([record for record in caplog.records if record.exc_info]) == 1
        await is_served(other)
        async with server.client() as fresh:
            await is_served(fresh)


class Failing:
    """A connection that raises out of its `run`."""

    def __init__(self, stream: trio.SocketStream, escape: str) -> None:
        self._stream = stream
        self._escape = escape

    async def run(self) -> None:
        self._stream.socket.close()
        raise made(self._escape)

    def drain(self) -> None:
        pass


@pytest.mark.parametrize("escape", ESCAPES)
async def test_the_accept_loop_outlives_a_connection_that_raises(escape: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever leaves `Served.run` is logged, frees the connection's place, and the next client is accepted."""
    stop = trio.Event()
    settings = Settings(address="127.0.0.1:0")
    listeners = await open_listeners(settings, authenticated=False)
    address: Any = listeners[0].socket.getsockname()
    server = Server(lambda stream: Failing(stream, escape), HttpSettings(max_connections=1))
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, listeners, stop, stop, lambda: None)
            for _ in range(3):
                stream = await trio.open_tcp_stream(*address)
                assert await stream.receive_some(1) == b""
                await stream.aclose()
            stop.set()
    assert [record.getMessage() for record in caplog.records] == ["a connection failed"] * 3


class Broken:
    """A server of MCP that raises when it answers."""

    def __init__(self, escape: str) -> None:
        self._escape = escape

    async def answer(self, _: object) -> bytes:
        await trio.lowlevel.checkpoint()
        raise made(self._escape)


@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_request_of_mcp_that_breaks(escape: str) -> None:
    """Whatever leaves the answer to a request is an error of that request, and the connection goes on."""
    ours, channel = channel_pair()
    broken: Any = Broken(escape)
    async with App("test").open() as engine, trio.open_nursery() as nursery:
        serve = partial(serve_connection, stopped=trio.Event(), limits=McpSettings())
        nursery.start_soon(serve, broken, channel, engine)
        with trio.fail_after(LIMIT):
            for number in range(2):
                await ours.send(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number)
                answer = msgspec.json.decode(await ours.receive())
                assert (answer["id"], answer["error"]["code"]) == (number, -32603)
        nursery.cancel_scope.cancel()
