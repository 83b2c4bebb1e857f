"""The listener for Prometheus: one request for each connection, and nothing but the metrics."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from carmy_engine import App, ConfigurationError, Engine, ExecutionRequest, MetricsSettings, Settings
from carmy_net import serve_metrics


@asynccontextmanager
async def serving(address: str = "127.0.0.1:0") -> AsyncIterator[tuple[Engine, int]]:
    """An engine whose metrics are served, and the port."""
    app = App("shop", settings=Settings(metrics=MetricsSettings(address=address)))

    @app.tool(effect="none", parallel_safe=True)
    async def ping() -> str:
        """Ping."""
        return "pong"

    with trio.fail_after(20):
        async with app.open() as engine, trio.open_nursery() as nursery:
            line: str = await nursery.start(functools.partial(serve_metrics, engine))
            assert line.startswith("metrics on http://127.0.0.1:")
            assert line.endswith("/metrics")
            yield engine, int(line.rpartition(":")[2].partition("/")[0])
            nursery.cancel_scope.cancel()


async def asked(port: int, data: bytes) -> bytes:
    """Everything that a connection is answered."""
    received = b""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(data)
        while more := await stream.receive_some():
            received += more
    return received


async def test_a_scrape() -> None:
    """GET /metrics has the text of the engine, with its type and length; a query changes nothing, and HEAD has no body."""
    async with serving() as (engine, port):
        await engine.execute(ExecutionRequest(tool="ping"))
        head, _, body = (await asked(port, b"GET /metrics?x HTTP/1.1\r\nHost: a\r\n\r\n")).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 200 "
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in lines
        assert b"Content-Length: %d" % len(body) in lines
        assert b'carmy_executions_total{tool="ping",status="completed",code="",transport="in_process"} 1\n' in body
        only = await asked(port, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert only.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"hello\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
    ],
)
async def test_anything_else(data: bytes, status: int) -> None:
    """Another address, another method and what is no HTTP are refused, and the next scrape is answered."""
    async with serving() as (_, port):
        assert (await asked(port, data)).startswith(b"HTTP/1.1 %d " % status)
        assert (await asked(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_clients_that_leave() -> None:
    """A client that leaves before its request, or in the middle of it, costs nothing."""
    async with serving() as (_, port):
        for data in (b"", b"GET /met"):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(data)
        assert (await asked(port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_an_address_that_is_taken() -> None:
    """The error names the setting."""
    async with serving() as (_, port):
        app = App("shop", settings=Settings(metrics=MetricsSettings(address=f"127.0.0.1:{port}")))
        async with app.open() as engine:
            with pytest.raises(ConfigurationError, match=rf"metrics\.address = '127\.0\.0\.1:{port}': cannot listen"):
                await serve_metrics(engine)


def test_a_wrong_address() -> None:
    """An address that is none is refused when the settings are made."""
    with pytest.raises(ConfigurationError, match="address must be"):
        MetricsSettings(address="nowhere")
