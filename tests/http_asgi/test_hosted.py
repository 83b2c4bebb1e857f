"""`App.asgi` on the ASGI servers of others: opened and closed with them, alone and below a path, with the rules of the project's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import trio
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from carmy_engine import AgentContext, App, BearerTokens, ExecutionRequest, HttpSettings, Settings, State
from carmy_http import open_http
from tests.support.asgi_servers import SERVERS, on_uvicorn

JSON = {"content-type": "application/json"}


class Log(list[str]):
    """What happened; appended to by threads."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def add(self, text: str) -> None:
        """Add an entry."""
        with self.changed:
            self.append(text)
            self.changed.notify_all()

    async def until(self, text: str) -> None:
        """Wait for an entry."""

        def wait() -> bool:
            with self.changed:
                return self.changed.wait_for(lambda: text in self, 10)

        assert await trio.to_thread.run_sync(wait), f"{text!r} is not in {self}"


def shop(log: Log, **settings: Any) -> App:
    """An application with state, a slow tool and a stream."""
    app = App("shop", settings=Settings(**settings))

    async def opened() -> AsyncIterator[Log]:
        log.add("opened")
        yield log
        log.add("closed")

    app.provide(opened)

    @app.tool(effect="none")
    async def greet(log: State[Log], ctx: AgentContext, name: str) -> str:
        return f"hello {name} {ctx.principal}"

    @app.tool(effect="write", timeout=20)
    async def wait(log: State[Log], ctx: AgentContext) -> str:
        log.add("waiting")
        try:
            await trio.sleep_forever()
        finally:
            cause = ctx.cancellation.cause
            log.add(f"ended {cause.value if cause else None}")
        return ""

    @app.tool(effect="write", timeout=20)
    async def finish(log: State[Log]) -> str:
        log.add("finishing")
        await trio.sleep(0.3)
        return "finished"

    @app.tool(effect="none")
    async def many(ctx: AgentContext, size: int) -> int:
        for number in range(size):
            await ctx.progress.partial("x" * 1000 + str(number))
        return size

    return app


