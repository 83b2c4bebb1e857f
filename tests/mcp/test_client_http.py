"""The client over Streamable HTTP: the official SDK's server, and servers that answer badly, late or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config
from mcp import Client

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    ClosedError,
    ConfigurationError,
    ExecutionRequest,
    OutcomeUnknownError,
    Settings,
    ToolProgress,
)
from carmy_mcp import McpClientLimits, open_mcp, serve_http
from tests.mcp import far
from tests.mcp.test_client import CALLS, compare, request
from tests.support.http_client import Exchange, scripted

SEEN = ["weather", "add", "text", "several", "picture", "fail", "steps"]


def handshake_only(app: Any) -> Any:
    """An application that knows nothing of the versions without a handshake."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()
        if b"server/discover" in message["body"]:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"nothing here"})
            return
        first = [message]

        async def again() -> Any:
            return first.pop() if first else await receive()

        await app(scope, again, send)

    return answer


@asynccontextmanager
async def official(*, old: bool) -> AsyncIterator[str]:
    """The URL of a server of the official SDK, with a version that has a handshake or one without."""
    server = far.official_server()
    app = server.streamable_http_app()
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.graceful_timeout = 0.1
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = partial(
            hypercorn.trio.serve, handshake_only(app) if old else app, config, shutdown_trigger=stop.wait, mode="asgi"
        )
        (url,) = await nursery.start(serve)
        yield f"{url}/mcp"
        stop.set()


@pytest.mark.parametrize("old", [False, True], ids=["stateless", "sessions"])
async def test_shadowing(*, old: bool) -> None:
    """Over HTTP as well, tools give what a direct call of the SDK's client gets, with and without sessions; reports rise."""
    # Its client is in front of the server itself: over HTTP it leaves streams to the garbage collector.
    direct = Client(far.official_server())
    with trio.fail_after(50):
        async with official(old=old) as url, open_mcp(url) as ours, direct as theirs:
            listed = {tool.name for tool in (await theirs.list_tools()).tools}
            assert {spec.name for spec in (await ours.catalog()).tools} == listed
            for tool, arguments in CALLS:
                if tool in SEEN:
                    compare(await ours.execute(request(tool, **arguments)), await theirs.call_tool(tool, arguments))
            async with ours.stream(request("steps", count=20)) as channel:
                reports = [event.progress or 0 async for event in channel if isinstance(event, ToolProgress)]
            assert reports == sorted(set(reports))
            assert reports[-1] == 20


Answer = Callable[[Exchange, dict[str, Any]], Awaitable[None]]

LISTED = {"tools": [{"name": "far", "inputSchema": {"type": "object"}}]}


async def result(exchange: Exchange, message: dict[str, Any], value: dict[str, Any], **headers: str) -> None:
    """Answer a message with a result."""
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()
    await exchange.answer(200, body, content_type="application/json", **headers)


@asynccontextmanager
async def far_server(answer: Answer, log: list[str] | None = None) -> AsyncIterator[str]:
    """The URL of a server with sessions and one tool, whose calls are answered by the test."""

    async def script(exchange: Exchange) -> None:
        while True:
            await exchange.read()
            verb = exchange.head.split(b" ")[0].decode()
            message = json.loads(exchange.body or b"{}")
            method = message.get("method", verb)
            if log is not None:
                log.append(method)
            if method == "initialize":
                info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": NAME}
                await result(exchange, message, info, mcp_session_id="s1")
            elif method == "tools/list":
                assert b"mcp-session-id: s1" in exchange.head.lower()
                await result(exchange, message, LISTED)
            elif method == "tools/call" or b"last-event-id" in exchange.head.lower():
                await answer(exchange, message)
            elif verb == "POST" and "id" not in message:
                await exchange.answer(202, b"")
            else:
                await exchange.answer(405, b"")

    with trio.fail_after(50):
        async with scripted(script) as url:
            yield f"{url}/mcp"


NAME = {"name": "scripted", "version": "1"}


