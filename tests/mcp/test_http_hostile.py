"""MCP over HTTP and clients that mean no good: garbage, other people's sessions, sessions without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, BearerTokens, Cause, McpSettings
from carmy_mcp.protocol.connection import ServerProtocol
from carmy_mcp.protocol.event_log import EventLog
from carmy_mcp.server.sessions import FullError, Session, Sessions
from carmy_mcp.server.streams import EventStream
from tests.mcp.conftest import HELLO
from tests.mcp.http import ACCEPT, MODERN, TOOLS, VERSIONS, Caller, calling, is_running, last_record, messages
from tests.support.http import Answer, Running, front_end, serving

ANA, BOB = ("ana", None), ("bob", None)
PAGE = "https://app.example"


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


async def post(server: Running, message: object, headers: dict[str, str] | None = None) -> Answer:
    """Send anything on a connection of its own."""
    async with server.client() as client:
        await Caller(client, MODERN).post(message, {**ACCEPT, **(headers or {})})
        return await client.answer()


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"garbage",
        b"null",
        b"1",
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}',
    ],
)
async def test_garbage(bad: bytes) -> None:
    """What is no message is answered with 400 and one error, in a session or out of it, and nothing is opened for it."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        for headers in ({}, {"mcp-session-id": caller.session or ""}, {"mcp-protocol-version": MODERN}):
            answer = await post(server, bad, headers)
            assert answer.status == 400
            assert answer.json["error"]["code"] in (-32700, -32600, -32602)
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


async def test_requests_that_are_not_acceptable() -> None:
    """Each is refused with the right status and error: without a session, with an unknown one, in a version of another
    world, with another type of content, too large, with HEAD or PUT.
    """
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with serving(*TOOLS) as server:
        assert (await post(server, ping)).status == 400
        assert (await post(server, ping, {"mcp-session-id": "made-up"})).status == 404
        assert (await post(server, ping, {"mcp-protocol-version": "1999-01-01"})).status == 400
        assert (await post(server, ping, {"content-type": "text/plain", "mcp-protocol-version": MODERN})).status == 400
        assert (await post(server, b"x" * (1024 * 1024 + 1))).status == 413
        async with calling(server) as caller:
            session = {"mcp-session-id": caller.session or ""}
            assert (await post(server, ping, {**session, "accept": "text/html"})).status == 406
        for method in ("HEAD", "PUT"):
            refused = await server.get("/mcp", method=method)
            assert (refused.status, refused.headers["allow"]) == (405, "DELETE, GET, OPTIONS, POST")
        for method in ("GET", "DELETE"):
            refused = await server.get("/mcp", {"accept": "text/event-stream", "mcp-protocol-version": MODERN}, method)
            assert (refused.status, refused.headers["allow"]) == (405, "POST")
            assert refused.json["error"]["data"]["error"]["code"] == "METHOD_NOT_ALLOWED"
        for method, status in (("GET", 400), ("DELETE", 400)):
            assert (await server.get("/mcp", {"accept": "text/event-stream"}, method)).status == status
        assert (await server.get("/mcp/more")).status == 404


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "nonsense", "x" * 5000])
async def test_a_version_that_is_not_supported_is_refused_as_such(version: str) -> None:
    """The answer names the versions that there are, whatever else is wrong, with a session and without one."""
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with serving(*TOOLS) as server, calling(server) as caller:
        for headers in ({}, {"mcp-session-id": caller.session or ""}):
            for message, answered in ((ping, 7), (note, None)):
                answer = await post(server, message, {**headers, "mcp-protocol-version": version})
                assert answer.status == 400
                assert answer.json["id"] == answered
                error = answer.json["error"]
                assert (error["code"], error["data"]["supported"]) == (-32022, [*VERSIONS])
                assert error["data"]["requested"] == (version if len(version) <= 100 else version[:100] + "…")
                assert "is not supported; there are 2024-11-05, " in error["message"]
        assert (await caller.call("echo", text="hi"))["structuredContent"] == {"result": "hi"}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_formats(version: str) -> None:
    """What is sent or asked for in another format than JSON is refused in JSON, in every version, and opens no session; JSON
    may be called by any of its names.
    """
    async with serving(*TOOLS) as server, calling(server, version) as caller:

        async def hello(**changed: str) -> Answer:
            headers = caller.headers
            caller.headers = {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}
            try:
                await caller.send("initialize" if version != MODERN else "tools/list", **HELLO[0]["params"])
                return await caller.client.answer()
            finally:
                caller.headers = headers

        for status, changed in (
            (400, {"content_type": "text/plain"}),
            (400, {"content_type": "application/json; charset=latin-1"}),
            (406, {"accept": "text/html"}),
            (406, {"accept": "application/json"}),
        ):
            answer = await hello(**changed)
            assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
            assert answer.json["error"]["data"]["error"]["code"] == "INVALID_REQUEST"
            assert "mcp-session-id" not in answer.headers
        for kind in ("Application/JSON", "application/json;charset=UTF-8", "application/vnd.shop+json"):
            answer = await hello(content_type=kind, accept="*/*")
            assert answer.status == 200
            assert "result" in messages(answer)[-1]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_arguments_that_are_no_object(version: str) -> None:
    """They are refused in the words of every transport, and null means that there are none."""
    async with serving(*TOOLS) as server, calling(server, version) as caller:
        wrong: tuple[object, ...] = ([], "x", 1)
        for arguments in wrong:
            await caller.send("tools/call", name="echo", arguments=arguments)
            result = messages(await caller.client.answer())[-1]["result"]
            assert result["_meta"]["carmy/error"]["code"] == "INVALID_ARGUMENTS"
        await caller.send("tools/call", name="big", arguments=None)
        problems = messages(await caller.client.answer())[-1]["result"]["_meta"]["carmy/error"]["details"]["problems"]
        assert [problem["code"] for problem in problems] == ["missing"]


