"""Clients that cannot connect: the reason, in the words of TLS where that is where it failed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trustme

from carmy_engine import ClosedError
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


async def by_http(address: str) -> None:
    async with open_http(f"https://{address}") as client:
        await client.catalog()


async def by_websocket(address: str) -> None:
    async with open_websocket(f"wss://{address}/agent/ws"):
        pass


async def by_mcp(address: str) -> None:
    async with open_mcp(f"https://{address}/mcp"):
        pass


@pytest.mark.parametrize("client", [by_http, by_websocket, by_mcp])
@pytest.mark.parametrize(
    ("has_tls", "words"), [(True, "TLS: the certificate is not valid: unable to get local issuer"), (False, "TLS: ")]
)
async def test_a_failed_handshake_is_reported_in_the_words_of_tls(client: Any, has_tls: bool, words: str) -> None:
    """The error has the reason that TLS gives, not the system's error of the same number."""
    context = of_an_unknown_authority() if has_tls else None
    with trio.fail_after(20):
        async with listening(context) as port:
            with pytest.raises(ClosedError) as raised:
                await client(f"127.0.0.1:{port}")
    assert words in str(raised.value)
    assert "Operation not permitted" not in str(raised.value)
    assert "_ssl.c" not in str(raised.value)


@pytest.mark.parametrize("host", ["no..where", "a" * 300])
@pytest.mark.parametrize("client", [by_http, by_websocket, by_mcp])
async def test_a_host_that_is_no_name_cannot_be_connected_to(client: Any, host: str) -> None:
    """A label that is empty or too long is refused as a host that is not there, without asking for it."""
    with trio.fail_after(20), pytest.raises(ClosedError, match="is not a name that can be looked up"):
        await client(f"{host}:1")
