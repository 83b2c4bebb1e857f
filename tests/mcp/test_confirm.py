"""Asking the person behind a client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from mcp import Client as OfficialClient
from mcp import types
from mcp.client.stdio import StdioServerParameters

from carmy_engine import Effect, McpSettings, ToolSpec
from carmy_mcp.server import confirmations
from carmy_mcp.server.confirmations import MAX_SHOWN, Questions
from tests.mcp.conftest import COMMAND, HELLO, ask, call
from tests.mcp.inside import MODERN, Client, Ran, code, connected
from tests.stdio.conftest import peer

YES = {"action": "accept", "content": {"confirm": True}}
NO = [
    {"action": "decline"},
    {"action": "cancel"},
    {"action": "accept"},
    {"action": "accept", "content": {"confirm": False}},
    {"action": "accept", "content": {"confirm": "true"}},
    {"action": "accept", "content": {"else": True}},
]


async def asked(client: Client) -> tuple[int, dict[str, Any]]:
    """The server's question, which has to be the next message: its id and its parameters."""
    question = await client.receive()
    assert question["method"] == "elicitation/create"
    return question["id"], question["params"]


async def answer(client: Client, id: int, result: Any) -> dict[str, Any]:  # noqa: A002 - its name on the wire
    """Answer a question; the result of the call that it was about."""
    await client.send({"jsonrpc": "2.0", "id": id, "result": result})
    return (await client.receive())["result"]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("elicitation", [{}, {"form": {}}, {"form": {}, "url": {}}])
async def test_a_yes_counts_for_one_call(version: str, elicitation: dict[str, Any]) -> None:
    """The person sees tool and arguments; after a yes the call runs, and the next one is asked about anew."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": elicitation}, version=version) as client:
        await client.call("destroy", {"name": "x"})
        question, params = await asked(client)
        assert "destroy" in params["message"]
        assert '{"name":"x"}' in params["message"]
        assert params["requestedSchema"]["required"] == ["confirm"]
        assert ran.names == []
        result = await answer(client, question, YES)
        assert result["structuredContent"] == {"result": "x is gone"}
        await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        assert code(await answer(client, question, NO[0])) == "CONFIRMATION_REQUIRED"
    assert ran.names == ["x"]


@pytest.mark.parametrize("no", NO)
async def test_anything_but_a_yes(no: dict[str, Any]) -> None:
    """Is refused as if no person could be asked, with what to do about it."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        result = await answer(client, question, no)
        assert code(result) == "CONFIRMATION_REQUIRED"
        assert result["_meta"]["carmy/next_actions"][0]["tool"] == "destroy"
    assert ran.names == []


@pytest.mark.parametrize(
    "reply", [{"error": {"code": -1, "message": "no"}}, {"result": {}}, {"result": {"action": "x"}}]
)
async def test_a_client_that_cannot_ask_after_all(reply: dict[str, Any]) -> None:
    """An error, or an answer of another shape, is no yes; the connection goes on."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        await client.send({"jsonrpc": "2.0", "id": question, **reply})
        assert code((await client.receive())["result"]) == "CONFIRMATION_REQUIRED"
        assert await client.outcome("ping") == {}
    assert ran.names == []


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [
        ("2025-11-25", {}),
        ("2025-11-25", {"elicitation": {"url": {}}}),
        ("2025-03-26", {"elicitation": {}}),
        (MODERN, {}),
        (MODERN, {"elicitation": {"url": {}}}),
    ],
)
async def test_clients_that_cannot_ask(version: str, capabilities: dict[str, Any]) -> None:
    """They get the refusal at once."""
    ran = Ran()
    async with connected(ran, capabilities=capabilities, version=version) as client:
        assert code(await client.result("destroy", {"name": "x"})) == "CONFIRMATION_REQUIRED"
    assert ran.names == []


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_nobody_is_asked_in_vain(version: str) -> None:
    """There is no question about a call that would be refused all the same, or that is allowed already."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, version=version) as client:
        assert code(await client.result("destroy", {"nome": "x"})) == "INVALID_ARGUMENTS"
    bound = {"permissions": {"confirm:destroy"}}
    async with connected(ran, capabilities={"elicitation": {}}, version=version, bound=bound) as client:
        assert code(await client.result("destroy", {"name": "x"})) == "ok"


