"""Over HTTP: what is asked, and what outlives its request."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import trio
from mcp import types
from mcp.client.client import Client

from carmy_engine import AgentContext, BearerTokens, McpSettings, tool
from tests.mcp.conftest import HELLO
from tests.mcp.http import MODERN, Caller, calling, is_running, last_record, reaches
from tests.mcp.inside import KNOWS_TASKS, Ran, code
from tests.support.http import front_end, serving

TASKS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": KNOWS_TASKS}
ASKS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
YES = {"confirm": {"action": "accept", "content": {"confirm": True}}}
SOON: dict[str, Any] = {"mcp": McpSettings(promote_after_secs=0.01)}


@pytest.fixture(autouse=True, params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)


def tools_of(ran: Ran) -> list[Any]:
    """Tools that say when they run."""

    @tool(effect="destructive", register=False)
    async def destroy(name: str) -> str:
        """Needs a confirmation."""
        ran.names.append(name)
        return f"{name} is gone"

    @tool(effect="write", parallel_safe=True, register=False)
    async def wait(name: str) -> dict[str, str]:
        """Goes on when it is told to."""
        ran.names.append(name)
        await ran.go_on.wait()
        return {"name": name}

    return [destroy, wait]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_the_person_behind_the_official_client(mode: str) -> None:
    """Is asked on either wire, and decides about one call each time."""
    ran = Ran()

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        if '"kept"' in params.message:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"confirm": True})

    async with serving(*tools_of(ran)) as server:
        with trio.fail_after(30):
            async with Client(f"http://127.0.0.1:{server.port}/mcp", mode=mode, elicitation_callback=person) as client:
                done = await client.call_tool("destroy", {"name": "x"})
                assert done.structured_content == {"result": "x is gone"}
                refused = await client.call_tool("destroy", {"name": "kept"})
                assert (refused.meta or {})["carmy/error"]["code"] == "CONFIRMATION_REQUIRED"
    gc.collect()  # it leaves generators behind, which would be another test's trouble
    assert ran.names == ["x"]


async def test_whose_question_it_was() -> None:
    """A question of one principal cannot be answered by another one."""
    ran = Ran()
    tokens = BearerTokens({name: AgentContext(principal=name) for name in ("ana", "ben")})
    async with (
        serving(*tools_of(ran), authenticator=tokens) as server,
        calling(server, MODERN, {"authorization": "Bearer ana"}) as ana,
        calling(server, MODERN, {"authorization": "Bearer ben"}) as ben,
    ):
        for answering, ending in ((ben, -32602), (ana, "ok")):
            asked = (await ana.ask("tools/call", ASKS, name="destroy", arguments={"name": "x"}))["result"]
            again = {"requestState": asked["requestState"], "inputResponses": YES}
            found = await answering.ask("tools/call", ASKS, name="destroy", arguments={"name": "x"}, **again)
            assert (code(found["result"]) if "result" in found else found["error"]["code"]) == ending
    assert ran.names == ["x"]


async def test_a_client_that_leaves_while_its_person_is_asked() -> None:
    """The call ends with its request: nothing runs, and nothing waits."""
    ran = Ran()
    async with serving(*tools_of(ran)) as server, server.client() as connection:
        caller = Caller(connection, "2025-11-25")
        hello = {**HELLO[0]["params"], "capabilities": {"elicitation": {}}}
        await caller.send("initialize", **hello)
        caller.session = (await connection.answer()).headers["mcp-session-id"]
        await caller.post(HELLO[1])
        await connection.answer()
        await caller.send("tools/call", name="destroy", arguments={"name": "x"})
        with trio.fail_after(20):
            await connection.until(b"elicitation/create")
        connection.reset()
        await reaches(lambda: len(server.engine.audit.newest()) == 1)
        assert (await last_record(server.engine)).error_code == "CANCELLED"
    assert ran.names == []


async def ended(caller: Caller, task_id: str) -> dict[str, Any]:
    """A task, once it is over."""
    with trio.fail_after(20):
        while True:
            task: dict[str, Any] = (await caller.ask("tasks/get", TASKS, taskId=task_id))["result"]
            if task["status"] != "working":
                return task


async def test_a_task_outlives_its_request() -> None:
    """The call goes on when the connection that it came on has gone; its outcome is there for any other of its principal."""
    ran = Ran()
    tokens = BearerTokens({name: AgentContext(principal=name) for name in ("ana", "ben")})
    async with serving(*tools_of(ran), authenticator=tokens, settings=SOON) as server:
        async with calling(server, MODERN, {"authorization": "Bearer ana"}) as ana:
            task = (await ana.ask("tools/call", TASKS, name="wait", arguments={"name": "x"}))["result"]
            assert task["resultType"] == "task"
        async with (
            calling(server, MODERN, {"authorization": "Bearer ben"}) as ben,
            calling(server, MODERN, {"authorization": "Bearer ana"}) as ana,
        ):
            foreign = await ben.ask("tasks/get", TASKS, taskId=task["taskId"])
            assert foreign["error"]["code"] == types.INVALID_PARAMS
            assert (await ana.ask("tasks/get", TASKS, taskId=task["taskId"]))["result"]["status"] == "working"
            ran.go_on.set()
            done = await ended(ana, task["taskId"])
            assert (done["status"], done["result"]["structuredContent"]) == ("completed", {"name": "x"})


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_name_of_a_task_in_the_headers(method: str) -> None:
    """A header ``Mcp-Name`` that is not the task's id is refused with 400; the right one, or none, is not."""
    ran = Ran()
    async with serving(*tools_of(ran), settings=SOON) as server, calling(server, MODERN) as caller:
        task = (await caller.ask("tools/call", TASKS, name="wait", arguments={"name": "x"}))["result"]
        for name, status in (("another", 400), (task["taskId"], 200), (None, 200)):
            caller.headers.pop("mcp-name", None)
            if name is not None:
                caller.headers["mcp-name"] = name
            sent = await caller.send(method, TASKS, taskId=task["taskId"])
            answer = await caller.client.answer()
            assert (answer.status, answer.json["id"]) == (status, sent)
            if status == 400:
                assert answer.json["error"]["code"] == -32020


