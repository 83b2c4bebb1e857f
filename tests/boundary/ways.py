"""Every way to reach the application, spoken by hand: what is asked gets one answer, and the next message is the next answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import trio

import carmy_http
import carmy_websocket
from carmy_engine import BoundEngine, ExecutionCompleted, ExecutionRequest, ExecutionResult, HttpSettings, Settings
from carmy_engine.codec import answer_body
from carmy_mcp import serve_http
from tests.boundary.app import confirm, make_app
from tests.conformance.makers import command
from tests.mcp.conftest import HELLO, request
from tests.mcp.http import MODERN, Caller
from tests.stdio.conftest import peer
from tests.support.http import Answer, Client
from tests.support.websocket import Peer
from tests.support.websocket import request as handshake

PROGRAM = "from tests.boundary.app import make_app\n\napp = make_app()\n"

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Said(NamedTuple):
    """One answer.

    Attributes:
        code: The error's; ``ok`` without one.
        data: The output, if there is one.
        raw: All of it as it came.
    """

    code: str
    data: Any
    raw: str


class Way(Protocol):
    """A caller of the application."""

    async def call(self, tool: str, arguments: Mapping[str, str], *, streamed: bool, request_id: str | None) -> Said:
        """Call a tool, and take the one answer."""
        ...

    async def listed(self) -> list[str]:
        """The names of all tools that are listed."""
        ...


class InProcess:
    """The engine itself."""

    def __init__(self, engine: BoundEngine) -> None:
        self._engine = engine

    async def call(self, tool: str, arguments: Mapping[str, str], *, streamed: bool, request_id: str | None) -> Said:
        wanted = ExecutionRequest(tool=tool, arguments=arguments, request_id=request_id)
        if not streamed:
            return _said_of(await self._engine.execute(wanted))
        async with self._engine.stream(wanted) as events:
            (result,) = [event.result async for event in events if isinstance(event, ExecutionCompleted)]
        return _said_of(result)

    async def listed(self) -> list[str]:
        return [spec.name for spec in (await self._engine.catalog()).tools]


def _said_of(result: ExecutionResult) -> Said:
    raw = answer_body(result).decode()
    return Said("ok" if result.error is None else result.error.code, result.data, raw)


class Http:
    """One connection to an HTTP server, which stays open."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, arguments: Mapping[str, str], *, streamed: bool, request_id: str | None) -> Said:
        accept = {"accept": "text/event-stream"} if streamed else {}
        fields = {} if request_id is None else {"request_id": request_id}
        answer = await self._client.call(tool, accept, arguments=arguments, **fields)
        assert self._client.buffer == b""
        return _said_in(_last_event(answer) if streamed else answer.json)

    async def listed(self) -> list[str]:
        answer = await self._client.request("GET", "/agent/tools")
        return [tool["name"] for tool in answer.json["tools"]]


def _last_event(answer: Answer) -> Any:
    events = [
        dict(line.split(": ", 1) for line in event.split("\n")) for event in answer.body.decode().split("\n\n")[:-1]
    ]
    (completed,) = [event for event in events if event["event"] == "execution.completed"]
    assert completed is events[-1]
    return json.loads(completed["data"])


def _said_in(body: Any) -> Said:
    error = body.get("error")
    return Said("ok" if error is None else error["code"], body.get("data"), json.dumps(body))


class Frames:
    """A connection that speaks the frame protocol."""

    def __init__(self, send: Callable[..., Awaitable[None]], receive: Callable[[], Awaitable[Any]]) -> None:
        self._send = send
        self._receive = receive
        self._id = 0

    async def call(self, tool: str, arguments: Mapping[str, str], *, streamed: bool, request_id: str | None) -> Said:
        fields = {} if request_id is None else {"request_id": request_id}
        return _said_in(await self._ask(op="call", tool=tool, arguments=arguments, stream=streamed, **fields))

    async def listed(self) -> list[str]:
        return [tool["name"] for tool in (await self._ask(op="tools"))["tools"]]

    async def _ask(self, **frame: Any) -> Any:
        self._id += 1
        await self._send({"id": self._id, **frame})
        while True:
            answer = await self._receive()
            assert answer["id"] == self._id
            if "ok" in answer:
                return answer["result"] if answer["ok"] else answer


class Mcp:
    """A session of MCP."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask
        self._token = 0

    async def call(self, tool: str, arguments: Mapping[str, str], *, streamed: bool, request_id: str | None) -> Said:
        self._token += 1
        meta = {} if request_id is None else {"carmy/request_id": request_id}
        if streamed:
            meta["progressToken"] = str(self._token)
        answer = await self._ask("tools/call", meta, name=tool, arguments=arguments)
        raw = json.dumps(answer)
        if "error" in answer:
            return Said(answer["error"].get("data", {}).get("error", {}).get("code", "REFUSED"), None, raw)
        result = answer["result"]
        error = result.get("_meta", {}).get("carmy/error")
        data = result.get("structuredContent")
        return Said("ok" if error is None else error["code"], _unwrapped(data), raw)

    async def listed(self) -> list[str]:
        names: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await self._ask("tools/list", None, **cursor))["result"]
            names += [tool.get("title", tool["name"]) for tool in page["tools"]]
            if "nextCursor" not in page:
                return names
            cursor = {"cursor": page["nextCursor"]}


def _unwrapped(data: Any) -> Any:
    """The output, which is sent in an object where it is none itself."""
    return data["result"] if isinstance(data, dict) and [*data] == ["result"] else data


class Opened(NamedTuple):
    """A way that is open.

    Attributes:
        way: The caller.
        knock: For ways with credentials: a new connection with a token; the error's code, ``ok`` without one.
        ready: For ways with readiness: the failed checks.
    """

    way: Way
    knock: Callable[[str], Awaitable[str]] | None = None
    ready: Callable[[], Awaitable[list[str]]] | None = None


Open = Callable[[], AbstractAsyncContextManager[Opened]]


@asynccontextmanager
async def in_process() -> AsyncIterator[Opened]:
    """The engine itself, and its host's question before what needs a confirmation."""
    async with make_app().open() as engine:
        yield Opened(InProcess(engine.bind(confirm=confirm)))


