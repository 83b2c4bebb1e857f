"""A connection of the native front end, between two requests."""

from __future__ import annotations

import logging
import math
import socket
from typing import cast

import trio

from carmy_engine.transport import RateLimitedLogger
from carmy_http.api.endpoints import Endpoints
from carmy_http.native.connection import NativeConnection
from carmy_http.native.surroundings import Surroundings
from carmy_http.native.timeouts import Keeper


def connected() -> tuple[NativeConnection, socket.socket]:
    """A connection, and its client's end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = NativeConnection(
        trio.SocketStream(trio.socket.from_stdlib_socket(ours)),
        cast("Endpoints", None),
        Keeper(RateLimitedLogger(logging.getLogger("carmy.http"))),
        cast("Surroundings", None),
        header_seconds=7.0,
    )
    return connection, theirs


async def test_a_request_that_nobody_has_read_yet_is_not_late() -> None:
    """When its time is over, a connection stays if its client has asked and only the server has not come to it."""
    connection, client = connected()
    with client:
        client.send(b"G")
        connection.attend()
        assert connection.limit == 7.0
        client.close()
        with trio.fail_after(5):
            await connection.run()


async def test_a_connection_that_is_late() -> None:
    """When its time is over, a connection without a request, or whose client has left, ends without a word."""
    for leaves in (False, True):
        connection, client = connected()
        with client:
            if leaves:
                client.shutdown(socket.SHUT_WR)
            connection.attend()
            assert connection.limit == math.inf
            with trio.fail_after(5):
                await connection.run()
            assert client.recv(100) == b""
