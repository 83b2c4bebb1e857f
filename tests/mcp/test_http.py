"""MCP over HTTP on both front ends, beside the other addresses: what is asked and answered, and how it ends."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import pytest
import trio
import trio.testing
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from carmy_engine import Cause, McpSettings, __version__
from tests.mcp.conftest import HELLO
from tests.mcp.http import MODERN, TOOLS, VERSIONS, Caller, calling, is_running, last_record, messages, reaches
from tests.support.http import front_end, serving

SOON_GONE: dict[str, Any] = {"mcp": McpSettings(resume_timeout_secs=0.05)}
"""A client that does not come back to its stream at once has left."""


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version(version: str) -> None:
    """Tools are listed and called in every version that the SDK speaks, in a session up to 2025-11-25 and without one since."""
    async with serving(*TOOLS) as server, calling(server, version) as caller:
        assert (caller.session is None) == (version == MODERN)
        listed = await caller.ask("tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["big", "echo", "fail", "hold", "pair", "steps"]
        result = await caller.call("pair", a=1, b=2**60)
        assert result["content"][0]["text"] == '{"a":1,"b":1152921504606846976}'
        record = server.engine.audit.newest()[0]
        assert (record.transport, record.tool) == ("mcp", "pair")


@pytest.mark.parametrize(("given", "shown"), [("2.1", "2.1"), (None, __version__)])
async def test_a_client_sees_the_name_and_the_version_of_the_application(given: str | None, shown: str) -> None:
    """`serverInfo` is about the application; one without a version has the engine's."""
    async with serving(*TOOLS, settings={"name": "shop", "version": given}) as server:
        async with calling(server, "2025-11-25") as caller:
            hello = await caller.ask("initialize", **{**HELLO[0]["params"], "protocolVersion": "2025-11-25"})
            assert hello["result"]["serverInfo"] == {"name": "shop", "version": shown}
        async with calling(server, MODERN) as caller:
            listed = await caller.ask("tools/list")
            about = listed["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert about == {"name": "shop", "version": shown}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_official_client() -> None:
    """The SDK's own client, with and without a session, gets what fits the schemas that it was given."""
    async with serving(*TOOLS) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        with trio.fail_after(30):
            async with (
                streamable_http_client(url) as (incoming, outgoing),
                ClientSession(incoming, outgoing) as session,
            ):
                await session.initialize()
                await _uses(session)
            async with Client(url) as client:
                await _uses(client)
    gc.collect()  # it leaves generators behind, which would be another test's trouble


async def _uses(client: Any) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name, arguments in (("echo", {"text": "hi \u2028"}), ("pair", {"a": 1, "b": 2})):
        result = await client.call_tool(name, arguments)
        jsonschema.validate(result.structured_content, tools[name].output_schema)
        text = result.content[0].text
        assert text == arguments["text"] if "text" in arguments else json.loads(text) == arguments
    told: list[float] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    assert (await client.call_tool("steps", {"to": 3}, progress_callback=tell)).structured_content == {"result": 3}
    assert told == sorted(set(told))  # how many it has passed on by the time of the answer is its own business


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_progress(version: str) -> None:
    """A token gets reports that rise strictly, in one stream of events with the answer, which ends it."""
    async with serving(*TOOLS) as server, calling(server, version) as caller:
        await caller.send("tools/call", {"progressToken": 0}, name="steps", arguments={})
        answer = await caller.client.answer()
        *reports, last = messages(answer)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert "content-length" not in answer.headers
        assert {report["params"]["progressToken"] for report in reports} == {0}
        seen = [report["params"]["progress"] for report in reports]
        assert seen == sorted(set(seen))
        assert seen[-1] == last["result"]["structuredContent"]["result"] == 3


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_a_call_can_say_about_itself(version: str) -> None:
    """request_id and timeout_ms come from ``_meta``, are refused when they are something else, and replays are marked."""
    async with serving(*TOOLS) as server:
        async with calling(server, version) as caller:
            first = await caller.call("steps", {"carmy/request_id": "r1", "carmy/execution_meta": True})
            late = await caller.call("hold", {"carmy/timeout_ms": 1})
            assert late["_meta"]["carmy/status"] == "timed_out"
            refused = await caller.call("steps", {"carmy/request_id": 1})
            assert refused["_meta"]["carmy/error"]["code"] == "INVALID_REQUEST"
        async with calling(server, version) as caller:  # the identity is the caller's, and not the session's
            again = await caller.call("steps", {"carmy/request_id": "r1", "carmy/execution_meta": True})
        assert again["_meta"]["carmy/replayed"] is True
        assert again["_meta"]["carmy/execution_id"] == first["_meta"]["carmy/execution_id"]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_errors(version: str) -> None:
    """Errors are results that a model can read; nothing of an unexpected exception is reported."""
    async with serving(*TOOLS) as server, calling(server, version) as caller:
        declared = await caller.call("fail", how="declared")
        assert declared["isError"] is True
        assert "structuredContent" not in declared
        assert declared["_meta"]["carmy/error"]["code"] == "NO_STOCK"
        crashed = await caller.call("fail", how="otherwise")
        assert crashed["_meta"]["carmy/error"]["code"] == "TOOL_PANIC"
        assert "hunter2" not in json.dumps(crashed)
        wrong = await caller.call("pair", a="1", c=2)
        problems = {problem["path"] for problem in wrong["_meta"]["carmy/error"]["details"]["problems"]}
        assert problems == {"a", "b", "c"}
        unknown = (await caller.ask("tools/call", name="ecco", arguments={}))["error"]
        assert (unknown["code"], unknown["data"]["error"]["code"]) == (-32602, "TOOL_NOT_FOUND")


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_a_client_that_leaves(version: str, how: str) -> None:
    """A call whose connection ends is cancelled, with the cause ``disconnect``; a half-close counts as its end."""
    async with serving(*TOOLS) as server:
        async with calling(server, version) as caller:
            await caller.send("tools/call", name="hold", arguments={})
            await is_running(server.engine)
            if how == "reset":
                caller.client.reset()
            elif how == "half-close":
                await caller.client.stream.send_eof()
                assert (await last_record(server.engine)).cause is Cause.DISCONNECT
        assert (await last_record(server.engine)).cause is Cause.DISCONNECT


async def test_a_write_whose_client_left() -> None:
    """Its request_id remains in doubt, in a new session as well: no caller has seen an answer."""
    async with serving(*TOOLS) as server:
        meta = {"carmy/request_id": "r1"}
        async with calling(server) as caller:
            await caller.send("tools/call", meta, name="hold", arguments={})
            await is_running(server.engine)
        await is_running(server.engine, 0)
        async with calling(server) as caller:
            error = (await caller.call("hold", meta))["_meta"]["carmy/error"]
        assert (error["code"], error["details"]["cause"]) == ("EXECUTION_UNCERTAIN", "disconnect")


async def test_a_call_that_is_taken_back() -> None:
    """``notifications/cancelled`` in the same session cancels, with the cause ``caller``, and the call gets no answer."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        sent = await caller.send("tools/call", name="hold", arguments={})
        await is_running(server.engine)
        async with server.client() as client:
            other = type(caller)(client, caller.version)
            other.session = caller.session
            await other.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": sent}})
            assert (await client.answer()).status == 202
        assert messages(await caller.client.answer()) == []
        assert (await last_record(server.engine)).cause is Cause.CALLER


async def test_the_end_of_a_session() -> None:
    """DELETE ends it: what runs in it is cancelled with the cause ``disconnect``, and its id is not known any more."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        assert caller.session is not None
        session = {"mcp-session-id": caller.session}
        await caller.send("tools/call", name="hold", arguments={})
        await is_running(server.engine)
        assert (await server.get("/mcp", session, "DELETE")).status == 200
        assert (await last_record(server.engine)).cause is Cause.DISCONNECT
        assert (await server.get("/mcp", session, "DELETE")).status == 404
        async with server.client() as client:
            other = type(caller)(client, caller.version)
            other.session = caller.session
            await other.send("tools/list")
            assert (await client.answer()).status == 404
            again = await other.hello()  # with the old id in its header
            assert (again.status, other.session != caller.session) == (200, True)


async def test_the_stream_of_what_the_server_has_to_say() -> None:
    """GET opens it, one for each session, with something to read at once; it ends when the server drains."""
    async with serving(*TOOLS) as server, calling(server) as caller, server.client() as listening:
        assert caller.session is not None
        headers = {"accept": "text/event-stream", "mcp-session-id": caller.session, "last-event-id": "7"}
        await listening.send(f"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n{_lines(headers)}\r\n".encode())
        status, _ = await listening.head()
        assert (status, (await listening.chunk())[:1]) == (200, b":")
        assert (await server.get("/mcp", headers)).status == 409
        server.engine.stop()
        with trio.fail_after(20):
            assert [chunk async for chunk in listening.chunks()] == []


def _lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@pytest.mark.parametrize(
    ("settings", "http"),
    [({"mcp": McpSettings(sessions=False)}, {}), ({"reuse_port": True}, {}), ({}, {"processes": 2})],
)
async def test_without_sessions(settings: dict[str, Any], http: dict[str, Any]) -> None:
    """Where requests may reach different processes, each stands alone in every version, needs no other one before it, and is
    given up by closing it.
    """
    async with serving(*TOOLS, settings=settings, http=http) as server:
        for version in VERSIONS:
            async with server.client() as client:
                caller = Caller(client, version)
                if version != MODERN:
                    hello = await caller.ask("initialize", **{**HELLO[0]["params"], "protocolVersion": version})
                    assert hello["result"]["protocolVersion"] == version
                caller.headers["mcp-session-id"] = "of-another-process"
                assert len((await caller.ask("tools/list"))["result"]["tools"]) == len(TOOLS)
                await caller.send("tools/call", {"progressToken": 1}, name="steps", arguments={})
                *reports, last = messages(await caller.client.answer())
                assert (len(reports) > 0, last["result"]["structuredContent"]) == (True, {"result": 3})
                await caller.send("tools/call", name="hold", arguments={})
                await is_running(server.engine)
            await is_running(server.engine, 0)
            assert server.engine.audit.newest()[0].cause is Cause.DISCONNECT
        for method in ("GET", "DELETE"):
            answer = await server.get("/mcp", {"accept": "text/event-stream"}, method)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_draining() -> None:
    """What runs may finish; what runs too long is answered that the server shuts down, and then the server ends."""
    async with serving(*TOOLS) as server:
        async with calling(server) as caller, calling(server, MODERN) as modern:
            await caller.send("tools/call", name="hold", arguments={})
            await modern.send("tools/call", name="hold", arguments={})
            await is_running(server.engine, 2)
            await server.engine.shut_down(0)
            for found in (caller, modern):
                (told,) = messages(await found.client.answer())
                error = told["result"]["_meta"]["carmy/error"]
                assert (error["code"], error["details"]["phase"]) == ("SHUTTING_DOWN", "running")
        with trio.fail_after(20):
            await server.ended.wait()


async def test_calls_that_are_dropped_leave_nothing() -> None:
    """After many calls whose clients left at any moment there runs neither an execution nor a task of theirs."""
    async with serving(*TOOLS, settings=SOON_GONE) as server, calling(server) as caller:
        await caller.call("echo", text="warm")
        await reaches(lambda: server.engine.statistics().running == 0)
        with trio.fail_after(20):
            await trio.testing.wait_all_tasks_blocked(0.05)
        before = trio.lowlevel.current_statistics().tasks_living
        for number in range(60):
            async with server.client() as client:
                other = type(caller)(client, MODERN if number % 2 else caller.version)
                other.session = caller.session
                other._id = 1000 + number
                await other.send(
                    "tools/call", {"progressToken": number}, name="hold" if number % 3 else "steps", arguments={}
                )
                for _ in range(number % 12):
                    await trio.lowlevel.checkpoint()
        await is_running(server.engine, 0)
        await reaches(lambda: trio.lowlevel.current_statistics().tasks_living <= before)
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}