async def test_an_id_twice() -> None:
    """While a request is handled, another one with its id in the same session is refused, and the first goes on."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        sent = await caller.send("tools/call", name="hold", arguments={})
        await is_running(server.engine)
        session = {"mcp-session-id": caller.session or ""}
        again = await post(server, {"jsonrpc": "2.0", "id": str(sent), "method": "ping"}, session)
        assert (again.status, again.json["error"]["code"]) == (400, -32600)
        assert server.engine.statistics().running == 1


async def test_names_that_are_not_ours() -> None:
    """Host, Origin and preflight follow the rules of the other addresses, and pages that are listed can speak MCP."""
    async with serving(*TOOLS, http={"allowed_origins": [PAGE]}) as server:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        assert (await post(server, hello, {"host": "evil.example"})).status == 403
        assert (await post(server, hello, {"origin": "https://evil.example"})).status == 403
        asked = {"origin": PAGE, "access-control-request-method": "POST"}
        preflight = await server.get("/mcp", asked, "OPTIONS")
        assert preflight.status == 204
        for name in ("Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-ID"):
            assert name in preflight.headers["access-control-allow-headers"]
        async with calling(server, headers={"origin": PAGE}) as caller:
            await caller.send("tools/list")
            answer = await caller.client.answer()
            assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
            assert answer.headers["access-control-allow-origin"] == PAGE


async def test_whose_a_session_is() -> None:
    """Without credentials there is none; another principal's does not exist, and no other caller can end it or take back its calls."""
    ana, bob = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
    tokens = BearerTokens({"a": AgentContext(principal="ana"), "b": AgentContext(principal="bob")})
    async with serving(*TOOLS, authenticator=tokens) as server:
        refused = await server.get("/mcp")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        async with calling(server, headers=ana) as caller:
            sent = await caller.send("tools/call", name="hold", arguments={})
            await is_running(server.engine)
            theirs = {**bob, "mcp-session-id": caller.session or ""}
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": sent}}
            assert (await post(server, cancel, theirs)).status == 404
            assert (await server.get("/mcp", theirs, "DELETE")).status == 404
            assert (await post(server, cancel, {"mcp-session-id": caller.session or ""})).status == 401
            assert server.engine.statistics().running == 1
        record = await last_record(server.engine)
        assert (record.principal, record.cause) == ("ana", Cause.DISCONNECT)


async def test_sessions_without_end() -> None:
    """At the limit the session that has been idle for longest makes room; when all are in use, the next one is refused."""
    async with (
        serving(*TOOLS, settings={"mcp": McpSettings(max_sessions=3)}) as server,
        calling(server) as busy,
        calling(server) as idle,
    ):
        await busy.send("tools/call", name="hold", arguments={})
        await is_running(server.engine)
        for _ in range(5):
            async with calling(server) as other:
                assert other.session is not None
        assert (await post(server, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, _in(idle))).status == 404
        assert server.engine.statistics().running == 1
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                await nursery.start(_hold, server)
            await is_running(server.engine, 3)
            async with server.client() as client:
                full = await Caller(client, "2025-11-25").hello()
            assert (full.status, full.headers["retry-after"]) == (503, "5")
            assert full.json["error"]["data"]["error"]["code"] == "OVERLOADED"
            assert (await post(server, {"jsonrpc": "2.0", "id": 9, "method": "ping"}, _in(busy))).status == 200
            nursery.cancel_scope.cancel()


def _in(caller: Caller) -> dict[str, str]:
    return {"mcp-session-id": caller.session or ""}


async def _hold(server: Running, *, task_status: trio.TaskStatus[None]) -> None:
    async with calling(server) as caller:
        await caller.send("tools/call", name="hold", arguments={})
        task_status.started()
        await trio.sleep_forever()


