"""The public ASGI application, without our own server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from carmy_engine import Engine, HttpSettings, Settings, open_engine
from carmy_engine.testing import compile_tool
from carmy_http import application
from tests.http.tools import echo, progress, sleep


class Exchange:
    """One request and what the application sent."""

    def __init__(self, app: Any, method: str, path: str, body: bytes = b"", **scope: Any) -> None:
        headers = [(b"host", b"localhost"), *scope.pop("headers", [])]
        self.scope = {"type": "http", "method": method, "path": path, "headers": headers, "root_path": "", **scope}
        self.app = app
        self.sent: list[Any] = []
        self.to_app, self.inbox = trio.open_memory_channel[Any](10)
        self.to_app.send_nowait({"type": "http.request", "body": body[:5], "more_body": True})
        self.to_app.send_nowait({"type": "http.request", "body": body[5:], "more_body": False})

    async def run(self) -> Exchange:
        with trio.fail_after(5):
            await self.app(self.scope, self.inbox.receive, self.send)
        return self

    async def send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


@asynccontextmanager
async def mounted() -> AsyncIterator[tuple[Engine, Any]]:
    async with open_engine(tools=[compile_tool(function, {}) for function in (echo, progress, sleep)]) as engine:
        yield engine, application(engine)


def call(app: Any, tool: str, accept: bytes = b"*/*", **arguments: Any) -> Exchange:
    headers = [(b"content-type", b"application/json"), (b"accept", accept)]
    return Exchange(
        app, "POST", "/agent/execute", json.dumps({"tool": tool, "arguments": arguments}).encode(), headers=headers
    )


async def test_json_and_events() -> None:
    """The application answers on any server that speaks ASGI, whole and as a stream."""
    async with mounted() as (_, app):
        whole = await call(app, "echo", text="hi").run()
        stream = await call(app, "progress", b"text/event-stream", count=2).run()
    assert (whole.status, json.loads(whole.body)["data"]) == (200, "hi")
    assert stream.body.startswith(b"event: execution.started\n")
    assert stream.body.count(b"event: execution.completed\n") == 1
    assert stream.sent[-1].get("more_body", False) is False


async def test_disconnect_cancels() -> None:
    """The client's end, reported through receive, cancels the execution; nothing is sent for a call without a stream."""
    async with mounted() as (engine, app):
        for accept in (b"*/*", b"text/event-stream"):
            exchange = call(app, "sleep", accept, seconds=60)
            exchange.to_app.send_nowait({"type": "http.disconnect"})
            await exchange.run()
            assert engine.statistics().running == 0
            assert accept != b"*/*" or exchange.sent == []
        assert {record.cause for record in engine.audit.newest()} == {"disconnect"}


async def test_disconnect_inside_the_body() -> None:
    """A client that leaves before its body is complete is not answered."""
    async with mounted() as (_, app):
        exchange = call(app, "echo")
        exchange.inbox.receive_nowait()
        exchange.inbox.receive_nowait()
        exchange.to_app.send_nowait({"type": "http.disconnect"})
        assert (await exchange.run()).sent == []


async def test_mounted_under_a_path() -> None:
    """Under a root path, whichever of the two ways the server reports it, routes match and discovery has the prefix."""
    async with mounted() as (_, app):
        for path in ("/tools/.well-known/agent", "/.well-known/agent"):
            answer = await Exchange(app, "GET", path, root_path="/tools").run()
            assert json.loads(answer.body)["execute_url"] == "/tools/agent/execute"
        assert (await Exchange(app, "GET", "/tools/health", root_path="/tools/").run()).status == 200
        assert (await Exchange(app, "GET", "/toolshealth", root_path="/tools").run()).status == 404


async def test_the_prefix_of_the_server_comes_before_the_setting() -> None:
    """``root_path`` of the scope replaces ``http.root_path``, which is the prefix where there is none."""
    settings = Settings(http=HttpSettings(root_path="/shop"))
    async with open_engine(tools=[compile_tool(echo, {})], settings=settings) as engine:
        app = application(engine)
        for path, root, found in [
            ("/tools/.well-known/agent", "/tools", "/tools/agent/execute"),
            ("/shop/.well-known/agent", "", "/shop/agent/execute"),
        ]:
            answer = await Exchange(app, "GET", path, root_path=root).run()
            assert json.loads(answer.body)["execute_url"] == found


async def test_lifespan() -> None:
    """Startup and shutdown are acknowledged."""
    async with mounted() as (_, app):
        sent: list[str] = []
        send, receive = trio.open_memory_channel[Any](2)
        send.send_nowait({"type": "lifespan.startup"})
        send.send_nowait({"type": "lifespan.shutdown"})

        async def keep(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message["type"])

        await app({"type": "lifespan"}, receive.receive, keep)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_websocket_is_refused() -> None:
    """A WebSocket scope is refused before it is accepted, with a JSON body where the server can send one."""
    async with mounted() as (_, app):
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({}, ["websocket.close"]),
            ({"websocket.http.response": {}}, ["websocket.http.response.start", "websocket.http.response.body"]),
        ]
        for extensions, kinds in cases:
            sent: list[str] = []
            send, receive = trio.open_memory_channel[Any](1)
            send.send_nowait({"type": "websocket.connect"})

            async def keep(message: Any, sent: list[str] = sent) -> None:
                await trio.lowlevel.checkpoint()
                sent.append(message["type"])

            await app({"type": "websocket", "extensions": extensions}, receive.receive, keep)
            assert sent == kinds


async def test_head_sends_no_body() -> None:
    """The application itself leaves the body of HEAD out, whatever its server would do."""
    async with mounted() as (_, app):
        assert (await Exchange(app, "HEAD", "/health").run()).body == b""


async def test_after_the_engine_has_closed() -> None:
    """An application whose engine is closed answers 503."""
    async with mounted() as (_, app):
        pass
    answer = await call(app, "echo").run()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "SHUTTING_DOWN")