async def test_cancelling_a_task() -> None:
    """Over HTTP, where there is no other way to take back what has been answered."""
    ran = Ran()
    async with serving(*tools_of(ran), settings=SOON) as server, calling(server, MODERN) as caller:
        task = (await caller.ask("tools/call", TASKS, name="wait", arguments={"name": "x"}))["result"]
        assert "result" in await caller.ask("tasks/cancel", TASKS, taskId=task["taskId"])
        assert (await ended(caller, task["taskId"]))["status"] == "cancelled"


async def test_a_client_that_leaves_before_its_call_is_a_task() -> None:
    """The call ends with its request, like that of any client."""
    ran = Ran()
    late = {"mcp": McpSettings(promote_after_secs=1000)}
    async with serving(*tools_of(ran), settings=late) as server, calling(server, MODERN) as caller:
        await caller.send("tools/call", TASKS, name="wait", arguments={"name": "x"})
        await is_running(server.engine)
        caller.client.reset()
        assert (await last_record(server.engine)).cause == "disconnect"


async def test_a_server_that_stops_with_tasks() -> None:
    """Tasks get the drain limit like any execution, and do not hold the end up any longer."""
    ran = Ran()
    async with serving(*tools_of(ran), settings=SOON) as server:
        async with calling(server, MODERN) as caller:
            await caller.ask("tools/call", TASKS, name="wait", arguments={"name": "x"})
        with trio.fail_after(20):
            await server.engine.shut_down(0.1)
            await server.ended.wait()
        assert (await last_record(server.engine)).error_code == "SHUTTING_DOWN"


class Looking:
    """Counts how often somebody looks which tools there are."""

    def __init__(self) -> None:
        self.looks = 0

    def check(self, context: AgentContext, spec: object) -> None:
        """Everybody may."""

    def is_listed(self, context: AgentContext, spec: object) -> bool:
        self.looks += 1
        return True


async def test_a_call_lists_nothing() -> None:
    """However many tools there are, a call costs the same: the SDK need not list them to check headers against a schema."""
    looking, ran = Looking(), Ran()
    ran.go_on.set()
    async with serving(*tools_of(ran), policies=[looking]) as server, calling(server, MODERN) as caller:
        await caller.call("wait", name="x")
        before = looking.looks
        for _ in range(3):
            assert (await caller.call("wait", name="x"))["structuredContent"] == {"name": "x"}
        assert looking.looks == before + 3  # each call asks about its own tool
