"""Calls that become tasks."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
import trio.testing
from mcp import Client as OfficialClient
from mcp import types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters

from carmy_engine import Cause, McpSettings
from carmy_mcp.protocol.params import TASKS
from carmy_mcp.protocol.results import ResultWriter
from tests.mcp.conftest import COMMAND, call
from tests.mcp.inside import KNOWS_TASKS, MODERN, Client, Ran, code, connected
from tests.stdio.conftest import appears, is_there, peer

Clock = trio.testing.MockClock


async def started(client: Client, name: str = "x", meta: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call that has become a task."""
    result = await client.result("wait", {"name": name}, meta=meta)
    assert (result["resultType"], result["status"]) == ("task", "working")
    return result


async def look(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """How a task is."""
    return await client.outcome("tasks/get", taskId=task["taskId"])


async def test_a_long_call_becomes_a_task(autojump_clock: Clock) -> None:
    """After two seconds the answer is a task; it goes on, has its progress, and has the call's result in the end."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        discovered = await client.outcome("server/discover")
        assert discovered["capabilities"]["extensions"] == {TASKS: {}}
        began = trio.current_time()
        task = await started(client)
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        assert task["ttlMs"] >= McpSettings().task_retention_secs * 1000
        assert task["pollIntervalMs"] == 1000
        assert datetime.fromisoformat(task["createdAt"]).tzinfo is not None
        await trio.sleep(20)
        working = await look(client, task)
        assert (working["resultType"], working["status"]) == ("complete", "working")
        assert working["statusMessage"] == "half of it"
        assert "result" not in working
        ran.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            done = await look(client, task)
            assert (done["resultType"], done["status"], done["taskId"]) == ("complete", "completed", task["taskId"])
            assert done["result"]["structuredContent"] == {"name": "x"}
            assert done["result"]["isError"] is False
            assert done["createdAt"] == task["createdAt"]
    assert ran.names == ["x"]


async def test_a_short_call_does_not(autojump_clock: Clock) -> None:
    """What is over in time is answered as ever; so are errors."""
    ran = Ran()
    ran.go_on.set()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        done = await client.result("wait", {"name": "x"})
        assert (done["resultType"], done["structuredContent"]) == ("complete", {"name": "x"})
        assert code(await client.result("wait", {"nome": "x"})) == "INVALID_ARGUMENTS"
        assert (await client.outcome("tools/call", name="absent", arguments={}))["code"] == types.INVALID_PARAMS


@pytest.mark.parametrize(
    ("version", "capabilities"), [(MODERN, {}), ("2025-11-25", {}), ("2025-11-25", {"tasks": {"cancel": {}}})]
)
async def test_clients_that_know_no_tasks(autojump_clock: Clock, version: str, capabilities: dict[str, Any]) -> None:
    """They are answered when the call is over, and have nothing to ask about tasks."""
    ran = Ran()
    async with connected(ran, capabilities=capabilities, version=version) as client:
        sent = await client.call("wait", {"name": "x"}, task={"ttl": 60_000})
        await trio.sleep(20)
        ran.go_on.set()
        answer = await client.receive()
        assert (answer["id"], answer["result"]["structuredContent"]) == (sent, {"name": "x"})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await client.outcome(method, taskId="x")
            if version == MODERN:
                assert error["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert error["data"] == {"requiredCapabilities": KNOWS_TASKS}
            else:
                assert error["code"] == types.METHOD_NOT_FOUND
        assert (await client.outcome("tasks/list"))["code"] == types.METHOD_NOT_FOUND
        assert (await client.outcome("tasks/result", taskId="x"))["code"] == types.METHOD_NOT_FOUND


async def test_cancelling_a_task(autojump_clock: Clock) -> None:
    """It is stopped, and its state is cancelled; its outcome is known, so a retry of the call gets it."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        meta = {"carmy/request_id": "r"}
        task = await started(client, meta=meta)
        assert (await client.outcome("tasks/cancel", taskId=task["taskId"]))["resultType"] == "complete"
        await trio.testing.wait_all_tasks_blocked()
        assert ran.ended == ["x"]
        assert (await look(client, task))["status"] == "cancelled"
        again = await client.result("wait", {"name": "x"}, meta=meta)
        assert (code(again), again["_meta"]["carmy/replayed"]) == ("CANCELLED", True)
        # Once more, and after the end: nothing to do, and nothing wrong.
        assert (await client.outcome("tasks/cancel", taskId=task["taskId"]))["resultType"] == "complete"


async def test_taking_the_call_back_in_time(autojump_clock: Clock) -> None:
    """A request that is cancelled before it is a task takes its call with it."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        meta = {"carmy/request_id": "r"}
        sent = await client.call("wait", {"name": "x"}, meta=meta)
        await trio.sleep(1)
        await client.cancel(sent)
        await trio.testing.wait_all_tasks_blocked()
        assert ran.ended == ["x"]
        await trio.sleep(5)
        again = await client.result("wait", {"name": "x"}, meta=meta)
        assert again["_meta"]["carmy/error"]["details"]["cause"] == Cause.CALLER.value


async def test_a_failing_task(autojump_clock: Clock) -> None:
    """A call that fails is a completed task, whose result is the error."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        task = await started(client, meta={"carmy/timeout_ms": 5000})
        await trio.sleep(10)
        late = await look(client, task)
        assert (late["status"], late["result"]["isError"], code(late["result"])) == ("completed", True, "TIMEOUT")


async def test_updating_a_task(autojump_clock: Clock) -> None:
    """Tasks ask for nothing, so an update is taken and changes nothing."""
    async with connected(Ran(), capabilities=KNOWS_TASKS, version=MODERN) as client:
        task = await started(client)
        taken = await client.outcome("tasks/update", taskId=task["taskId"], inputResponses={"a": {"action": "accept"}})
        assert taken["resultType"] == "complete"
        assert (await look(client, task))["status"] == "working"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_whose_a_task_is(autojump_clock: Clock, method: str) -> None:
    """For everybody but its caller there is no such task; a malformed question is refused."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN, bound={"principal": "ana"}) as ana:
        task = await started(ana)
        ana.caller = ana.engine.bind(principal="ben")
        foreign = await ana.outcome(method, taskId=task["taskId"], inputResponses={})
        ana.caller = ana.engine.bind(principal="ana")
        unknown = await ana.outcome(method, taskId="x", inputResponses={})
        assert foreign == unknown
        assert foreign["code"] == types.INVALID_PARAMS
        assert (await ana.outcome(method))["code"] == types.INVALID_PARAMS
        assert (await ana.outcome(method, taskId=1))["code"] == types.INVALID_PARAMS
        assert (await look(ana, task))["status"] == "working"


async def test_how_long_a_task_is_kept(autojump_clock: Clock) -> None:
    """Five minutes after its end, however long it took; as long as its ``ttlMs``."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        began = trio.current_time()
        task = await started(client)
        await trio.sleep(25)
        ran.go_on.set()
        await trio.sleep(McpSettings().task_retention_secs - 5)
        done = await look(client, task)
        assert done["status"] == "completed"
        await trio.sleep(began + done["ttlMs"] / 1000 - trio.current_time() + 1)
        assert (await look(client, task))["code"] == types.INVALID_PARAMS


async def test_more_calls_than_tasks(autojump_clock: Clock) -> None:
    """When there is no room for another task, a call is answered when it is over: nothing is lost."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN, limits={"max_tasks": 1}) as client:
        task = await started(client)
        sent = await client.call("wait", {"name": "y"})
        await trio.sleep(10)
        ran.go_on.set()
        answer = await client.receive()
        assert (answer["id"], answer["result"]["structuredContent"]) == (sent, {"name": "y"})
        assert (await look(client, task))["result"]["structuredContent"] == {"name": "x"}


async def test_large_outputs(autojump_clock: Clock) -> None:
    """Beyond a size together, outcomes that were there first are dropped."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN, limits={"max_task_bytes": 25}) as client:
        tasks = [await started(client, name) for name in "xyz"]
        ran.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        looks = [await look(client, task) for task in tasks]
        assert sum("result" in found for found in looks) == 2


async def test_a_client_that_does_not_read(autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it asks for a large outcome, that is written only as fast as it reads; then it gets all of it."""
    rendered: list[object] = []

    call_result = ResultWriter.call_result

    def counting(*arguments: Any, **options: Any) -> bytes:
        rendered.append(arguments)
        return call_result(*arguments, **options)

    monkeypatch.setattr(ResultWriter, "call_result", counting)
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        task = await started(client, "x" * 60_000)
        ran.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(60):
            await client.request("tasks/get", taskId=task["taskId"])
        await trio.testing.wait_all_tasks_blocked()
        assert len(rendered) < 25
        answers = [(await client.receive())["result"] for _ in range(60)]
        assert all(answer["result"]["structuredContent"]["name"] == "x" * 60_000 for answer in answers)


async def test_progress_ends_with_the_answer(autojump_clock: Clock) -> None:
    """Reports go to the token until the call becomes a task, and never after."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        sent = await client.call("wait", {"name": "x"}, meta={"progressToken": "t"})
        report = await client.receive()
        assert report["params"] == {"progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half of it"}
        answer = await client.receive()
        assert (answer["id"], answer["result"]["resultType"]) == (sent, "task")
        ran.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await look(client, answer["result"]))["statusMessage"] == "all of it"


async def test_a_question_comes_before_the_task(autojump_clock: Clock) -> None:
    """A client that supports tasks is asked for confirmations like any other."""
    ran = Ran()
    capabilities = {**KNOWS_TASKS, "elicitation": {}}
    async with connected(ran, capabilities=capabilities, version=MODERN) as client:
        asked = await client.result("destroy", {"name": "x"})
        assert asked["resultType"] == "input_required"
        yes = {"confirm": {"action": "accept", "content": {"confirm": True}}}
        done = await client.result("destroy", {"name": "x"}, requestState=asked["requestState"], inputResponses=yes)
        assert done["structuredContent"] == {"result": "x is gone"}


async def test_the_end_of_input_cancels_tasks(autojump_clock: Clock) -> None:
    """The client has left and cannot fetch their outcome: tasks are cancelled, with the cause ``disconnect``."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=MODERN) as client:
        await started(client)
        await client.end()
        with pytest.raises(trio.EndOfChannel):
            await client.receive()
        assert ran.ended == ["x"]
        (record,) = client.engine.audit.newest()
        assert (record.error_code, record.cause) == ("CANCELLED", Cause.DISCONNECT)


@pytest.mark.parametrize("promote_after", [1000, 0.001])
async def test_three_hundred_rounds_of_call_and_cancel(promote_after: float) -> None:
    """Calls that are cancelled, before they are tasks or as tasks, leave nothing behind, and the next one is answered."""
    ran = Ran()
    async with connected(
        ran, capabilities=KNOWS_TASKS, version=MODERN, limits={"promote_after_secs": promote_after}
    ) as client:
        for _ in range(300):
            sent = await client.call("wait", {"name": "x"})
            if promote_after == 1000:
                await client.cancel(sent)
            else:
                task = (await client.receive())["result"]
                assert (await client.outcome("tasks/cancel", taskId=task["taskId"]))["resultType"] == "complete"
        assert "capabilities" in await client.outcome("server/discover")
        with trio.fail_after(20):
            await client.engine.wait_idle()
        assert len(ran.ended) == len(ran.names)


# Real processes.


def envelope(**capabilities: Any) -> dict[str, Any]:
    """What a client of 2026-07-28 sends with every request."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


async def test_a_client_that_is_gone(noisy: Path, tmp_path: Path) -> None:
    """When no client reads the output any more, tasks are stopped at once, and the process ends."""
    env = os.environ | {"CARMY_MCP_PROMOTE_AFTER_SECS": "0.05"}
    async with peer(noisy, command=COMMAND, env=env) as found:
        await found.send(call(1, "hold", envelope(**KNOWS_TASKS), marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        assert (await found.receive())["result"]["resultType"] == "task"
        assert found.process.stdout is not None
        await found.process.stdout.aclose()
        await found.send({"jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": {"_meta": envelope()}})
        assert await found.exit_code() == 0
        assert not is_there(tmp_path / "held")


async def test_being_told_to_end(noisy: Path, tmp_path: Path) -> None:
    """At SIGTERM tasks get the drain limit, and then the process ends without them."""
    env = os.environ | {"CARMY_MCP_PROMOTE_AFTER_SECS": "0.05", "CARMY_DRAIN_TIMEOUT_SECS": "0.2"}
    async with peer(noisy, command=COMMAND, env=env) as found:
        await found.send(call(1, "hold", envelope(**KNOWS_TASKS), marker=str(tmp_path / "held")))
        assert (await found.receive())["result"]["resultType"] == "task"
        await appears(tmp_path / "held")
        found.process.send_signal(signal.SIGTERM)
        assert await found.rest() == []
        assert await found.exit_code() == 0
        assert not is_there(tmp_path / "held")


async def test_switched_off(noisy: Path) -> None:
    """With ``mcp.promote_after_secs = 0`` the server has no tasks, and does not announce them."""
    async with peer(noisy, command=COMMAND, env=os.environ | {"CARMY_MCP_PROMOTE_AFTER_SECS": "0"}) as found:
        meta = {"_meta": envelope(**KNOWS_TASKS)}
        await found.send({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": meta})
        assert "extensions" not in (await found.receive())["result"]["capabilities"]
        await found.send({"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {**meta, "taskId": "x"}})
        assert (await found.receive())["error"]["code"] == types.METHOD_NOT_FOUND


class CreatedTask(types.Result):
    """What the official client takes for a task, since it has no tasks of its own."""

    result_type: Literal["task"]
    task_id: str
    poll_interval_ms: int


class AskTask(types.RequestParams):
    """A question about one."""

    task_id: str


class GetTask(types.Request[AskTask, Literal["tasks/get"]]):
    """The question."""

    method: Literal["tasks/get"] = "tasks/get"
    params: AskTask


class TaskState(types.Result):
    """The answer."""

    status: str
    result: dict[str, Any] | None = None


class Polls(ClientExtension):
    """Waits for tasks."""

    identifier = TASKS

    def __init__(self, marker: Path) -> None:
        self.marker = marker
        self.tasks = 0

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, task: CreatedTask, context: ClaimContext) -> types.CallToolResult:
        self.tasks += 1
        self.marker.touch()
        question = GetTask(params=AskTask(task_id=task.task_id))
        while True:
            state = await context.session.send_request(question, TaskState)
            if state.status != "working":
                return types.CallToolResult.model_validate(state.result, by_name=False)
            await trio.sleep(0.01)


UNTIL = """
import os

import trio
from carmy_engine import app

app = app()

@app.tool(effect="none", parallel_safe=True)
async def until(path: str) -> str:
    while not os.path.exists(path):
        await trio.sleep(0.01)
    return "done"
"""


async def test_the_official_client(tmp_path: Path) -> None:
    """The SDK's own client, extended to wait for a task, gets the result of a call that has become one."""
    (tmp_path / "until.py").write_text(UNTIL)
    env = os.environ | {"CARMY_MCP_PROMOTE_AFTER_SECS": "0.01"}
    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(tmp_path / "until.py")], env=dict(env))
    polls = Polls(tmp_path / "seen")
    with trio.fail_after(30):
        async with OfficialClient(server, mode=MODERN, extensions=[polls]) as client:
            done = await client.call_tool("until", {"path": str(polls.marker)})
            assert done.structured_content == {"result": "done"}
    assert polls.tasks == 1