async def test_a_call_that_is_taken_back(autojump_clock: trio.testing.MockClock) -> None:
    """With its call the question is taken back; a yes that comes too late runs nothing, and the connection goes on."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        sent = await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        await client.cancel(sent)
        taken_back = await client.receive()
        assert taken_back["method"] == "notifications/cancelled"
        assert taken_back["params"]["requestId"] == question
        await client.send({"jsonrpc": "2.0", "id": question, "result": YES})
        await client.call("destroy", {"name": "y"})
        question, _ = await asked(client)
        await answer(client, question, YES)
    assert ran.names == ["y"]


async def test_taking_a_call_back_at_any_moment() -> None:
    """Before, while and after its person is asked: it runs whole or not at all, and no question stays open."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client, trio.open_nursery() as nursery:
        answered: dict[int, trio.Event] = {}

        async def person() -> None:
            while True:
                message = await client.receive()
                if message.get("method") == "elicitation/create":
                    await client.send({"jsonrpc": "2.0", "id": message["id"], "result": YES})
                elif "id" in message:
                    answered.setdefault(message["id"], trio.Event()).set()

        async def settled(sent: int) -> None:
            with trio.fail_after(20):
                await answered.setdefault(sent, trio.Event()).wait()

        nursery.start_soon(person)
        for steps in range(40):
            sent = await client.call("destroy", {"name": f"{steps}"})
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await client.cancel(sent)
            await settled(await client.request("ping"))
            await trio.testing.wait_all_tasks_blocked()
            assert client.questions.waiting == 0
            assert client.engine.statistics().running == 0
        assert "0" not in ran.names
        await settled(await client.call("destroy", {"name": "last"}))
        assert ran.names[-1] == "last"
        nursery.cancel_scope.cancel()


async def test_a_person_that_does_not_answer(autojump_clock: trio.testing.MockClock) -> None:
    """After a time the question is taken back, and the call is refused."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        began = trio.current_time()
        sent = await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        taken_back, refused = await client.receive(), await client.receive()
        assert taken_back["params"]["requestId"] == question
        assert (refused["id"], code(refused["result"])) == (sent, "CONFIRMATION_REQUIRED")
        assert trio.current_time() - began == pytest.approx(McpSettings().question_timeout_secs, abs=1)
    assert ran.names == []


async def test_the_end_of_input_while_a_person_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    """A client that has ended its input cannot answer: the call is refused at once, not when the drain limit has passed."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        began = trio.current_time()
        sent = await client.call("destroy", {"name": "x"})
        await asked(client)
        await client.end()
        assert (await client.receive())["method"] == "notifications/cancelled"
        refused = await client.receive()
        assert (refused["id"], code(refused["result"])) == (sent, "CONFIRMATION_REQUIRED")
        assert trio.current_time() - began < 1
        with pytest.raises(trio.EndOfChannel):
            await client.receive()


async def test_a_server_that_stops_while_a_person_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    """The question is taken back: after an answer nothing would be started any more."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}) as client:
        await client.call("destroy", {"name": "x"})
        await asked(client)
        client.engine.stop()
        assert (await client.receive())["method"] == "notifications/cancelled"
        assert code((await client.receive())["result"]) == "CONFIRMATION_REQUIRED"


async def test_too_many_questions() -> None:
    """Beyond the limit calls are refused without a question; an answer makes room."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, limits={"max_questions": 1}) as client:
        await client.call("destroy", {"name": "x"})
        question, _ = await asked(client)
        assert code(await client.result("destroy", {"name": "y"})) == "CONFIRMATION_REQUIRED"
        assert code(await answer(client, question, YES)) == "ok"
        await client.call("destroy", {"name": "z"})
        question, _ = await asked(client)
        await answer(client, question, YES)
    assert ran.names == ["x", "z"]


# Since 2026-07-28: the question is the answer, and the call comes again.


async def questioned(client: Client, **arguments: Any) -> dict[str, Any]:
    """What a client has to send again, after its call was answered with a question."""
    result = await client.result("destroy", arguments)
    assert result["resultType"] == "input_required"
    (question,) = result["inputRequests"].values()
    assert question["method"] == "elicitation/create"
    assert "destroy" in question["params"]["message"]
    return {"requestState": result["requestState"], "inputResponses": {"confirm": YES}}


async def test_a_yes_in_the_second_round() -> None:
    """The same call with the answer runs, once: the same answer again is worth nothing."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, version=MODERN) as client:
        again = await questioned(client, name="x")
        assert ran.names == []
        result = await client.result("destroy", {"name": "x"}, **again)
        assert result["structuredContent"] == {"result": "x is gone"}
        assert (await client.result("destroy", {"name": "x"}, **again))["code"] == -32602
    assert ran.names == ["x"]


@pytest.mark.parametrize("no", [*NO, None])
async def test_a_no_in_the_second_round(no: dict[str, Any] | None) -> None:
    """Is refused, and what was asked cannot be answered otherwise afterwards."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, version=MODERN) as client:
        again = await questioned(client, name="x")
        answers = {} if no is None else {"inputResponses": {"confirm": no}}
        refused = await client.result("destroy", {"name": "x"}, requestState=again["requestState"], **answers)
        assert code(refused) == "CONFIRMATION_REQUIRED"
        assert (await client.result("destroy", {"name": "x"}, **again))["code"] == -32602
    assert ran.names == []


