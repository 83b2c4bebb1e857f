"""A WebSocket server on a free port, and a peer that speaks in bytes, for tests of WebSocket."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

import carmy_websocket
from carmy_engine import Engine, HttpSettings, Settings, WebSocketSettings, open_engine
from carmy_engine.testing import Stage, compile_scripted

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes = b"", *, masked: bool = True, fin: bool = True) -> bytes:
    """One frame as a client sends it."""
    first = (0x80 if fin else 0) | opcode
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, bit | len(payload))
    elif len(payload) < 65536:
        head = struct.pack("!BBH", first, bit | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, bit | 127, len(payload))
    # A mask of zeros is one.
    return head + (b"\0\0\0\0" if masked else b"") + payload


def request(path: str = "/agent/ws", method: str = "GET", headers: Mapping[str, str | None] | None = None) -> bytes:
    """A handshake; a header that is None is left out."""
    fields: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": "carmy-frames.1",
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


class Refusal(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: Any


class Peer:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""
        self._sending = trio.Lock()

    async def send(self, data: bytes) -> None:
        async with self._sending:
            await self.stream.send_all(data)

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

    async def _more(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError(f"the server closed the connection after {self.buffer[:200]!r}")
        self.buffer += data

    async def refusal(self) -> Refusal:
        """The HTTP answer to a handshake that fails; then the connection must end."""
        head = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await self.exactly(int(headers["content-length"]))
        assert self.buffer == b""
        assert await self.stream.receive_some(1) == b""
        return Refusal(int(head[0].split(" ")[1]), headers, json.loads(body))

    async def upgrade(self, headers: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """Shake hands; the headers of the answer."""
        await self.send(request(headers=headers))
        head = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        assert head[0].split(" ")[1] == "101", head
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the server."""
        first, second = await self.exactly(2)
        size = second & 0x7F
        assert not second & 0x80, "servers do not mask"
        assert first & 0x80
        if size == 126:
            (size,) = struct.unpack("!H", await self.exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.exactly(8))
        return first & 0x0F, await self.exactly(size)

    async def tell(self, **fields: Any) -> None:
        """Send a request."""
        await self.send(frame(TEXT, json.dumps(fields).encode()))

    async def told(self) -> Any:
        """The next message of the server."""
        opcode, payload = await self.frame()
        while opcode == PING:  # on a slow machine a connection is old enough for one
            await self.send(frame(PONG, payload))
            opcode, payload = await self.frame()
        assert opcode == TEXT, (opcode, payload)
        return json.loads(payload)

    async def ask(self, **fields: Any) -> Any:
        """Send a request and take the next message."""
        await self.tell(**fields)
        return await self.told()

    async def closed(self) -> int | None:
        """Read on until the server closes; the code of its close frame, None if there was none."""
        code = None
        while True:
            try:
                opcode, payload = await self.frame()
            except EOFError:
                assert self.buffer == b""
                self.stream.socket.close()
                return code
            except trio.BrokenResourceError:
                return code
            assert code is None, "nothing may follow a close frame"
            if opcode == CLOSE:
                (code,) = struct.unpack("!H", payload[:2])
                await self.send(frame(CLOSE, payload[:2]))

    def reset(self) -> None:
        """Close so that the server gets a reset."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


class Running(NamedTuple):
    """A server that runs."""

    engine: Engine
    stage: Stage
    url: str
    line: str
    returned: trio.Event

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[Peer]:
        """A connection before its handshake."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            yield Peer(stream)
        finally:
            stream.socket.close()

    @asynccontextmanager
    async def upgraded(self) -> AsyncIterator[Peer]:
        """A connection after its handshake and its first message."""
        async with self.peer() as peer:
            await peer.upgrade()
            assert (await peer.told())["event"] == "ready"
            yield peer

    async def idle(self) -> None:
        """Wait until no execution runs."""
        with trio.fail_after(10):
            await self.engine.wait_idle()


@asynccontextmanager
async def serving(
    *,
    http: Mapping[str, Any] | None = None,
    websocket: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **engine: Any,
) -> AsyncIterator[Running]:
    """The scripted tools, served on a free port of loopback until the block ends."""
    merged = Settings(
        **{"address": "127.0.0.1:0", "name": "shop", **(settings or {})},
        http=HttpSettings(**(http or {})),
        websocket=WebSocketSettings(**(websocket or {})),
    )
    stage = Stage()
    async with (
        open_engine(compile_scripted(stage), settings=merged, **engine) as opened,
        trio.open_nursery() as nursery,
    ):
        returned = trio.Event()
        line: str = await nursery.start(_serve, opened, returned)
        yield Running(opened, stage, line.rpartition(" ")[2], line, returned)
        nursery.cancel_scope.cancel()


async def _serve(engine: Engine, returned: trio.Event, *, task_status: trio.TaskStatus[str]) -> None:
    await carmy_websocket.serve(engine, task_status=task_status)
    returned.set()