async def test_calls_without_an_answer() -> None:
    """A call whose connection breaks, that a proxy answers with 502, or whose stream ends may have run; the client goes on."""

    async def broken(exchange: Exchange, message: dict[str, Any]) -> None:
        raise trio.BrokenResourceError

    async def proxied(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.answer(502, b"<html>", content_type="text/html")

    async def ended(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.answer(200, b": nothing\n\n", content_type="text/event-stream")

    async def cut(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.send(b"HTTP/1.1 200 \r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        raise trio.BrokenResourceError

    for answer in (broken, proxied, ended, cut):
        async with far_server(answer) as url, open_mcp(url) as client:
            for _ in range(2):
                with pytest.raises(OutcomeUnknownError) as caught:
                    await client.execute(request("far", id="r1"))
                assert caught.value.request_id == "r1"
            assert [spec.name for spec in (await client.catalog()).tools] == ["far"]


async def test_answers_without_end() -> None:
    """An answer over the limit, as one document or as an event, is lost, and its connection with it; the client goes on."""

    async def large(exchange: Exchange, message: dict[str, Any]) -> None:
        kind = message["params"]["arguments"]["kind"]
        await exchange.answer(200, b"data: " + b"x" * 6000, content_type=kind)

    async with far_server(large) as url, open_mcp(url, limits=McpClientLimits(max_answer_bytes=5000)) as client:
        for kind in ("application/json", "text/event-stream"):
            with pytest.raises(OutcomeUnknownError, match="more than 5000 bytes"):
                await client.execute(request("far", kind=kind))
        assert [spec.name for spec in (await client.catalog()).tools] == ["far"]


async def test_calls_that_are_refused() -> None:
    """A call that is refused before it is one has not run, as the error states."""

    async def refuse(exchange: Exchange, message: dict[str, Any]) -> None:
        await exchange.answer(403, b"no", content_type="text/plain")

    async with far_server(refuse) as url, open_mcp(url) as client:
        with pytest.raises(ClosedError, match="answered 403; the call was not sent"):
            await client.execute(request("far"))


async def test_a_stream_that_is_continued() -> None:
    """A stream that ends before its answer, and has sent its position, is continued from there."""
    asked: list[dict[str, Any]] = []

    async def answer(exchange: Exchange, message: dict[str, Any]) -> None:
        headers = {"content_type": "text/event-stream"}
        if message:
            asked.append(message)
            await exchange.answer(200, b"id: p1\ndata:\n\n", **headers)
            return
        assert b"last-event-id: p1" in exchange.head.lower()
        found = {"content": [{"type": "text", "text": "at last"}]}
        body = {"jsonrpc": "2.0", "id": asked[0]["id"], "result": found}
        await exchange.answer(200, b"data: " + json.dumps(body).encode() + b"\n\n", **headers)

    async with far_server(answer) as url, open_mcp(url, limits=McpClientLimits(resume_secs=0.01)) as client:
        assert (await client.execute(request("far"))).data == "at last"
    assert len(asked) == 1


async def test_leaving_a_call_and_the_session() -> None:
    """Leaving a call in a session sends a cancel; leaving the block ends the session."""
    log: list[str] = []
    called = trio.Event()

    async def hang(exchange: Exchange, message: dict[str, Any]) -> None:
        called.set()
        await trio.sleep_forever()

    async with far_server(hang, log) as url:
        async with open_mcp(url) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.execute, request("far"))
                await called.wait()
                nursery.cancel_scope.cancel()
            while "notifications/cancelled" not in log:
                await client.catalog()
            late = await client.execute(request("far", timeout_ms=100))
            assert late.status == "timed_out"
        assert "DELETE" in log


async def test_servers_that_cannot_be_reached() -> None:
    """A server that is not there is a `ClosedError` when the block begins, and so is one that never answers."""

    async def silent(exchange: Exchange) -> None:
        await trio.sleep_forever()

    with trio.fail_after(50):
        async with scripted(silent) as url:
            with pytest.raises(ClosedError, match=r"not ready within 0\.3 s"):
                async with open_mcp(f"{url}/mcp", limits=McpClientLimits(ready_secs=0.3)):
                    raise AssertionError("it cannot be open")
        with pytest.raises(ClosedError, match="cannot connect"):
            async with open_mcp(f"{url}/mcp"):
                raise AssertionError("it cannot be open")
    for bad in ("ftp://x/mcp", "http://a:b@x/mcp", "http://x:y/mcp", "/mcp"):
        with pytest.raises(ConfigurationError):
            async with open_mcp(bad):
                raise AssertionError("it cannot be open")


async def test_a_gateway_whose_server_goes() -> None:
    """A write that was not sent, because the server had gone, leaves nothing in doubt; one that was cut off does."""

    async def cut(exchange: Exchange, message: dict[str, Any]) -> None:
        raise trio.BrokenResourceError

    stop, stopped = trio.Event(), trio.Event()

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        async with far_server(cut) as url:
            task_status.started(url)
            await stop.wait()
        stopped.set()

    app = App("gateway")
    async with trio.open_nursery() as nursery:
        app.mount(open_mcp(await nursery.start(serve)))
        async with app.open() as engine:
            lost = await engine.execute(request("far", id="r1"))
            assert lost.error is not None
            assert lost.error.code == "EXECUTION_UNCERTAIN"
            stop.set()
            await stopped.wait()
            for _ in range(2):
                gone = await engine.execute(request("far", id="r2"))
                assert gone.error is not None
                assert (gone.error.code, gone.error.details) == ("EXECUTOR_UNAVAILABLE", {"phase": "waiting"})


async def test_credentials() -> None:
    """The token reaches a server of ours; without it the block does not begin, and the server's own error gives the reason."""

    def authenticate(credentials: Any) -> AgentContext | None:
        return AgentContext(principal="ana") if credentials.bearer == "t0ken" else None

    app = App("shop", settings=Settings(address="127.0.0.1:0")).authenticate(authenticate)

    @app.tool(effect="write", parallel_safe=True)
    async def who(ctx: AgentContext) -> str:
        return str(ctx.principal)

    with trio.fail_after(50):
        async with app.open() as engine, trio.open_nursery() as nursery:
            line: str = await nursery.start(partial(serve_http, engine))
            url = line.rpartition(" ")[2]
            async with open_mcp(url, token="t0ken") as client:
                first = await client.execute(ExecutionRequest(tool="who", request_id="r1"))
                again = await client.execute(ExecutionRequest(tool="who", request_id="r1"))
                assert (first.data, again.data, again.replayed) == ("ana", "ana", True)
            with pytest.raises(AgentError, match="UNAUTHENTICATED"):
                async with open_mcp(url):
                    raise AssertionError("it cannot be open")
            nursery.cancel_scope.cancel()