async def post(url: str, body: Any, path: str = "/agent/execute", **headers: str) -> Any:
    """One request by a client that has nothing to do with ours."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await client.post(url + path, content=content, headers={**JSON, **headers}, timeout=20)


def greeting(name: str = "ana") -> dict[str, Any]:
    """The body of a call."""
    return {"tool": "greet", "arguments": {"name": name}}


@pytest.mark.parametrize("server", SERVERS)
async def test_the_lifespan_opens_and_closes_the_application(server: str) -> None:
    """State is entered before the first request, and left when the server stops."""
    log = Log()
    with SERVERS[server](shop(log).asgi()) as served:
        answer = await post(served.url, greeting())
        assert (answer.status_code, answer.json()["data"]) == (200, "hello ana None")
        assert log == ["opened"]
        found = await post(served.url, greeting(), path="/agent/tools")
        assert found.status_code == 405
    assert log == ["opened", "closed"]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_client_that_leaves_cancels_its_call(server: str) -> None:
    """With the cause `disconnect`, before the answer and in a stream."""
    log = Log()
    with SERVERS[server](shop(log).asgi()) as served:
        for headers in ({}, {"accept": "text/event-stream"}):
            log.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: post(served.url, {"tool": "wait"}, **headers))  # noqa: B023
                await log.until("waiting")
                nursery.cancel_scope.cancel()
            await log.until("ended disconnect")


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_that_stops_answers_running_calls(server: str) -> None:
    """The call gets its answer, and then the application is closed."""
    log = Log()
    answers = []
    with SERVERS[server](shop(log).asgi()) as served:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                answers.append((await post(served.url, {"tool": "finish"})).json()["data"])

            nursery.start_soon(call)
            await log.until("finishing")
            served.stop()
    assert answers == ["finished"]
    assert log[-1] == "closed"


@pytest.mark.parametrize("server", SERVERS)
async def test_a_long_stream_arrives_whole(server: str) -> None:
    """More pieces than the bounded way between the threads holds."""
    with SERVERS[server](shop(Log()).asgi()) as served:
        async with open_http(served.url) as client:
            request = ExecutionRequest(tool="many", arguments={"size": 500})
            async with client.stream(request) as events:
                found = [event async for event in events]
    assert len(found) == 500 + 4
    assert [event.seq for event in found] == list(range(504))


async def test_the_rules_of_a_request_hold() -> None:
    """`Host`, sizes, slow bodies, shapes and tokens, as on the project's own front ends."""
    app = shop(Log(), http=HttpSettings(body_timeout_secs=0.2, max_body_bytes=1000))
    app.authenticate(BearerTokens({"secret": AgentContext(principal="ana")}))
    with on_uvicorn(app.asgi()) as served:
        port = int(served.url.rpartition(":")[2])
        token = {"authorization": "Bearer secret"}
        assert (await post(served.url, greeting())).status_code == 401
        assert (await post(served.url, greeting(), **token)).json()["data"] == "hello ana ana"
        assert (await post(served.url, greeting(), host="evil.example", **token)).status_code == 403
        assert (await post(served.url, b"x" * 1001, **token)).status_code == 413
        assert (await post(served.url, b"{", **token)).json()["error"]["code"] == "INVALID_REQUEST"
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        head = "POST /agent/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        await stream.send_all((head + "authorization: Bearer secret\r\ncontent-length: 10\r\n\r\n{").encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 408")
        await stream.aclose()
        chunked = (b"x" * 400 for _ in range(4))
        async with httpx2.AsyncClient(trust_env=False) as client:

            async def chunks() -> AsyncIterator[bytes]:
                for chunk in chunked:
                    yield chunk

            answer = await client.post(served.url + "/agent/execute", content=chunks(), headers={**JSON, **token})
            assert answer.status_code == 413
            assert (await client.get(served.url + "/health")).status_code == 200
            assert (await client.head(served.url + "/agent/tools", headers=token)).status_code == 200


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_it_is_mounted_below_a_path(framework: Any) -> None:
    """With the framework's lifespan; discovery lists the addresses with the prefix, MCP included; WebSocket is refused."""
    log = Log()
    api = shop(log).asgi()
    web = framework(lifespan=api.lifespan, routes=[Mount("/agents", api)])
    with on_uvicorn(web) as served:
        answer = await post(served.url, greeting(), path="/agents/agent/execute")
        assert answer.json()["data"] == "hello ana None"
        async with httpx2.AsyncClient(trust_env=False) as client:
            document = (await client.get(served.url + "/agents/.well-known/agent")).json()
        assert document["execute_url"] == "/agents/agent/execute"
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            },
        }
        accept = "application/json, text/event-stream"
        mcp = await post(served.url, hello, path="/agents/mcp", accept=accept)
        assert mcp.status_code == 200
        assert "serverInfo" in mcp.text
        stream = await trio.open_tcp_stream("127.0.0.1", int(served.url.rpartition(":")[2]))
        await stream.send_all(
            b"GET /agents/agent/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert (await stream.receive_some()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 403"))
        await stream.aclose()
    assert log == ["opened", "closed"]


async def test_without_a_lifespan_the_first_request_opens_it() -> None:
    """Once for all requests that arrive together; it is closed with the loop."""
    log = Log()
    with on_uvicorn(shop(log).asgi(), lifespan="off") as served, contextlib.ExitStack():
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(post, served.url, greeting(str(number)))
        assert log == ["opened"]
    await log.until("closed")


async def test_without_a_lifespan_on_trio_the_first_request_opens_it() -> None:
    """It is closed at the end of the run."""
    log = Log()
    api = shop(log).asgi()

    async def main() -> list[Any]:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": json.dumps(greeting()).encode(), "more_body": False}]

        async def receive() -> Any:
            if not messages:
                await trio.sleep_forever()
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/agent/execute", "headers": headers, "client": None}
        await api(scope, receive, send)
        return sent

    sent = await trio.to_thread.run_sync(lambda: trio.run(main))
    assert sent[0]["status"] == 200
    assert json.loads(sent[1]["body"])["data"] == "hello ana None"
    assert log == ["opened", "closed"]


async def test_a_failing_start_is_the_failure_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """The lifespan reports every problem, and the server does not start."""
    app = App("shop")

    def broken() -> Log:
        raise ValueError("no database")

    app.provide(broken)
    messages: list[Any] = []

    async def main() -> None:
        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            messages.append(message)

        await app.asgi()({"type": "lifespan"}, receive, send)

    await trio.to_thread.run_sync(lambda: asyncio.run(main()))
    await trio.to_thread.run_sync(lambda: trio.run(main))
    assert [message["type"] for message in messages] == ["lifespan.startup.failed"] * 2
    assert all("STATE_FAILED: the state Log from the function broken" in message["message"] for message in messages)
