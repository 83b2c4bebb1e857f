"""Two ends of a channel of messages in memory, and an engine behind one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from carmy_engine import Engine, open_engine
from carmy_engine.testing import Stage, compile_scripted
from carmy_frames.driver import ClientExecutor, ConnectionEnd, open_client, serve_channel
from carmy_net import BatchChannel

_BREAK = b"\0broken"


class MemoryChannel(BatchChannel):
    """One end. Holds a few messages, like a pipe; then the sender waits."""

    def __init__(self, send: trio.MemorySendChannel[bytes], receive: trio.MemoryReceiveChannel[bytes]) -> None:
        self._send = send
        self._receive = receive

    async def send(self, value: bytes) -> None:
        await self._send.send(value)

    async def receive(self) -> bytes:
        value = await self._receive.receive()
        if value == _BREAK:
            raise trio.BrokenResourceError
        return value

    async def send_eof(self) -> None:
        """Say no more, and go on reading."""
        await self._send.aclose()

    async def send_break(self) -> None:
        """Be gone, as far as the other end's reading can tell."""
        await self._send.send(_BREAK)

    async def aclose(self) -> None:
        await self._send.aclose()
        await self._receive.aclose()


def channel_pair(size: float = 4) -> tuple[MemoryChannel, MemoryChannel]:
    """Two ends that are connected."""
    left_send, right_receive = trio.open_memory_channel[bytes](size)
    right_send, left_receive = trio.open_memory_channel[bytes](size)
    return MemoryChannel(left_send, left_receive), MemoryChannel(right_send, right_receive)


class Served:
    """An engine with one connection.

    Attributes:
        engine: The engine.
        stage: What its tools act on.
        peer: The client's end of the channel, for tests that speak for themselves.
        ending: What `serve_channel` returned, once it has.
    """

    def __init__(self, engine: Engine, stage: Stage, peer: MemoryChannel) -> None:
        self.engine = engine
        self.stage = stage
        self.peer = peer
        self.ending: ConnectionEnd | None = None
        self.done = trio.Event()

    async def send(self, **frame: Any) -> None:
        await self.peer.send(msgspec.json.encode(frame))

    async def receive(self) -> dict[str, Any]:
        with trio.fail_after(10):
            return msgspec.json.decode(await self.peer.receive())

    async def call(self, id: object, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> None:  # noqa: A002
        """Send one call."""
        await self.send(id=id, op="call", tool=tool, arguments=arguments or {}, **fields)

    async def arrived(self, gate: str, calls: int = 1) -> None:
        """Wait until so many calls have come to a gate."""
        with trio.fail_after(10):
            await self.stage.until(lambda: self.stage.arrived(gate) >= calls)

    async def ready(self) -> dict[str, Any]:
        """Take the first frame."""
        frame = await self.receive()
        assert frame["event"] == "ready"
        return frame

    async def ask(self, **frame: Any) -> dict[str, Any]:
        """Send one request and take the next frame."""
        await self.send(**frame)
        return await self.receive()


@asynccontextmanager
async def served(size: float = 4, **options: Any) -> AsyncIterator[Served]:
    """Serve the scripted tools over a channel in memory."""
    stage = Stage()
    async with open_engine(compile_scripted(stage)) as engine:
        ours, theirs = channel_pair(size)
        found = Served(engine, stage, ours)

        async def serve() -> None:
            found.ending = await serve_channel(
                engine, theirs, server="scripted", stopped=engine.stopped, **{"drain_seconds": 5.0, **options}
            )
            found.done.set()
            await theirs.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield found
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[ClientExecutor, Engine]]:
    """A client of the scripted tools, and the engine behind it."""
    async with served(**options) as found, open_client(found.peer) as client:
        yield client, found.engine
