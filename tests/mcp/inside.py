"""A connection without a process: what a client sends and gets, over channels in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from carmy_engine import AgentContext, App, BoundEngine, Engine, McpSettings, Settings
from carmy_mcp.protocol.params import TASKS
from carmy_mcp.server.confirmations import Questions
from carmy_mcp.server.connection import Connection
from carmy_mcp.server.server import McpServer
from carmy_net import BatchChannel
from tests.mcp.conftest import HELLO, request

MODERN = "2026-07-28"

KNOWS_TASKS: dict[str, Any] = {"extensions": {TASKS: {}}}
"""The capabilities of a client that does."""


class End(BatchChannel):
    """One end of a channel of messages."""

    def __init__(self, incoming: trio.MemoryReceiveChannel[bytes], outgoing: trio.MemorySendChannel[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, value: bytes) -> None:
        await self._outgoing.send(value)

    async def receive(self) -> bytes:
        return await self._incoming.receive()

    async def aclose(self) -> None:
        await self._outgoing.aclose()


class Client:
    """A client, spoken by hand.

    Attributes:
        engine: What it talks to.
        capabilities: What it declares.
        version: What it speaks.
        caller: Who the server takes it for.
        questions: Those of the server.
    """

    questions: Questions
    connection: Connection

    def __init__(self, end: End, engine: Engine, capabilities: dict[str, Any], version: str) -> None:
        self._end = end
        self._id = 0
        self.engine = engine
        self.capabilities = capabilities
        self.version = version

    @property
    def caller(self) -> BoundEngine:
        return self.connection.caller

    @caller.setter
    def caller(self, caller: BoundEngine) -> None:
        self.connection.caller = caller

    async def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await self._end.send(msgspec.json.encode(message))

    async def receive(self) -> dict[str, Any]:
        with trio.fail_after(1000):
            return msgspec.json.decode(await self._end.receive())

    async def end(self) -> None:
        """Say that nothing more comes."""
        await self._end.aclose()

    async def request(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> int:
        """Send one; give its id."""
        self._id += 1
        if self.version == MODERN:
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                **(meta or {}),
            }
        await self.send(request(self._id, method, **params, **({} if meta is None else {"_meta": meta})))
        return self._id

    async def call(self, tool: str, arguments: dict[str, Any], **params: Any) -> int:
        """Send a call; give its id."""
        return await self.request("tools/call", name=tool, arguments=arguments, **params)

    async def cancel(self, id: int) -> None:  # noqa: A002 - its name on the wire
        """Take a request back."""
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})

    async def outcome(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request, which has to be the next message, or its error."""
        sent = await self.request(method, **params)
        answer = await self.receive()
        assert answer["id"] == sent
        return answer["result"] if "result" in answer else answer["error"]

    async def result(self, tool: str, arguments: dict[str, Any], **params: Any) -> dict[str, Any]:
        """The result of a call."""
        return await self.outcome("tools/call", name=tool, arguments=arguments, **params)


def code(result: dict[str, Any]) -> str:
    """The code of the error in a result; ``ok`` for a success."""
    error = result.get("_meta", {}).get("carmy/error")
    return "ok" if error is None else error["code"]


class Ran:
    """What has run."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go_on = trio.Event()
        self.ended: list[str] = []


def app_of(ran: Ran, settings: Settings | None = None) -> App:
    """Tools that say when they run."""
    app = App("test", settings=settings)

    @app.tool(effect="destructive")
    async def destroy(name: str) -> str:
        """Needs a confirmation."""
        ran.names.append(name)
        return f"{name} is gone"

    @app.tool(effect="write", parallel_safe=True)
    async def wait(ctx: AgentContext, name: str) -> dict[str, str]:
        """Goes on when it is told to."""
        ran.names.append(name)
        ctx.progress.report(1, 2, "half of it")
        try:
            await ran.go_on.wait()
            ctx.progress.report(2, 2, "all of it")
        finally:
            ran.ended.append(name)
        return {"name": name}

    return app


@asynccontextmanager
async def connected(
    ran: Ran,
    *,
    capabilities: dict[str, Any] | None = None,
    version: str = "2025-11-25",
    bound: dict[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    app: App | None = None,
) -> AsyncIterator[Client]:
    """A client that has been greeted, and the server that it talks to."""
    settings = McpSettings(**(limits or {}))
    opened = (app or app_of(ran, Settings(name="test", mcp=settings))).open()
    async with opened as engine, trio.open_nursery() as nursery:
        to_server, from_client = trio.open_memory_channel[bytes](0)
        to_client, from_server = trio.open_memory_channel[bytes](0)
        client = Client(End(from_server, to_server), engine, capabilities or {}, version)
        server = McpServer(engine, nursery)
        client.questions = server.questions
        on_left = bool if server.tasks is None else server.tasks.cancel
        caller = engine.bind(transport="mcp", **(bound or {}))
        end = End(from_client, to_client)
        client.connection = Connection(server, end, caller, engine.stopped, settings, float("inf"), on_left)

        async def serve() -> None:
            await client.connection.run()
            await to_client.aclose()

        nursery.start_soon(serve)
        if version != MODERN:
            hello = {**HELLO[0]["params"], "protocolVersion": version, "capabilities": client.capabilities}
            await client.outcome("initialize", **hello)
            await client.send(HELLO[1])
        yield client
        nursery.cancel_scope.cancel()
