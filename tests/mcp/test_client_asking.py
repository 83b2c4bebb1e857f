"""Questions and log messages of a server: they reach the caller of the call that they belong to, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from carmy_engine import AgentContext, App, ExecutionCompleted, ExecutionRequest, Settings, ToolLog
from carmy_engine.abc import Answer, Root
from carmy_engine.testing import ScriptedClient
from carmy_mcp import McpClientLimits, open_mcp, serve_http
from tests.mcp.test_client import request, scripted
from tests.mcp.test_client_http import official
from tests.stdio.conftest import appears
from tests.support.http_client import Exchange
from tests.support.http_client import scripted as scripted_http

ROME = {"city": "Rome", "degrees": 20.5}


class Shipping(msgspec.Struct):
    """What a person fills in."""

    city: str
    express: bool = False


def asking() -> App:
    """An application whose tools ask."""
    app = App("asking", settings=Settings(address="127.0.0.1:0"))

    @app.tool(effect="none", parallel_safe=True)
    async def ship(ctx: AgentContext) -> str:
        """Ask, if there is a person."""
        if not ctx.can_ask:
            return "nobody"
        shipping = await ctx.ask(Shipping, "Where to?")
        return f"{shipping.city} {shipping.express}"

    @app.tool(effect="none", parallel_safe=True)
    async def write(ctx: AgentContext) -> str:
        """Ask a model, and for roots."""
        roots = await ctx.roots()
        return (await ctx.sample("Write!")).text + " " + roots[0].uri

    return app


@asynccontextmanager
async def served(app: App) -> AsyncIterator[str]:
    """The URL of a server of an application."""
    with trio.fail_after(50):
        async with app.open() as engine, trio.open_nursery() as nursery:
            line: str = await nursery.start(partial(serve_http, engine))
            yield line.rpartition(" ")[2]
            nursery.cancel_scope.cancel()


async def test_questions_of_a_server_of_ours() -> None:
    """A question, a request to a model and one for roots reach the client that is bound; a caller without one is not asked."""
    person = ScriptedClient(
        answers=[{"city": "Oslo"}, Answer("decline")], samples=["words"], roots=[Root("file:///srv")]
    )
    async with served(asking()) as url, open_mcp(url) as client:
        bound = client.bind(client=person)
        assert (await bound.execute(request("ship"))).data == "Oslo False"
        assert person.asked[0][0] == "Where to?"
        declined = await bound.execute(request("ship"))
        assert declined.error is not None
        assert declined.error.code == "ANSWER_DECLINED"
        assert (await bound.execute(request("write"))).data == "words file:///srv"
        assert (await client.execute(request("ship"))).data == "nobody"


async def test_a_gateway_passes_questions_on() -> None:
    """Through two hops, the person behind the caller is asked, and a caller without a person is not."""
    async with served(asking()) as url:
        gateway = App("gateway").mount(lambda: open_mcp(url, tools={"ship": {"effect": "read"}}), prefix="far.")
        person = ScriptedClient(answers=[{"city": "Oslo", "express": True}])
        async with gateway.open() as engine:
            assert (await engine.bind(client=person).execute(request("far.ship"))).data == "Oslo True"
            assert (await engine.execute(request("far.ship"))).data == "nobody"


@pytest.mark.parametrize("old", [False, True], ids=["stateless", "sessions"])
async def test_questions_of_the_official_server(*, old: bool) -> None:
    """The official SDK's server asks in the way of its version, and gets the person's answer; so through a gateway."""
    person = ScriptedClient(answers=[ROME, ROME])
    with trio.fail_after(50):
        async with official(old=old) as url:
            async with open_mcp(url) as client:
                assert (await client.bind(client=person).execute(request("forecast"))).data == "Rome 20.5"
            gateway = App("gateway").mount(open_mcp(url, tools={"forecast": {"effect": "read"}}))
            async with gateway.open() as engine:
                assert (await engine.bind(client=person).execute(request("forecast"))).data == "Rome 20.5"
                alone = await engine.execute(request("forecast"))
                assert alone.error is not None
                assert alone.error.code == "TOOL_ERROR"
    assert [message for message, _ in person.asked] == ["really?", "really?"]


async def test_a_question_over_a_shared_connection(tmp_path: Path) -> None:
    """One call in flight is asked. With a second caller, it is not known which of them is meant, and neither is asked."""
    first, second = ScriptedClient(answers=[ROME]), ScriptedClient(answers=[ROME])
    async with scripted(tmp_path) as client:
        one, other = client.bind(client=first), client.bind(client=second)
        answer = json.loads((await one.execute(request("elicit"))).data)
        assert answer == {"action": "accept", "content": {"color": "red", **ROME}}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.execute, request("hang"))
            await appears(tmp_path / "hangs")
            refused = (await one.execute(request("elicit"))).data
            assert "Elicitation not supported" in refused
            nursery.cancel_scope.cancel()
    assert not second.asked
    assert len(first.asked) == 1


async def test_a_question_that_outlives_its_call(tmp_path: Path) -> None:
    """When a call ends, its question is withdrawn from the person."""
    person = ScriptedClient(answers=[])
    async with scripted(tmp_path) as client:
        late = await client.bind(client=person).execute(request("elicit", timeout_ms=200))
        assert late.status == "timed_out"
        assert person.is_waiting.is_set()
        assert (await client.execute(request("count"))).data == "counted"


async def test_log_messages(tmp_path: Path) -> None:
    """A log message is an event of the only call, unless its client takes it; a flood of them is cut."""
    async with scripted(tmp_path) as client:
        async with client.stream(request("talk", count=3)) as channel:
            events = [event async for event in channel]
        assert [event.message for event in events if isinstance(event, ToolLog)] == ["line 0", "line 1", "line 2"]
        person = ScriptedClient()
        async with client.bind(client=person).stream(request("talk", count=5000)) as channel:
            events = [event async for event in channel]
        assert isinstance(events[-1], ExecutionCompleted)
        assert len(person.logged) == 1000
        assert "left out" in person.logged[-1][1]


@asynccontextmanager
async def modern(results: list[dict[str, Any]], seen: list[dict[str, Any]]) -> AsyncIterator[str]:
    """The URL of a server without sessions, whose calls get the given results; the last one again and again."""

    async def script(exchange: Exchange) -> None:
        while True:
            await exchange.read()
            message = json.loads(exchange.body or b"{}")
            if message.get("method") == "server/discover":
                result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            elif message.get("method") == "tools/list":
                result = {"tools": [{"name": "far", "inputSchema": {"type": "object"}}]}
            else:
                seen.append(message)
                result = results.pop(0) if len(results) > 1 else results[0]
            body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
            await exchange.answer(200, body, content_type="application/json")

    with trio.fail_after(50):
        async with scripted_http(script) as url:
            yield f"{url}/mcp"


def question(method: str = "elicitation/create", **more: Any) -> dict[str, Any]:
    """A result that asks."""
    params = {"message": "really?", "requestedSchema": {"type": "object", "properties": {}}}
    return {"resultType": "input_required", "inputRequests": {"q": {"method": method, "params": params}}, **more}


async def test_rounds() -> None:
    """The state goes back as it came, and only if there was one; every request has an id of its own."""
    done = {"content": [{"type": "text", "text": "done"}]}
    results = [question(requestState="opaque"), question(), {"resultType": "input_required", "requestState": "s"}, done]
    seen: list[dict[str, Any]] = []
    person = ScriptedClient(answers=[{}, {}])
    async with modern(results, seen) as url, open_mcp(url, client=person) as client:
        assert (await client.execute(request("far"))).data == "done"
    first, second, third, fourth = (one["params"] for one in seen)
    assert "requestState" not in first
    assert (second["requestState"], third.get("requestState"), fourth["requestState"]) == ("opaque", None, "s")
    assert second["inputResponses"] == third["inputResponses"] == {"q": {"action": "accept", "content": {}}}
    assert "inputResponses" not in fourth
    assert len({one["id"] for one in seen}) == 4


@pytest.mark.parametrize("result", [question(), question("sampling/createMessage"), question("unknown/thing")])
async def test_questions_without_an_answer(result: dict[str, Any]) -> None:
    """A server that asks for what its caller has not offered gets no answer, and the error names what it wanted."""
    async with modern([result], []) as url, open_mcp(url) as client:
        refused = await client.execute(request("far"))
        assert refused.error is not None
        assert refused.error.code == "TOOL_ERROR"
        assert refused.error.details == {"asked": [result["inputRequests"]["q"]["method"]]}


async def test_questions_without_end() -> None:
    """A server that asks again and again is given up."""
    seen: list[dict[str, Any]] = []
    person = ScriptedClient(answers=[{}] * 10)
    limits = McpClientLimits(max_rounds=5)
    async with modern([question()], seen) as url, open_mcp(url, client=person, limits=limits) as client:
        refused = await client.execute(ExecutionRequest(tool="far"))
        assert refused.error is not None
        assert refused.error.code == "TOOL_ERROR"
    assert len(seen) == 5


async def test_a_server_that_floods_with_questions(tmp_path: Path) -> None:
    """A server gets answers to a bounded number of questions; its connection and the calls go on."""
    async with scripted(tmp_path) as client:
        person = ScriptedClient(answers=[])
        result = await client.bind(client=person).execute(request("flood"))
        assert result.data == "flooded"
        assert len(person.asked) <= 64
        assert (await client.execute(request("count"))).data == "counted"
