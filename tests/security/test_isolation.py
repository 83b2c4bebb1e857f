"""Callers that must not meet: identities, results, ids and listings, over every transport with callers over a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import pytest
import trio

import carmy_http
import carmy_websocket
from carmy_engine import (
    AgentContext,
    BearerTokens,
    ExecutionCompleted,
    ExecutionRequest,
    HttpSettings,
    McpSettings,
    RequireToolPermission,
    Settings,
    open_engine,
    tool,
)
from carmy_engine.abc import Executor
from carmy_engine.testing import compile_tool
from carmy_http import open_http
from carmy_websocket import open_websocket
from tests.support.http import Client

CALLERS = 200


class Meeting:
    """A place where calls wait for one another, so that all of them run at one time."""

    def __init__(self) -> None:
        self.count = 0
        self.complete = trio.Event()


meeting = Meeting()


@pytest.fixture(autouse=True)
def empty_meeting() -> None:
    """No test meets the calls of another."""
    meeting.count, meeting.complete = 0, trio.Event()


@tool(effect="write", parallel_safe=True)
async def meet(ctx: AgentContext, word: str) -> dict[str, Any]:
    """Wait until every caller is here, then return what is known about this one."""
    meeting.count += 1
    if meeting.count == CALLERS:
        meeting.complete.set()
    await meeting.complete.wait()
    return {"principal": ctx.principal, "granted": len(ctx.permissions), "word": word, "id": ctx.execution_id}


def numbered(number: int) -> Any:
    """A tool that only some callers may use."""

    @tool(name=f"only_{number}", effect="read", parallel_safe=True)
    async def only() -> int:
        """Return the number."""
        return number

    return only


@tool(effect="destructive", parallel_safe=True)
async def drop() -> str:
    """Drop."""
    return "dropped"


TOOLS = (meet, drop, *map(numbered, range(5)))


def context_of(number: int) -> AgentContext:
    """The context of a caller: it may use one of the numbered tools, and every other caller may drop without a question."""
    granted = {"tool:meet", "tool:drop", f"tool:only_{number % 5}", *(["confirm:drop"] if number % 2 else [])}
    return AgentContext(principal=f"caller {number}", permissions=granted)


@asynccontextmanager
async def serving(kind: str) -> AsyncIterator[str]:
    """A server; the URL for clients."""
    front_end: Literal["hypercorn", "native"] = "hypercorn" if kind == "hypercorn" else "native"
    settings = Settings(
        address="127.0.0.1:0",
        mcp=McpSettings(sessions=False),
        http=HttpSettings(server=front_end, max_connections=2 * CALLERS + 10),
    )
    serve = carmy_websocket.serve if kind == "websocket" else carmy_http.serve
    tokens = BearerTokens({f"token-{number}": context_of(number) for number in range(CALLERS)})
    async with (
        open_engine(
            tools=[compile_tool(function, {}) for function in TOOLS],
            settings=settings,
            policies=[RequireToolPermission()],
            authenticator=tokens,
        ) as engine,
        trio.open_nursery() as nursery,
    ):
        line: str = await nursery.start(serve, engine)
        yield line.rpartition(" ")[2]
        nursery.cancel_scope.cancel()


def opening(kind: str, url: str, number: int) -> AbstractAsyncContextManager[Executor]:
    """A client with the token of a caller."""
    token = f"token-{number}"
    if kind == "websocket":
        return open_websocket(url, token=token)
    return open_http(url, token=token)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["native", "hypercorn", "websocket"])
async def test_interleaved_callers(kind: str) -> None:
    """Of 200 callers at one time, with equal request ids, each gets its own result, listing, permissions and replays only."""
    ids: set[str] = set()

    async def run(url: str, number: int) -> None:
        async with opening(kind, url, number) as client:
            assert {spec.name for spec in (await client.catalog()).tools} == {"meet", "drop", f"only_{number % 5}"}
            request = ExecutionRequest(tool="meet", arguments={"word": f"word {number}"}, request_id="the same")
            first: Any = (await client.execute(request)).data
            assert (first["principal"], first["word"]) == (f"caller {number}", f"word {number}")
            assert first["granted"] == len(context_of(number).permissions)
            assert (await client.execute(request)).data == first  # from the store
            ids.add(first["id"])
            for other in range(5):
                error = (await client.execute(ExecutionRequest(tool=f"only_{other}"))).error
                assert (error is None) == (other == number % 5)
            dropped = (await client.execute(ExecutionRequest(tool="drop"))).error
            assert (dropped is None) == bool(number % 2)

    async with serving(kind) as url, trio.open_nursery() as nursery:
        for number in range(CALLERS):
            nursery.start_soon(run, url, number)
    assert (meeting.count, len(ids)) == (CALLERS, CALLERS)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A connection."""
    async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
        yield Client(stream)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["native", "hypercorn"])
async def test_interleaved_callers_of_mcp(kind: str) -> None:
    """Over MCP the same holds, for messages with equal ids."""

    async def run(url: str, number: int) -> None:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer token-{number}",
        }
        async with connected(url) as client:

            async def ask(method: str, **params: Any) -> Any:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return (await client.request("POST", "/mcp", headers, json.dumps(message).encode())).json["result"]

            names = {listed["name"] for listed in (await ask("tools/list"))["tools"]}
            assert names == {"meet", "drop", f"only_{number % 5}"}
            call = {"name": "meet", "arguments": {"word": f"word {number}"}, "_meta": {"carmy/request_id": "the same"}}
            first = (await ask("tools/call", **call))["structuredContent"]
            assert (first["principal"], first["word"]) == (f"caller {number}", f"word {number}")
            assert first["granted"] == len(context_of(number).permissions)
            assert (await ask("tools/call", **call))["structuredContent"] == first
            for other in range(5):
                result = await ask("tools/call", name=f"only_{other}", arguments={})
                assert result["isError"] == (other != number % 5)
            assert (await ask("tools/call", name="drop", arguments={}))["isError"] != bool(number % 2)

    async with serving(kind) as url, trio.open_nursery() as nursery:
        for number in range(CALLERS):
            nursery.start_soon(run, url, number)
    assert meeting.count == CALLERS


@pytest.mark.parametrize("kind", ["native", "hypercorn"])
async def test_ids_of_others(kind: str) -> None:
    """The id of another caller's execution is unknown: it cannot be looked up, cancelled or listed, running or ended."""
    async with serving(kind) as url:

        async def ask(method: str, path: str, number: int) -> tuple[int, str | None]:
            async with connected(url) as client:
                answer = await client.request(method, path, {"authorization": f"Bearer token-{number}"})
            return answer.status, answer.code if answer.status != 200 else None

        async with open_http(url, token="token-1") as ana:
            meeting.count = 1 - CALLERS  # one more is not enough
            request = ExecutionRequest(tool="meet", arguments={"word": "secret"})
            async with ana.stream(request) as events:
                path = f"/agent/executions/{(await events.receive()).execution_id}"
                assert (await ask("GET", path, 1))[0] == 200
                for method in ("GET", "DELETE"):
                    assert await ask(method, path, 2) == (404, "EXECUTION_NOT_FOUND")
                assert await ask("GET", "/agent/executions", 2) == (403, "FORBIDDEN")
                meeting.complete.set()
                last = [event async for event in events][-1]
                assert isinstance(last, ExecutionCompleted)
                assert last.result.data["word"] == "secret"  # the others have not cancelled it
            assert (await ask("GET", path, 1))[0] == 200
            assert await ask("GET", path, 2) == (404, "EXECUTION_NOT_FOUND")
