"""The server as a process, spoken to by hand and by the official client."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import trio
import trio.testing
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from carmy_engine.transport import descendants
from tests.mcp.conftest import COMMAND, HELLO, ask, call, request, session
from tests.stdio.conftest import appears, is_gone, is_there, peer


async def test_nothing_but_messages_on_the_output(noisy: Path) -> None:
    """Whatever the application prints, by whatever means, goes to standard error."""
    async with session(noisy) as found:
        answer = await ask(found, call(1, "echo", text="hi"))
        assert answer["result"]["structuredContent"] == {"result": "hi"}
        assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]
        await found.end()
        assert await found.rest() == []
        assert await found.exit_code() == 0
        for kind in ("import", "print", "raw", "child"):
            assert f"noise: {kind}" in found.said.decode()


async def test_the_end_of_input_ends_the_process(noisy: Path, tmp_path: Path) -> None:
    """A client that closes its end has left: its running call is cancelled and not answered, and the process exits with 0."""
    async with session(noisy) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        await found.end()
        assert await found.rest() == []
        assert not is_there(tmp_path / "held")
        assert await found.exit_code() == 0


async def test_a_signal_after_the_end_of_input_begins_no_drain(noisy: Path, tmp_path: Path) -> None:
    """SIGTERM after the end of input does not wait for calls whose client has left, however long the drain limit is."""
    env = os.environ | {"CARMY_DRAIN_TIMEOUT_SECS": "3600"}
    async with session(noisy, env=env) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        await found.end()
        found.process.send_signal(signal.SIGTERM)
        assert await found.exit_code() == 0
        assert not is_there(tmp_path / "held")


async def test_the_end_of_input_ends_a_drain(noisy: Path, tmp_path: Path) -> None:
    """When a client leaves after SIGTERM, its calls do not get the rest of the drain limit."""
    env = os.environ | {"CARMY_DRAIN_TIMEOUT_SECS": "3600"}
    async with session(noisy, env=env) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        found.process.send_signal(signal.SIGTERM)
        with trio.fail_after(20):
            while b"stopping" not in found.said:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.01)
        await found.end()
        assert await found.exit_code() == 0
        assert not is_there(tmp_path / "held")


@pytest.mark.parametrize("tool", ["child", "stubborn", "spin"])
async def test_a_tool_that_does_not_end_and_its_children(noisy: Path, tmp_path: Path, tool: str) -> None:
    """Neither a thread, nor a shielded coroutine, nor a loop without an await keeps the process or a child of it alive."""
    marker = tmp_path / "child"
    env = os.environ | {"CARMY_DRAIN_TIMEOUT_SECS": "3600"}
    async with session(noisy, env=env) as found:
        await found.send(call(1, tool, marker=str(marker)))
        await appears(marker)
        children = descendants(found.process.pid)
        assert children
        await found.end()
        await found.exit_code()
        for child in children:
            await is_gone(child)


async def test_a_client_that_is_gone(noisy: Path, tmp_path: Path) -> None:
    """When no client reads the output any more, what runs is cancelled and the process ends."""
    async with session(noisy) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        assert found.process.stdout is not None
        await found.process.stdout.aclose()
        await found.send(request(2, "ping"))
        assert await found.exit_code() == 0
        assert not is_there(tmp_path / "held")


async def test_being_told_to_end(noisy: Path, tmp_path: Path) -> None:
    """At SIGTERM what still runs after the drain limit is answered that the server shuts down, and the process exits with 0."""
    env = os.environ | {"CARMY_DRAIN_TIMEOUT_SECS": "0.2"}
    async with session(noisy, env=env) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        found.process.send_signal(signal.SIGTERM)
        (answer,) = await found.rest()
        assert answer["result"]["_meta"]["carmy/error"]["code"] == "SHUTTING_DOWN"
        assert await found.exit_code() == 0


async def test_a_reader_that_is_slow(noisy: Path) -> None:
    """Answers that no client reads yet wait, however many bytes they have together, and all of them come."""
    text = "x" * 500_000
    async with session(noisy) as found:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.send, *(call(number, "echo", text=text) for number in range(20)))
            await trio.testing.wait_all_tasks_blocked(0.3)
            answers = [await found.receive() for _ in range(20)]
        assert {answer["id"] for answer in answers} == set(range(20))
        assert all(answer["result"]["structuredContent"] == {"result": text} for answer in answers)


async def test_garbage(noisy: Path) -> None:
    """Each bad line gets one error without an id, blank ones none, and the next request is answered."""
    bad = [b"garbage", b"null", b"1", b"[]", b'{"jsonrpc":"2.0","id":', b"\xff\xfe", b'{"jsonrpc":"2.0"}']
    bad += [b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"2.0","id":true,"method":"ping"}']
    bad += [b"[" * 100_000, b'{"jsonrpc":"2.0","method":"x","params":"' + b"x" * 5_000_000 + b'"}']
    async with session(noisy) as found:
        for line in bad:
            await found.send_bytes(b"\n  \r\n" + line + b"\n")
            answer = await found.receive()
            assert (answer["id"], answer["error"]["code"] in (-32700, -32600)) == (None, True)
        assert await ask(found, request("last", "ping")) == {"jsonrpc": "2.0", "id": "last", "result": {}}


@pytest.mark.parametrize(
    "params",
    [
        b'"name":"echo","name":"fail","arguments":{"text":"x"}',
        b'"name":"echo","arguments":{"text":"x"},"\\u0061rguments":{"text":"y"}',
        b'"name":"echo","arguments":{"text":"x"},"_meta":{"carmy/request_id":"a","carmy/request_id":"b"}',
        b'"name":"echo","arguments":{"text":"x"},"_meta":{"carmy/request_id":"a","carmy\\/request_id":"b"}',
        b'"name":"echo","arguments":{"text":"x"},"_meta":{"name":"echo"},"name":"fail"',
        b'"name":"echo","_meta":{"name":"echo"},"arguments":{"text":"x"},"_meta":{"arguments":{"text":"x"}}',
        b'"name":"echo","arguments":{"text":"%b"},"name":"fail"' % (b"x" * 1000),
        b'"name":"echo","arguments":{"text":"%b"},"\\u006eame":"fail"' % (b"x" * 1000),
        b'"name":"echo","arguments":{"text":"%b"}},"params":{"name":"fail"' % (b"x" * 1000),
    ],
)
async def test_members_that_are_there_twice(noisy: Path, params: bytes) -> None:
    """Are refused, whichever would count; a name that is a value as well is none of them."""
    async with session(noisy) as found:
        await found.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{' + params + b"}}\n")
        refused = await found.receive()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        assert "twice" in refused["error"]["message"]
        assert (await ask(found, call(2, "echo", text="name")))["result"]["structuredContent"] == {"result": "name"}


@pytest.mark.parametrize("again", [1, "1"])
async def test_an_id_twice(noisy: Path, tmp_path: Path, again: object) -> None:
    """While a request is handled, another one with its id is refused without an id, and the first goes on."""
    async with session(noisy) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        refused = await ask(found, request(again, "ping"))
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert is_there(tmp_path / "held")


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "result": {"content": []}},
        {"id": 1, "result": "none"},
        {"id": "1", "result": []},
        {"id": 1, "error": {"code": 1, "message": "no"}},
        {"id": 1, "error": "no"},
        {"id": 1},
        {"id": 1, "result": {}, "error": {}},
        {"id": 1, "method": 5},
        {"id": "1", "method": "tools/call", "params": []},
    ],
)
async def test_nothing_of_a_client_is_answered_under_the_id_of_its_running_call(
    noisy: Path, tmp_path: Path, message: dict[str, Any]
) -> None:
    """A response, or a bad message, with the id of a running call is ignored or answered with a null id."""
    async with session(noisy) as found:
        await found.send(call(1, "hold", marker=str(tmp_path / "held")))
        await appears(tmp_path / "held")
        await found.send({"jsonrpc": "2.0", **message}, request("next", "ping"))
        answer = await found.receive()
        if answer["id"] is None:
            answer = await found.receive()
        assert answer == {"jsonrpc": "2.0", "id": "next", "result": {}}
        assert is_there(tmp_path / "held")


async def test_cancelling(noisy: Path, tmp_path: Path) -> None:
    """A cancelled call is stopped and never answered; its request_id remains in doubt, since no caller saw an answer."""
    marker = tmp_path / "held"
    async with session(noisy) as found:
        meta = {"carmy/request_id": "r1"}
        await found.send(call(1, "hold", meta, marker=str(marker)))
        await appears(marker)
        await found.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        with trio.fail_after(10):
            while is_there(marker):  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.01)
        again = await ask(found, call(2, "hold", meta, marker=str(marker)))
        error = again["result"]["_meta"]["carmy/error"]
        assert (again["id"], error["code"]) == (2, "EXECUTION_UNCERTAIN")
        assert (error["details"]["state"], error["details"]["cause"]) == ("interrupted", "caller")


async def test_three_hundred_rounds_of_call_and_cancel(noisy: Path) -> None:
    """Calls that are cancelled at once leave nothing behind: the session answers, and ends when its input does."""
    async with session(noisy) as found:
        for number in range(300):
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            await found.send(call(number, "slow", number=number), cancel)
        await found.send(request("last", "ping"))
        answer = await found.receive()
        while answer["id"] != "last":
            answer = await found.receive()
        await found.end()
        assert await found.exit_code() == 0


async def test_progress(noisy: Path) -> None:
    """A token gets reports that rise strictly, all before the answer; without one there are none."""
    async with session(noisy) as found:
        await found.send(call(1, "steps", {"progressToken": "t"}))
        seen = []
        while "id" not in (message := await found.receive()):
            assert message["method"] == "notifications/progress"
            assert message["params"]["progressToken"] == "t"
            seen.append(message["params"]["progress"])
        assert seen == sorted(set(seen))
        assert seen[-1] == 3
        assert (await ask(found, call(2, "steps")))["id"] == 2


async def test_errors(noisy: Path) -> None:
    """Errors are results that a model can read, in the shape of every transport, and never structured content."""
    async with session(noisy) as found:
        declared = (await ask(found, call(1, "fail", how="declared")))["result"]
        assert declared["isError"] is True
        assert "structuredContent" not in declared
        assert declared["_meta"]["carmy/error"]["code"] == "NO_STOCK"
        assert declared["_meta"]["carmy/error"]["details"] == {"left": 0}
        assert declared["_meta"]["carmy/status"] == "failed"
        assert declared["content"] == [{"type": "text", "text": "the tool failed: there is none left"}]
        crashed = await ask(found, call(2, "fail", how="otherwise"))
        assert crashed["result"]["_meta"]["carmy/error"]["code"] == "TOOL_PANIC"
        assert b"hunter2" not in msgspec.json.encode(crashed)
        wanted = (await ask(found, call(3, "destroy", name="x")))["result"]
        assert wanted["_meta"]["carmy/error"]["code"] == "CONFIRMATION_REQUIRED"
        assert wanted["_meta"]["carmy/next_actions"][0]["tool"] == "destroy"
        unknown = (await ask(found, call(4, "ecco", text="x")))["error"]
        assert (unknown["code"], unknown["data"]["error"]["code"]) == (-32602, "TOOL_NOT_FOUND")


@pytest.mark.parametrize("arguments", [[], "x", 1])
async def test_arguments_that_are_no_object(noisy: Path, arguments: object) -> None:
    """They are refused in the engine's words, not the SDK's."""
    async with session(noisy) as found:
        answer = await ask(found, request(1, "tools/call", name="echo", arguments=arguments))
        assert answer["result"]["_meta"]["carmy/error"]["code"] == "INVALID_ARGUMENTS"


async def test_what_a_call_can_say_about_itself(noisy: Path) -> None:
    """request_id and timeout_ms come from ``_meta``, are refused when they are something else, and replays are marked."""
    async with session(noisy) as found:
        meta = {"carmy/request_id": "r1", "carmy/execution_meta": True}
        first = (await ask(found, call(1, "pair", meta, a=1, b=2**60)))["result"]
        again = (await ask(found, call(2, "pair", meta, a=1, b=2**60)))["result"]
        assert first["structuredContent"] == again["structuredContent"] == {"a": 1, "b": 2**60}
        assert first["_meta"]["carmy/execution_id"] == again["_meta"]["carmy/execution_id"]
        assert ("carmy/replayed" in first["_meta"], again["_meta"]["carmy/replayed"]) == (False, True)
        assert "_meta" not in (await ask(found, call(3, "pair", a=1, b=2)))["result"]
        late = (await ask(found, call(4, "slow", {"carmy/timeout_ms": 1}, number=1)))["result"]
        assert late["_meta"]["carmy/status"] == "timed_out"
        for wrong in (
            {"carmy/request_id": 1},
            {"carmy/timeout_ms": 0},
            {"carmy/timeout_ms": "5"},
            {"carmy/on_running": "join"},
            {"carmy/on_running": None},
        ):
            refused = (await ask(found, call(5, "pair", wrong, a=1, b=2)))["result"]
            assert refused["_meta"]["carmy/error"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_every_version(noisy: Path, version: str) -> None:
    """Tools are listed and called in every version that the SDK speaks."""
    envelope = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    modern = version == "2026-07-28"
    async with peer(noisy, command=COMMAND) as found:
        if not modern:
            hello = request("hello", "initialize", **{**HELLO[0]["params"], "protocolVersion": version})
            assert (await ask(found, hello))["result"]["protocolVersion"] == version
            await found.send(HELLO[1])
        listed = await ask(found, request(1, "tools/list", **({"_meta": envelope} if modern else {})))
        assert {tool["name"] for tool in listed["result"]["tools"]} >= {"echo", "pair"}
        answer = await ask(found, call(2, "pair", envelope if modern else None, a=1, b=2))
        assert answer["result"]["content"][0]["text"] == '{"a":1,"b":2}'


async def test_the_official_client(noisy: Path) -> None:
    """The SDK's own client lists and calls; what it gets fits the schemas that it was given."""
    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(noisy)])
    with trio.fail_after(30):
        async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as client:
            await client.initialize()
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments in (("echo", {"text": "hi"}), ("pair", {"a": 1, "b": 2}), ("slow", {"number": 7})):
                result = await client.call_tool(name, arguments)
                schema = tools[name].output_schema
                assert schema is not None
                jsonschema.validate(result.structured_content, schema)
            hints = tools["hold"].annotations
            assert hints is not None
            assert (hints.read_only_hint, hints.destructive_hint) == (False, False)
            assert (hints.idempotent_hint, hints.open_world_hint) == (False, True)
            assert (tools["destroy"].meta or {})["carmy/effect"] == "destructive"
