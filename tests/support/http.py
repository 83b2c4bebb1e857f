"""A server on a free port and a client that speaks in bytes, for tests of HTTP."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import trio

import carmy_http
from carmy_engine import Engine, HttpSettings, Settings, open_engine
from carmy_engine.testing import compile_tool

JSON = "application/json"

front_end: ContextVar[Literal["hypercorn", "native"]] = ContextVar("front_end", default="hypercorn")
"""Which front end `serving` serves with, unless it is told."""


class Answer(NamedTuple):
    """One answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The error's code, in either place where a body has it."""
        error = self.json.get("error")
        return None if error is None else error["code"]


class Client:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        await self.send(render(method, path, headers, body))
        return await self.answer(head_only=method == "HEAD")

    async def call(self, tool: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        body = json.dumps({"tool": tool, **fields}).encode()
        return await self.request("POST", "/agent/execute", {"content-type": JSON, **(headers or {})}, body)

    async def answer(self, *, head_only: bool = False) -> Answer:
        status, headers = await self.head()
        if head_only or status in {204, 304} or status < 200:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.chunks()])
        else:
            body = await self.exactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and the headers of the next answer; the body is left unread."""
        lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
        return int(lines[0].split(" ")[1]), headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of a chunked body."""
        while chunk := await self.chunk():
            yield chunk

    async def chunk(self) -> bytes:
        """The next piece of a chunked body, empty at its end."""
        size = int((await self.until(b"\r\n")).strip(), 16)
        return (await self.exactly(size + 2))[:-2]

    async def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            await self._more()
        end = self.buffer.index(mark) + len(mark)
        data, self.buffer = self.buffer[:end], self.buffer[end:]
        return data

    async def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            await self._more()
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    async def is_closed(self) -> bool:
        """Wait for the server to close; False when it says something instead."""
        try:
            return await self.stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True

    async def _more(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError(f"the server closed the connection after {self.buffer!r}")
        self.buffer += data

    def reset(self) -> None:
        """Close so that the server gets a reset."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


class Running(NamedTuple):
    """A server that runs: cancel `scope` to stop it hard; `ended` is set when it has returned. Without a port it has 0."""

    engine: Engine
    port: int
    line: str
    scope: trio.CancelScope
    ended: trio.Event

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            yield Client(stream)
        finally:
            stream.socket.close()

    async def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        async with self.client() as client:
            return await client.request(method, path, headers)

    async def call(self, tool: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Answer:
        async with self.client() as client:
            return await client.call(tool, headers, **fields)


def render(method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
    """A request's bytes; Host and Content-Length are added where they are missing."""
    fields = {"host": "127.0.0.1", **(headers or {})}
    if body is not None and "transfer-encoding" not in fields:
        fields.setdefault("content-length", str(len(body)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + (body or b"")


@asynccontextmanager
async def serving(
    *tools: Callable[..., Any],
    http: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **engine: Any,
) -> AsyncIterator[Running]:
    """An engine with these tools, served on a free port of loopback until the block ends."""
    merged = Settings(
        **{"address": "127.0.0.1:0", "name": "shop", **(settings or {})},
        http=HttpSettings(**{"server": front_end.get(), **(http or {})}),
    )
    async with (
        open_engine(tools=[compile_tool(function, {}) for function in tools], settings=merged, **engine) as opened,
        trio.open_nursery() as nursery,
    ):
        scope, ended = trio.CancelScope(), trio.Event()
        line: str = await nursery.start(_serve, opened, scope, ended)
        port = line.rpartition(":")[2]
        yield Running(opened, int(port) if port.isdigit() else 0, line, scope, ended)
        nursery.cancel_scope.cancel()


async def _serve(
    engine: Engine, scope: trio.CancelScope, ended: trio.Event, *, task_status: trio.TaskStatus[str]
) -> None:
    with scope:
        await carmy_http.serve(engine, task_status=task_status)
    ended.set()
