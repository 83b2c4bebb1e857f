"""MCP over HTTP: requests to which one document is the whole answer, and what they keep of all that others have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
import trio
import trio.testing
from pydantic import Field

from carmy_engine import AgentContext, Cause, McpSettings, tool
from carmy_mcp.protocol.connection import MAX_DESCRIPTION_BYTES, KnownClients, ServerProtocol
from carmy_mcp.protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, JsonRpcError
from carmy_mcp.protocol.event_log import EventLog
from carmy_mcp.protocol.headers import RoutingHeaders
from carmy_mcp.protocol.params import Client, Meta
from carmy_mcp.server.sessions import Sessions
from carmy_mcp.server.streams import EventStream
from tests.mcp.conftest import HELLO, request
from tests.mcp.http import MODERN, TOOLS, Caller, calling, is_running, last_record, messages, reaches
from tests.mcp.inside import Ran
from tests.mcp.test_http_long import tools_of
from tests.support.http import Running, front_end, serving

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ALONE: dict[str, Any] = {"mcp": McpSettings(sessions=False)}


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


async def take_back(server: Running, caller: Caller, request_id: object) -> None:
    """Cancel a request in the same session, on a connection of its own."""
    async with server.client() as client:
        other = Caller(client, caller.version)
        other.session = caller.session
        await other.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        assert (await client.answer()).status == 202


ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = [
    (b"host", b"127.0.0.1"),
    (b"mcp-protocol-version", MODERN.encode()),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"echo"),
]


def refused(headers: list[tuple[bytes, bytes]], version: object, method: str, **params: object) -> int | None:
    """The code of the error for headers that do not fit a request; None if they fit."""
    try:
        RoutingHeaders.of(headers).check(version, method, msgspec.Raw(msgspec.json.encode(params)))
    except JsonRpcError as error:
        return error.code
    return None


def test_headers_that_repeat_the_message() -> None:
    """Version, method and name have to be there once, and be those of the message."""
    assert refused(HEADERS, MODERN, "tools/call", name="echo") is None
    coded = [*HEADERS[:-1], (b"mcp-name", b"=?base64?w6k=?=")]
    assert refused(coded, MODERN, "tools/call", name="\u00e9") is None
    assert refused(HEADERS[:-1], MODERN, "tools/call") is None  # without a name the message is refused by itself
    for headers in (
        HEADERS[:-1],
        [*HEADERS[:-1], (b"mcp-name", b"other")],
        [*HEADERS[:-1], (b"mcp-name", b"=?base64?w6l=?=")],
        [*HEADERS, HEADERS[-1]],
        [*HEADERS[:2], (b"mcp-method", b"tools/list"), HEADERS[-1]],
        [*HEADERS[:1], (b"mcp-protocol-version", b"2099-01-01"), *HEADERS[2:]],
        [HEADERS[0], *HEADERS[2:]],
    ):
        assert refused(headers, MODERN, "tools/call", name="echo") == HEADER_MISMATCH
    assert refused(HEADERS[:-1], MODERN, "tools/list") == HEADER_MISMATCH
    listen = [*HEADERS[:2], (b"mcp-method", b"subscriptions/listen")]
    assert refused(listen, MODERN, "subscriptions/listen") is None


def test_what_clients_say_of_themselves() -> None:
    """It is understood once for all clients that say the same, and no more of it is kept than there is room for."""
    known = KnownClients(2)

    def client(*capabilities: str) -> Client:
        said = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {name: {} for name in capabilities}}
        return known.client_in(msgspec.convert(said, Meta))

    first = client("elicitation")
    assert client("elicitation") is first
    assert first.capabilities.can_show_forms
    assert not client().capabilities.can_show_forms
    assert client("sampling").capabilities.sampling is not None
    assert client("roots").capabilities.roots is not None
    assert client("elicitation") is not first  # it has made room
    large = "x" * MAX_DESCRIPTION_BYTES
    assert client(large) is not client(large)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({}, INVALID_PARAMS),
        ({"io.modelcontextprotocol/protocolVersion": MODERN}, INVALID_PARAMS),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 5}, INVALID_PARAMS),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}, UNSUPPORTED_VERSION),
        ({**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": []}, INVALID_PARAMS),
        ({**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {"elicitation": 1}}, INVALID_PARAMS),
    ],
)
def test_clients_that_describe_themselves_badly(said: dict[str, Any], code: int) -> None:
    """What is missing, of another type or of another version is refused, each with its own code."""
    with pytest.raises(JsonRpcError) as caught:
        KnownClients().client_in(msgspec.convert(said, Meta))
    assert caught.value.code == code


async def test_headers_that_repeat_arguments() -> None:
    """Where a tool's schema has such headers, calls are still compared with them, in the version that supports them."""

    @tool(effect="read", register=False)
    async def local(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Say where."""
        return region

    async with serving(local) as server, calling(server, MODERN) as caller:
        await caller.send("tools/call", name="local", arguments={"region": "eu"})
        refused = await caller.client.answer()
        assert (refused.status, refused.json["error"]["code"]) == (400, HEADER_MISMATCH)
        caller.headers["mcp-param-region"] = "eu"
        assert (await caller.call("local", region="eu"))["structuredContent"] == {"result": "eu"}
    async with serving(local) as server, calling(server) as caller:
        assert (await caller.call("local", region="eu"))["structuredContent"] == {"result": "eu"}


async def test_statuses_without_a_handshake() -> None:
    """Since 2026-07-28 errors have statuses of HTTP; the outcome of a call is none of those errors."""
    async with serving(*TOOLS) as server, calling(server, MODERN) as caller:
        asked: list[tuple[int, str, dict[str, Any]]] = [
            (200, "tools/list", {}),
            (200, "tools/call", {"name": "fail", "arguments": {"how": "declared"}}),
            (400, "tools/call", {"name": "nothing", "arguments": {}}),
            (400, "tools/list", {"cursor": "made-up"}),
            (404, "tools/make", {}),
        ]
        for status, method, params in asked:
            sent = await caller.send(method, **params)
            answer = await caller.client.answer()
            assert (answer.status, answer.json["id"]) == (status, sent)
            assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", [{}, ALONE])
async def test_one_document(version: str, settings: dict[str, Any]) -> None:
    """Such a request is answered with one JSON document and its length, in a session and without one; one about which there may be
    reports still gets events.
    """
    async with serving(*TOOLS, settings=settings) as server, server.client() as client:
        caller = Caller(client, version)
        if not settings:
            await caller.hello()
        asked: list[tuple[str, dict[str, Any]]] = [
            ("ping", {}),
            ("tools/list", {}),
            ("tools/call", {"name": "pair", "arguments": {"a": 1, "b": 2}}),
            ("tools/call", {"name": "nothing", "arguments": {}}),
        ]
        for method, params in asked:
            sent = await caller.send(method, **params)
            answer = await client.answer()
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert answer.headers["content-length"] == str(len(answer.body))
            assert answer.json["id"] == sent
            assert ("error" in answer.json) == (params.get("name") == "nothing")
        await caller.send("tools/call", {"progressToken": 1}, name="echo", arguments={"text": "hi"})
        assert (await client.answer()).headers["content-type"].startswith("text/event-stream")


async def test_a_write_that_is_taken_back() -> None:
    """It gets no answer, and its request_id remains in doubt. The session goes on, and the id can be used again."""
    meta = {"carmy/request_id": "r"}
    async with serving(*TOOLS) as server, calling(server) as caller:
        sent = await caller.send("tools/call", meta, name="hold", arguments={})
        await is_running(server.engine)
        await take_back(server, caller, sent + 1)
        await take_back(server, caller, {"of": "no request"})
        assert server.engine.statistics().running == 1
        await take_back(server, caller, str(sent))
        assert messages(await caller.client.answer()) == []
        caller._id = sent - 1
        error = (await caller.call("hold", meta))["_meta"]["carmy/error"]
        assert (error["code"], error["details"]["cause"]) == ("EXECUTION_UNCERTAIN", "caller")


async def test_taking_back_in_another_session() -> None:
    """Equal ids in another session of the same caller are other requests."""
    async with serving(*TOOLS) as server, calling(server) as caller, calling(server) as other:
        sent = await caller.send("tools/call", name="hold", arguments={})
        await is_running(server.engine)
        await take_back(server, other, sent)
        assert (await other.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}
        assert server.engine.statistics().running == 1


async def test_a_tool_that_asks() -> None:
    """A call that may need a confirmation still asks the person, in a session that has had calls of other kinds."""

    ran = Ran()
    async with serving(*TOOLS, *tools_of(ran)) as server, server.client() as connection:
        caller = Caller(connection, "2025-11-25")
        await caller.send("initialize", **{**HELLO[0]["params"], "capabilities": {"elicitation": {}}})
        caller.session = (await connection.answer()).headers["mcp-session-id"]
        await caller.post(HELLO[1])
        await connection.answer()
        assert (await caller.call("echo", text="hi"))["isError"] is False
        await caller.send("tools/call", name="destroy", arguments={"name": "x"})
        with trio.fail_after(20):
            await connection.until(b"elicitation/create")
    assert ran.names == []


IMPATIENT = {"heartbeat_secs": 0.01}
"""Answers are soon long in coming."""


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_an_answer_that_is_long_in_coming(version: str) -> None:
    """It becomes the one event of a stream, with comments before it, and the connection goes on."""
    async with serving(*TOOLS, http=IMPATIENT) as server, calling(server, version) as caller:
        sent = await caller.send("tools/call", {"carmy/timeout_ms": 500}, name="hold", arguments={})
        answer = await caller.client.answer()
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        comments = [line for line in answer.body.split(b"\n") if line.startswith(b":")]
        assert len(comments) > 1
        (told,) = messages(answer)
        assert (told["id"], told["result"]["_meta"]["carmy/status"]) == (sent, "timed_out")
        assert (await caller.call("echo", text="\u2028"))["structuredContent"] == {"result": "\u2028"}


@pytest.mark.parametrize("how", ["taken back", "left", "drained"])
async def test_how_a_long_wait_ends(how: str) -> None:
    """Such a stream is ended as any other: its call is cancelled when it is taken back, when its client leaves, and at shutdown."""
    async with serving(*TOOLS, http=IMPATIENT) as server, calling(server) as caller:
        sent = await caller.send("tools/call", name="hold", arguments={})
        status, _ = await caller.client.head()
        assert status == 200
        assert (await caller.client.chunk()).startswith(b":")
        assert server.engine.statistics().running == 1
        if how == "left":
            caller.client.reset()
        elif how == "drained":
            await server.engine.shut_down(0)
        else:
            await take_back(server, caller, sent)
        record = await last_record(server.engine)
        assert record.cause is {"left": Cause.DISCONNECT, "drained": Cause.SHUTDOWN, "taken back": Cause.CALLER}[how]
        if how != "left":
            with trio.fail_after(20):
                body = b"".join([chunk async for chunk in caller.client.chunks()])
            assert (b"SHUTTING_DOWN" in body, b"data:" in body) == (how == "drained", how == "drained")


async def test_short_calls_that_are_dropped_leave_nothing() -> None:
    """After many calls whose clients left at any moment there runs neither an execution nor a task of theirs."""
    async with serving(*TOOLS, http=IMPATIENT) as server, calling(server) as caller:
        await caller.call("echo", text="warm")
        with trio.fail_after(20):
            await trio.testing.wait_all_tasks_blocked(0.1)
        before = trio.lowlevel.current_statistics().tasks_living
        for number in range(40):
            async with server.client() as client:
                other = Caller(client, caller.version)
                other.session, other._id = caller.session, 1000 + number
                name, arguments = ("hold", {}) if number % 2 else ("echo", {"text": "x"})
                await other.send("tools/call", name=name, arguments=arguments)
                for _ in range(number % 20):
                    await trio.lowlevel.checkpoint()
                if number % 10 == 1:
                    await is_running(server.engine)
                    await client.head()  # the stream has begun
        await is_running(server.engine, 0)
        await reaches(lambda: trio.lowlevel.current_statistics().tasks_living <= before)
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


async def test_pipelined_requests() -> None:
    """Requests of one connection are answered in their order, whichever way they take."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        headers = {**caller.headers, "mcp-session-id": caller.session or ""}
        for number in range(6):
            meta = {"progressToken": number} if number % 2 else {}
            call = request(100 + number, "tools/call", name="echo", arguments={"text": str(number)}, _meta=meta)
            await caller.post(call, headers)
        for number in range(6):
            told = messages(await caller.client.answer())[-1]
            assert (told["id"], told["result"]["structuredContent"]) == (100 + number, {"result": str(number)})


def test_which_sessions_are_idle() -> None:
    """Those in which there has been no request for so long, whichever way it took; none in which one goes on."""
    now = 0.0
    sessions = Sessions(1000, now=lambda: now)
    for name in ("used", "open", "idle"):
        sessions.add(name, (None, None), ServerProtocol(1, 1), EventStream(EventLog("0", 1)))
    used, open_ = (sessions.find(name, (None, None)) for name in ("used", "open"))
    assert used is not None
    assert open_ is not None
    with sessions.using("open", open_):
        now = 5.0
        with sessions.using("used", used):
            pass
        assert sessions.take_idle(10) == []
        now = 10.0
        idle = sessions.find("idle", (None, None))
        assert sessions.take_idle(10) == [idle]
        now = 15.0
        assert sessions.take_idle(10) == [used]
        assert sessions.take_idle(10) == []
    assert len(sessions) == 1


@tool(effect="none", parallel_safe=True, register=False)
async def remark(ctx: AgentContext, text: str) -> str:
    """Log a line, and return in the moment in which it is being sent."""
    ctx.log("info", text)
    await trio.lowlevel.checkpoint()
    return text


@pytest.mark.parametrize("version", VERSIONS[2:])
async def test_the_answer_does_not_overtake_a_log_message(version: str) -> None:
    """A message that a tool logs right before its end is sent, and before the answer."""
    async with serving(remark) as server, calling(server, version) as caller:
        for number in range(100):
            await caller.send("tools/call", name="remark", arguments={"text": f"line {number}"})
            first, last = messages(await caller.client.answer())
            assert first["params"]["data"] == f"line {number}"
            assert last["result"]["content"][0]["text"] == f"line {number}"