async def test_a_session_that_is_idle_for_too_long() -> None:
    """It ends by itself, but not while a call runs in it."""
    async with (
        serving(*TOOLS, settings={"mcp": McpSettings(session_idle_secs=1.0)}) as server,
        calling(server) as caller,
    ):
        slept = await caller.call("hold", {"carmy/timeout_ms": 1500})
        assert slept["_meta"]["carmy/status"] == "timed_out"
        with trio.fail_after(20):
            while True:
                await caller.send("tools/list")
                if (await caller.client.answer()).status == 404:
                    break
                await trio.sleep(1.2)


async def test_a_reader_that_is_slow() -> None:
    """Reports to a client that reads nothing are merged, a call in another session is not held up, and the answer comes."""
    async with serving(*TOOLS) as server, calling(server) as caller, calling(server) as other:
        await caller.send("tools/call", {"progressToken": "t"}, name="steps", arguments={"to": 3000})
        assert (await other.call("echo", text="x" * 500_000))["structuredContent"] == {"result": "x" * 500_000}
        *reports, last = messages(await caller.client.answer())
        assert last["result"]["structuredContent"] == {"result": 3000}
        seen: list[Any] = [report["params"]["progress"] for report in reports]
        assert seen == sorted(set(seen))


async def test_comments_while_a_reader_is_slow() -> None:
    """A comment for a silent stream never gets into an event that is on its way."""
    async with serving(*TOOLS, http={"heartbeat_secs": 0.02}) as server, calling(server) as caller:
        await caller.send("tools/call", {"progressToken": 1}, name="big", arguments={"size": 7_000_000})
        await is_running(server.engine, 0)
        await trio.sleep(0.2)  # time for comments, in which nothing is read
        (told,) = messages(await caller.client.answer())
        assert told["result"]["structuredContent"] == {"result": "x" * 7_000_000}


async def test_a_stream_that_nobody_reads() -> None:
    """It holds up no other call of its session."""
    async with serving(*TOOLS) as server, calling(server) as caller, server.client() as client:
        other = Caller(client, caller.version)
        other.session, other._id = caller.session, 100
        await caller.send("tools/call", {"progressToken": "t"}, name="steps", arguments={"to": 10**9})
        await is_running(server.engine)
        with trio.fail_after(50):
            await trio.testing.wait_all_tasks_blocked(0.05)  # everything between the tool and the client is full
        answer = await other.call("echo", text="hi")
        assert answer["structuredContent"] == {"result": "hi"}
        assert server.engine.statistics().running == 1


async def test_a_reader_that_never_reads() -> None:
    """It cannot hold the server: at shutdown its call is cancelled and the server ends."""
    async with serving(*TOOLS) as server, calling(server) as caller:
        await caller.send("tools/call", {"progressToken": "t"}, name="steps", arguments={"to": 10**9})
        await is_running(server.engine)
        with trio.fail_after(50):
            await trio.testing.wait_all_tasks_blocked(0.05)  # everything between the tool and the client is full
            await server.engine.shut_down(0)
            await server.ended.wait()


def test_sessions_are_bounded() -> None:
    """A session that is in use never makes room, and that of another owner does not exist."""
    sessions = Sessions(2)
    _open(sessions, "a", ANA)
    _open(sessions, "b", ANA)
    found = sessions.find("a", ANA)
    assert found is not None
    with sessions.using("a", found):
        evicted = sessions.make_room(ANA)
        assert evicted is not None
        sessions.add("c", ANA, found.protocol, found.standing)
        with sessions.using("c", sessions.find("c", ANA) or found), pytest.raises(FullError):
            sessions.make_room(ANA)
    assert (found.open, found.running, len(sessions)) == (0, {}, 2)
    assert sessions.find("a", BOB) is None
    assert sessions.find("b", ANA) is None


def test_which_session_makes_room() -> None:
    """The owner's that was used least lately, and anybody's where the owner has none."""
    sessions = Sessions(4)
    opened = {id_: _open(sessions, id_, owner)[1] for id_, owner in (("bob", BOB), ("a", ANA), ("b", ANA), ("c", ANA))}
    with sessions.using("a", opened["a"]):
        pass
    for session_id, evicted in (("d", "b"), ("e", "c"), ("f", "a")):
        gone, _ = _open(sessions, session_id, ANA)
        assert gone is opened[evicted]
    gone, _ = _open(sessions, "new", ("eve", None))
    assert gone is opened["bob"]
    assert sessions.find("bob", BOB) is None


def _open(sessions: Sessions, session_id: str, owner: tuple[str, None]) -> tuple[Session | None, Session]:
    evicted = sessions.make_room(owner)
    return evicted, sessions.add(session_id, owner, ServerProtocol(1, 1), EventStream(EventLog("0", 1)))
