"""The scripted tools behind HTTP, and servers that follow a script, for tests of the HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

import carmy_http
from carmy_engine import Engine, HttpSettings, Settings, open_engine
from carmy_engine.testing import Stage, compile_scripted


class Running(NamedTuple):
    """A server that runs."""

    engine: Engine
    stage: Stage
    url: str

    async def arrived(self, gate: str, calls: int = 1) -> None:
        """Wait until so many calls are at a gate."""
        with trio.fail_after(5):
            await self.stage.until(lambda: self.stage.arrived(gate) >= calls)

    async def idle(self) -> None:
        """Wait until no execution runs; a second is what a disconnect may take to be noticed."""
        with trio.fail_after(2):
            await self.engine.wait_idle()


@asynccontextmanager
async def serving(
    *, http: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None, **engine: Any
) -> AsyncIterator[Running]:
    """The scripted tools, served on a free port of loopback until the block ends."""
    merged = Settings(
        **{"address": "127.0.0.1:0", "name": "shop", **(settings or {})},
        http=HttpSettings(**{"server": "hypercorn", **(http or {})}),
    )
    stage = Stage()
    async with (
        open_engine(compile_scripted(stage), settings=merged, **engine) as opened,
        trio.open_nursery() as nursery,
    ):
        line: str = await nursery.start(_serve, opened)
        yield Running(opened, stage, line.rpartition(" ")[2])
        nursery.cancel_scope.cancel()


async def _serve(engine: Engine, *, task_status: trio.TaskStatus[str]) -> None:
    await carmy_http.serve(engine, task_status=task_status)


class Exchange:
    """One connection of a scripted server.

    Attributes:
        number: Which connection it is, from 1.
        stream: The connection.
        body: Of the request that has been read.
    """

    def __init__(self, number: int, stream: trio.SocketStream) -> None:
        self.number = number
        self.stream = stream
        self.head = b""
        self.body = b""

    async def read(self) -> None:
        """Read one request."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = await self.stream.receive_some(65536)
            if not more:
                raise trio.BrokenResourceError
            data += more
        self.head, _, self.body = data.partition(b"\r\n\r\n")
        (length,) = [
            int(line.split(b":")[1]) for line in self.head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ] or [0]
        while len(self.body) < length:
            self.body += await self.stream.receive_some(65536)

    async def send(self, data: bytes) -> None:
        """Write bytes."""
        await self.stream.send_all(data)

    async def answer(self, status: int, body: bytes, **headers: str) -> None:
        """Write an answer; ``_`` in a header's name stands for ``-``."""
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await self.send(f"HTTP/1.1 {status} \r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body)


Script = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[str]:
    """A server that follows a script on each connection, which then ends; its URL."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    count = 0

    async def run(stream: trio.SocketStream) -> None:
        nonlocal count
        count += 1
        try:
            await script(Exchange(count, stream))
        except trio.BrokenResourceError:
            pass
        finally:
            stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, run, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
