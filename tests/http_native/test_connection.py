"""A connection of the native front end, between two requests."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from carmy_engine import App, HttpSettings, Settings
from carmy_http.api.endpoints import Endpoints
from carmy_http.native.connection import NativeConnection
from carmy_http.native.shared_state import SharedState


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[NativeConnection, socket.socket]]:
    """A connection that the dispatcher does not serve, and its client's end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    settings = Settings(http=HttpSettings(server="native", header_timeout_secs=7.0))
    async with App("test", settings=settings).open() as engine:
        shared = SharedState(engine, Endpoints(engine))
        shared.dispatcher = None
        with theirs:
            yield NativeConnection(shared, trio.SocketStream(trio.socket.from_stdlib_socket(ours))), theirs


async def test_a_request_with_unread_bytes_is_not_late() -> None:
    """A connection that times out with unread bytes of a request gets another time limit, because only the server is late."""
    async with connected() as (connection, client):
        client.send(b"G")
        connection.on_timeout()
        assert connection.timer.limit == 7.0
        client.close()
        with trio.fail_after(5):
            await connection.run()


async def test_a_connection_that_is_late() -> None:
    """A connection that times out without a request, or whose client has left, ends without an answer."""
    for leaves in (False, True):
        async with connected() as (connection, client):
            if leaves:
                client.shutdown(socket.SHUT_WR)
            connection.on_timeout()
            assert connection.timer.limit == math.inf
            with trio.fail_after(5):
                await connection.run()
            assert client.recv(100) == b""