@asynccontextmanager
async def http(front_end: Literal["native", "hypercorn"]) -> AsyncIterator[Opened]:
    """An HTTP server, and another one that wants credentials."""
    async with (
        serving_http(front_end) as url,
        _serving(carmy_http.serve, front_end, authenticated=True) as guarded,
        connected(url) as client,
    ):

        async def knock(token: str) -> str:
            async with connected(guarded) as other:
                answer = await other.request("GET", "/agent/tools", {"authorization": f"Bearer {token}"})
                return answer.code or "ok"

        async def ready() -> list[str]:
            answer = await client.request("GET", "/ready")
            return [name for name, check in answer.json["checks"].items() if not check["ok"]]

        yield Opened(Http(client), knock, ready)


@asynccontextmanager
async def websocket() -> AsyncIterator[Opened]:
    """The same over WebSocket."""
    async with (
        _serving(carmy_websocket.serve) as url,
        _serving(carmy_websocket.serve, authenticated=True) as guarded,
        connected(url.removesuffix("/agent/ws")) as client,
    ):

        async def knock(token: str) -> str:
            async with connected(guarded.removesuffix("/agent/ws")) as other:
                await other.send(handshake(headers={"Authorization": f"Bearer {token}"}))
                status, headers = await other.head()
                if status == 101:
                    return "ok"
                body = json.loads(await other.exactly(int(headers["content-length"])))
                return str(body["error"]["code"])

        found = Peer(client.stream)
        await found.upgrade()
        assert (await found.told())["event"] == "ready"

        async def send(frame: dict[str, Any]) -> None:
            await found.tell(**frame)

        yield Opened(Frames(send, found.told), knock)


@asynccontextmanager
async def stdio() -> AsyncIterator[Opened]:
    """A child process."""
    async with peer(command=command(PROGRAM), env=ENVIRONMENT) as found:
        assert (await found.receive())["event"] == "ready"
        yield Opened(Frames(found.send, found.receive))


@asynccontextmanager
async def mcp_stdio() -> AsyncIterator[Opened]:
    """A child process that speaks MCP."""
    async with peer(command=command(PROGRAM, "mcp"), env=ENVIRONMENT) as found:
        await found.send(*HELLO)
        assert (await found.receive())["id"] == "hello"
        number = 0

        async def ask(method: str, meta: dict[str, Any] | None = None, **params: Any) -> Any:
            nonlocal number
            number += 1
            await found.send(request(number, method, **params, **({} if meta is None else {"_meta": meta})))
            while "id" not in (answer := await found.receive()):
                assert answer["method"] == "notifications/progress"
            assert answer["id"] == number
            return answer

        yield Opened(Mcp(ask))


@asynccontextmanager
async def mcp_http() -> AsyncIterator[Opened]:
    """MCP over HTTP."""
    async with (
        _serving(serve_http) as url,
        _serving(serve_http, authenticated=True) as guarded,
        connected(url.removesuffix("/mcp")) as client,
    ):

        async def knock(token: str) -> str:
            async with connected(guarded.removesuffix("/mcp")) as other:
                stranger = Caller(other, MODERN, {"authorization": f"Bearer {token}"})
                await stranger.send("tools/list")
                answer = await other.answer()
                return "ok" if answer.status == 200 else str(answer.code)

        caller = Caller(client, "2025-11-25")
        await caller.hello()
        yield Opened(Mcp(caller.ask), knock)


@asynccontextmanager
async def _serving(
    serve: Callable[..., Awaitable[None]],
    front_end: Literal["native", "hypercorn"] = "native",
    *,
    authenticated: bool = False,
) -> AsyncIterator[str]:
    """The application on a free port; its URL."""
    settings = Settings(address="127.0.0.1:0", http=HttpSettings(server=front_end))
    async with make_app(settings, authenticated=authenticated).open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(serve, engine))
        yield line.rpartition(" ")[2]
        nursery.cancel_scope.cancel()


def serving_http(front_end: Literal["native", "hypercorn"]) -> AbstractAsyncContextManager[str]:
    """The application over HTTP, on a free port; its URL."""
    return _serving(carmy_http.serve, front_end)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A connection to the server of a URL."""
    stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        yield Client(stream)
    finally:
        stream.socket.close()


WAYS: Mapping[str, Open] = {
    "in_process": in_process,
    "native": partial(http, "native"),
    "hypercorn": partial(http, "hypercorn"),
    "stdio": stdio,
    "websocket": websocket,
    "mcp_stdio": mcp_stdio,
    "mcp_http": mcp_http,
}
