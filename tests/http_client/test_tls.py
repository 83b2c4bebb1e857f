"""Clients and TLS: a handshake that fails is reported in the words of TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trustme

from carmy_engine import ClosedError, ExecutionRequest
from carmy_engine.cli._outcome import Failure
from carmy_engine.cli._remote import call
from carmy_http import open_http
from carmy_mcp import open_mcp
from carmy_websocket import open_websocket


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """A server that ends each connection after its handshake, or at once where there is none."""

    async def greet(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                if context is not None:
                    await trio.SSLStream(stream, context, server_side=True).do_handshake()
                else:
                    await stream.receive_some()
                    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            except trio.BrokenResourceError:
                pass

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, greet, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def of_an_unknown_authority() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def by_http(port: int) -> None:
    async with open_http(f"https://127.0.0.1:{port}") as client:
        await client.catalog()


async def by_websocket(port: int) -> None:
    async with open_websocket(f"wss://127.0.0.1:{port}/agent/ws"):
        pass


async def by_mcp(port: int) -> None:
    async with open_mcp(f"https://127.0.0.1:{port}/mcp"):
        pass


async def by_command(port: int) -> None:
    await trio.to_thread.run_sync(call, f"https://127.0.0.1:{port}", ExecutionRequest(tool="x"))


@pytest.mark.parametrize("client", [by_http, by_websocket, by_mcp, by_command])
@pytest.mark.parametrize(
    ("has_tls", "words"), [(True, "TLS: the certificate is not valid: unable to get local issuer"), (False, "TLS: ")]
)
async def test_a_failed_handshake_is_reported_in_the_words_of_tls(client: Any, has_tls: bool, words: str) -> None:
    """The error has the reason that TLS gives, not the system's error of the same number."""
    context = of_an_unknown_authority() if has_tls else None
    with trio.fail_after(20):
        async with listening(context) as port:
            with pytest.raises((ClosedError, Failure)) as raised:
                await client(port)
    assert words in str(raised.value)
    assert "Operation not permitted" not in str(raised.value)
    assert "_ssl.c" not in str(raised.value)