async def test_a_yes_to_another_question() -> None:
    """An answer counts for the arguments that were asked about; a state that was not given for them is an error of the protocol."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, version=MODERN) as client:
        again = await questioned(client, name="x")
        assert (await client.result("destroy", {"name": "y"}, **again))["code"] == -32602
        forged = {**again, "requestState": "A" * 32}
        assert (await client.result("destroy", {"name": "x"}, **forged))["code"] == -32602
        unasked = {"inputResponses": {"confirm": YES}}
        assert code(await client.result("destroy", {"name": "x"}, **unasked)) == "CONFIRMATION_REQUIRED"
    assert ran.names == []


async def test_a_yes_that_comes_late(autojump_clock: trio.testing.MockClock) -> None:
    """After a time the answer is worth nothing."""
    ran = Ran()
    async with connected(ran, capabilities={"elicitation": {}}, version=MODERN) as client:
        again = await questioned(client, name="x")
        await trio.sleep(McpSettings().question_timeout_secs + 1)
        assert (await client.result("destroy", {"name": "x"}, **again))["code"] == -32602
    assert ran.names == []


async def test_whose_question_it_was() -> None:
    """A question is its caller's: no other caller can answer it, and it is used up by the attempt."""
    questions = Questions(trio.Event(), McpSettings())
    for owner in (("ben", None), ("ana", "s"), (None, None)):
        state = questions.keep(("ana", None), b"digest")
        assert not questions.take(state, owner, b"digest")
        assert not questions.take(state, ("ana", None), b"digest")
    assert questions.take(questions.keep(("ana", None), b"digest"), ("ana", None), b"digest")


async def test_questions_that_nobody_answers() -> None:
    """Their number is bounded: the oldest makes room."""
    questions = Questions(trio.Event(), McpSettings())
    states = [questions.keep((None, None), b"d") for _ in range(McpSettings().max_questions + 1)]
    assert len(set(states)) == len(states)
    assert not questions.take(states[0], (None, None), b"d")
    assert questions.take(states[1], (None, None), b"d")
    assert questions.take(states[-1], (None, None), b"d")


def test_what_a_person_sees() -> None:
    """Long arguments are cut, saying so, and no character can make the question look like another one."""
    spec = ToolSpec(name="t", description="", input_schema={}, output_schema={}, effect=Effect.DESTRUCTIVE)
    tricks = {"a": "x\u202ey\u200b\u2028z\x1b[2J\U000e0001", "b": "größe 漢字"}
    message = confirmations._message(spec, msgspec.json.encode(tricks) + b"\n\n  ")
    assert message.isprintable()
    assert "größe 漢字" in message
    assert msgspec.json.decode(message.partition("? ")[2]) == tricks
    long = confirmations._message(spec, msgspec.json.encode({"a": "x" * 1_000_000}))
    assert len(long) < MAX_SHOWN + 200
    assert f"{1_000_000 + 8 - MAX_SHOWN} more characters" in long


# Real processes.


async def test_asking_can_be_switched_off(noisy: Path) -> None:
    """With ``mcp.confirm = "refuse"`` no person is asked."""
    hello = {**HELLO[0], "params": {**HELLO[0]["params"], "capabilities": {"elicitation": {}}}}
    async with peer(noisy, command=COMMAND, env=os.environ | {"CARMY_MCP_CONFIRM": "refuse"}) as found:
        await found.send(hello, HELLO[1])
        await found.receive()
        refused = await ask(found, call(1, "destroy", name="x"))
        assert code(refused["result"]) == "CONFIRMATION_REQUIRED"


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_the_official_client(noisy: Path, mode: str) -> None:
    """The SDK's own client asks in either way, and its person's yes and no decide."""
    questions: list[str] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        if '"kept"' in params.message:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"confirm": True})

    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(noisy)])
    with trio.fail_after(30):
        async with OfficialClient(server, mode=mode, elicitation_callback=person) as client:
            done = await client.call_tool("destroy", {"name": "gone"})
            assert done.structured_content == {"result": "gone"}
            refused = await client.call_tool("destroy", {"name": "kept"})
            assert (refused.meta or {})["carmy/error"]["code"] == "CONFIRMATION_REQUIRED"
    assert len(questions) == 2
