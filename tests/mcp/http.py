"""A client of MCP over HTTP, spoken by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from carmy_engine import AgentContext, AgentError, Engine, ExecutionRecord, tool
from tests.mcp.conftest import HELLO, request
from tests.support.http import Answer, Client, Running

MODERN = "2026-07-28"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN]
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@tool(effect="none", parallel_safe=True, register=False)
async def echo(text: str) -> str:
    """Repeat."""
    return text


@tool(effect="read", idempotent=True, parallel_safe=True, register=False)
async def pair(a: int, b: int) -> dict[str, int]:
    """An object."""
    return {"a": a, "b": b}


@tool(effect="write", parallel_safe=True, register=False)
async def hold() -> str:
    """Go on for ever."""
    await trio.sleep_forever()
    return ""


@tool(effect="write", parallel_safe=True, register=False)
async def steps(ctx: AgentContext, to: int = 3) -> int:
    """Report, also backwards."""
    for number in range(1, to + 1):
        ctx.progress.report(number, to, f"step {number}")
        await ctx.progress.partial(number)
        ctx.progress.report(number - 1, to)
    return to


@tool(effect="none", parallel_safe=True, register=False)
async def big(size: int) -> str:
    """A large output."""
    return "x" * size


@tool(effect="write", parallel_safe=True, register=False)
async def fail(how: str) -> None:
    """Fail."""
    if how == "declared":
        raise AgentError("NO_STOCK", "there is none left", "conflict", details={"left": 0})
    raise RuntimeError("postgres://user:hunter2@db")


TOOLS = (big, echo, pair, hold, steps, fail)


class Caller:
    """A client on a connection of its own.

    Attributes:
        client: The connection.
        version: The version of the protocol.
        headers: Sent with everything.
        session: Its id, once there is one.
    """

    def __init__(self, client: Client, version: str, headers: Mapping[str, str] | None = None) -> None:
        self.client = client
        self.version = version
        self.headers = {**ACCEPT, **(headers or {})}
        self.session: str | None = None
        self._id = 0

    async def send(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> int:
        """Send a request; give its id."""
        self._id += 1
        headers = {**self.headers}
        if self.version == MODERN:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if "name" in params:
                headers["mcp-name"] = params["name"]
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
                **(meta or {}),
            }
        elif self.session is not None:
            headers |= {"mcp-protocol-version": self.version, "mcp-session-id": self.session}
        if meta is not None:
            params["_meta"] = meta
        await self.post(request(self._id, method, **params), headers)
        return self._id

    async def post(self, message: object, headers: Mapping[str, str] | None = None) -> None:
        """Send anything, with the session if there is one."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        fields = {**self.headers} if headers is None else dict(headers)
        if headers is None and self.session is not None:
            fields["mcp-session-id"] = self.session
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"host": "127.0.0.1", **fields}.items())
        await self.client.send(f"POST /mcp HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def hello(self) -> Answer:
        """Begin a session; what speaks no version that has them needs none."""
        await self.send("initialize", **{**HELLO[0]["params"], "protocolVersion": self.version})
        answer = await self.client.answer()
        if answer.status == 200:
            self.session = answer.headers["mcp-session-id"]
            await self.post(HELLO[1])
            accepted = await self.client.answer()
            assert (accepted.status, accepted.body) == (202, b"")
            assert "content-type" not in accepted.headers  # of nothing
        return answer

    async def ask(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The answer to a request: the last message of what comes for it."""
        sent = await self.send(method, meta, **params)
        found: dict[str, Any] = messages(await self.client.answer())[-1]
        assert found["id"] == sent
        return found

    async def call(self, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        """The result of a call."""
        found: dict[str, Any] = (await self.ask("tools/call", meta, name=tool, arguments=arguments))["result"]
        return found


def messages(answer: Answer) -> list[Any]:
    """The JSON-RPC messages in an answer."""
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return [answer.json]
    lines = answer.body.decode().replace("\r\n", "\n").split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@asynccontextmanager
async def calling(
    server: Running, version: str = "2025-11-25", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Caller]:
    """A client that has begun its session, if its version has them."""
    async with server.client() as client:
        caller = Caller(client, version, headers)
        if version != MODERN:
            await caller.hello()
        yield caller


async def is_running(engine: Engine, number: int = 1) -> None:
    """Wait until so many executions run."""
    await reaches(lambda: engine.statistics().running == number)


async def reaches(holds: Any) -> None:
    """Wait for what nothing tells of."""
    with trio.fail_after(20):
        while not holds():  # noqa: ASYNC110 - see above
            await trio.sleep(0.005)


async def last_record(engine: Engine) -> ExecutionRecord:
    """The record of the one execution, once it has ended."""
    await is_running(engine, 0)
    (record,) = (record for record in engine.audit.newest() if record.tool)  # the others are refusals
    return record
