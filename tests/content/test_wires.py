"""Resources, prompts and completion over HTTP and over frames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import pytest
import trio

import carmy_http
from carmy_engine import App, Engine, Settings
from carmy_engine.testing import RecordingSink
from carmy_frames.driver import serve_channel
from tests.support.http import Answer, Running, front_end
from tests.wire.pair import MemoryChannel, channel_pair

app = App("shop")


@app.resource("orders://{number}")
async def order(number: int) -> dict[str, int]:
    """An order."""
    return {"number": number}


@app.resource("slow://one")
async def slow() -> str:
    """Never ready."""
    await trio.sleep_forever()
    return ""


@app.prompt
async def greet(name: str, tone: Literal["friendly", "formal"] = "formal") -> str:
    """Greet."""
    return f"{tone}: {name}"


CONTENTS = {"contents": [{"uri": "orders://7", "mime_type": "application/json", "text": '{"number":7}'}]}
MESSAGES = [{"content": {"type": "text", "text": "formal: Ana"}, "role": "user"}]


@asynccontextmanager
async def served_over_http(app: App) -> AsyncIterator[Running]:
    async with (
        app.open(settings=Settings(name="shop", address="127.0.0.1:0", http={"server": front_end.get()})) as engine,  # type: ignore[arg-type]
        trio.open_nursery() as nursery,
    ):
        line: str = await nursery.start(carmy_http.serve, engine)
        yield Running(engine, int(line.rpartition(":")[2]), line, nursery.cancel_scope, trio.Event())
        nursery.cancel_scope.cancel()


async def post(server: Running, path: str, body: object) -> Answer:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with server.client() as client:
        return await client.request("POST", path, {"content-type": "application/json"}, data)


@pytest.fixture(params=["hypercorn", "native"], autouse=True)
def each_front_end(request: pytest.FixtureRequest) -> None:
    front_end.set(request.param)


async def test_http_lists_and_reads() -> None:
    """The lists have entity tags, discovery names them, and a read is answered as a call is."""
    async with served_over_http(app) as server:
        found = (await server.get("/.well-known/agent")).json
        assert found["capabilities"] == ["tools", "streaming", "idempotency", "resources", "prompts", "mcp"]
        assert found["complete_url"] == "/agent/complete"
        for kind, members in (("resources", ["resources", "templates"]), ("prompts", ["prompts"])):
            listed = await server.get(found[f"{kind}_url"])
            assert list(listed.json) == members
            assert listed.headers["etag"] == f'"{found[f"{kind}_version"]}"'
            again = await server.get(found[f"{kind}_url"], {"if-none-match": listed.headers["etag"]})
            assert again.status == 304
        read = await post(server, "/agent/resources/read", {"uri": "orders://7"})
        assert (read.status, read.json["status"], read.json["data"]) == (200, "completed", CONTENTS)
        got = await post(server, "/agent/prompts/get", {"name": "greet", "arguments": {"name": "Ana"}})
        assert got.json["data"]["messages"] == MESSAGES
        completed = await post(
            server, "/agent/complete", {"kind": "prompt", "name": "greet", "argument": "tone", "value": "fr"}
        )
        assert completed.json == {"values": ["friendly"], "total": 1, "has_more": False}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/agent/resources/read", {"uri": "nothing://"}, 404, "RESOURCE_NOT_FOUND"),
        ("/agent/resources/read", {"uri": "orders://x"}, 400, "INVALID_ARGUMENTS"),
        ("/agent/resources/read", {"uri": "slow://one", "timeout_ms": 1}, 504, "TIMEOUT"),
        ("/agent/resources/read", {"uri": "slow://one", "timeout_ms": 0}, 400, "INVALID_REQUEST"),
        ("/agent/resources/read", {"uri": 7}, 400, "INVALID_REQUEST"),
        ("/agent/resources/read", {"uri": "a", "more": 1}, 400, "INVALID_REQUEST"),
        ("/agent/resources/read", b'{"uri":"a","uri":"b"}', 400, "INVALID_REQUEST"),
        ("/agent/resources/read", b'{"uri":"\\ud800"}', 400, "INVALID_REQUEST"),
        ("/agent/resources/read", b"", 400, "INVALID_REQUEST"),
        ("/agent/prompts/get", {"name": "none"}, 404, "PROMPT_NOT_FOUND"),
        ("/agent/prompts/get", {"name": "greet", "arguments": [1]}, 400, "INVALID_REQUEST"),
        ("/agent/prompts/get", {"name": "greet", "arguments": {"name": 7}}, 400, "INVALID_ARGUMENTS"),
        ("/agent/complete", {"kind": "prompt", "name": "x", "argument": "y"}, 404, "PROMPT_NOT_FOUND"),
        ("/agent/complete", {"kind": "tool", "name": "x", "argument": "y"}, 400, "INVALID_REQUEST"),
    ],
)
async def test_http_refuses(path: str, body: object, status: int, code: str) -> None:
    """Bodies are read as strictly as those of calls, and errors have the statuses of their categories."""
    async with served_over_http(app) as server:
        answer = await post(server, path, body)
        assert (answer.status, answer.code) == (status, code)


async def test_http_without_any_advertises_none() -> None:
    """An application without resources and prompts has no capability for them; the lists are there, and empty."""
    async with served_over_http(App("bare")) as server:
        found = (await server.get("/.well-known/agent")).json
        assert found["capabilities"] == ["tools", "streaming", "idempotency", "mcp"]
        assert not [name for name in found if name.startswith(("resources", "prompts", "complete"))]
        assert (await server.get("/agent/prompts")).json == {"prompts": []}


class Peer:
    """A client that speaks in frames."""

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel

    async def send(self, **frame: Any) -> None:
        await self._channel.send(msgspec.json.encode(frame))

    async def receive(self) -> Any:
        with trio.fail_after(10):
            return msgspec.json.decode(await self._channel.receive())


@asynccontextmanager
async def served_over_frames(app: App) -> AsyncIterator[tuple[Peer, Engine]]:
    async with app.open() as engine, trio.open_nursery() as nursery:
        ours, theirs = channel_pair()

        async def serve() -> None:
            await serve_channel(engine, theirs, server="shop", stopped=engine.stopped, drain_seconds=5.0)

        nursery.start_soon(serve)
        peer = Peer(ours)
        await peer.receive()
        yield peer, engine
        nursery.cancel_scope.cancel()


async def test_frames_list_and_read() -> None:
    """Each operation has its answer; reads are calls, which run beside others and can be cancelled."""
    async with served_over_frames(app) as (peer, engine):
        await peer.send(id=1, op="resources")
        assert (await peer.receive())["result"] == msgspec.json.decode((await engine.resources()).document)
        await peer.send(id=2, op="prompts")
        assert (await peer.receive())["result"] == msgspec.json.decode((await engine.prompts()).document)
        await peer.send(id=3, op="read", uri="slow://one")
        await peer.send(id=4, op="read", uri="orders://7")
        answer = await peer.receive()
        assert (answer["id"], answer["result"]["data"]) == (4, CONTENTS)
        await peer.send(id=5, op="prompt", name="greet", arguments={"name": "Ana"})
        assert (await peer.receive())["result"]["data"]["messages"] == MESSAGES
        await peer.send(id=6, op="complete", kind="prompt", name="greet", argument="tone", value="fo")
        assert (await peer.receive())["result"]["values"] == ["formal"]
        await peer.send(id=7, op="complete", kind="resource", name="none", argument="tone")
        answer = await peer.receive()
        assert (answer["ok"], answer["error"]["code"]) == (False, "RESOURCE_NOT_FOUND")
        await peer.send(id=8, op="read", uri="a", timeout_ms=-1)
        assert (await peer.receive())["error"]["code"] == "INVALID_REQUEST"
        await peer.send(id=9, op="cancel", target=3)
        answers = {answer["id"]: answer for answer in [await peer.receive(), await peer.receive()]}
        assert answers[9]["result"] == {"cancelled": True}
        assert answers[3]["result"]["error"]["code"] == "CANCELLED"


async def test_a_client_that_leaves_cancels_its_reads() -> None:
    """A lost connection ends what it reads, and the record has the cause."""
    sink = RecordingSink()
    leaving = App("shop").sink(sink)
    leaving._contents = app._contents
    async with served_over_frames(leaving) as (peer, engine):
        await peer.send(id=1, op="read", uri="slow://one")
        while not engine.statistics().running:
            await trio.lowlevel.checkpoint()
        await peer._channel.send_break()
        await engine.wait_idle()
    (record,) = sink.records
    assert (record.tool, record.cause) == ("resource:slow", "disconnect")
