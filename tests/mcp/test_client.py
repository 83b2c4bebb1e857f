"""The client: an executor in front of servers that are none of ours."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from carmy_engine import (
    App,
    ClosedError,
    ConfigurationError,
    Effect,
    ExecutionCompleted,
    ExecutionRequest,
    ExecutionResult,
    OutcomeUnknownError,
    StartupError,
    ToolProgress,
)
from carmy_mcp import McpClientLimits, open_mcp
from carmy_mcp.client.executor import McpClient
from tests.mcp import far
from tests.stdio.conftest import appears, is_gone


@asynccontextmanager
async def scripted(directory: Path, **options: Any) -> AsyncIterator[McpClient]:
    """The client of the scripted server."""
    with trio.fail_after(50):
        async with open_mcp(far.scripted(directory), **options) as client:
            yield client


def request(tool: str, *, id: str | None = None, timeout_ms: float | None = None, **arguments: Any) -> ExecutionRequest:  # noqa: A002
    return ExecutionRequest(tool=tool, arguments=arguments, request_id=id, timeout_ms=timeout_ms)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": "Rome"}),
    ("add", {"a": 2**60, "b": 1}),
    ("wipe", {"path": "x"}),
    ("text", {"words": '{"not": "parsed"}'}),
    ("several", {}),
    ("nothing", {}),
    ("picture", {}),
    ("fail", {"words": "the reason"}),
    ("steps", {"count": 3}),
    ("add", {"a": "one"}),
    ("ask", {}),
    ("forecast", {}),
]


async def test_shadowing() -> None:
    """Every tool of a server of the official SDK gives what a direct call of the SDK's own client gets."""
    command = far.official()
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=far.PATHS)
    with trio.fail_after(50):
        async with open_mcp(command, env=far.PATHS) as ours, Client(stdio_client(parameters)) as theirs:
            listed = {tool.name: tool for tool in (await theirs.list_tools()).tools}
            catalog = {spec.name: spec for spec in (await ours.catalog()).tools}
            assert catalog.keys() == listed.keys() == {tool for tool, _ in CALLS}
            for name, spec in catalog.items():
                assert spec.input_schema == listed[name].input_schema
                assert spec.output_schema == unwrapped(listed[name].output_schema)
                assert spec.description == listed[name].description
            for tool, arguments in CALLS:
                result = await ours.execute(request(tool, **arguments))
                try:
                    answer = await theirs.call_tool(tool, arguments)
                except Exception:  # whatever the SDK raises for a question that nobody answers
                    assert tool in ("ask", "forecast")
                    assert result.error is not None
                    continue
                compare(result, answer)


def unwrapped(schema: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of an output that the SDK lists: without the object around what is none; of content where it lists none."""
    if schema is None:
        return {"x-carmy-content": "any"}
    return schema["properties"]["result"] if schema["properties"].keys() == {"result"} else schema


def compare(result: Any, answer: types.CallToolResult) -> None:
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
    for block in blocks:
        if "mimeType" in block:
            block["mime_type"] = block.pop("mimeType")
    if answer.is_error:
        assert result.error.code == "TOOL_ERROR"
        assert result.error.details["text"] == blocks[0]["text"]
    elif answer.structured_content is not None:
        structured = answer.structured_content
        assert result.data == (structured["result"] if structured.keys() == {"result"} else structured)
    elif len(blocks) == 1:
        assert result.data == (blocks[0]["text"] if blocks[0]["type"] == "text" else blocks[0])
    else:
        assert result.data == (blocks or None)
    assert result.execution_id.startswith("exec_")


async def test_a_stream() -> None:
    """Reports of a foreign tool come in order and rise, between the start and the end of the tool; the result is last."""
    with trio.fail_after(50):
        async with (
            open_mcp(far.official(), env=far.PATHS) as client,
            client.stream(request("steps", count=20)) as channel,
        ):
            events = [event async for event in channel]
    reports = [event for event in events if isinstance(event, ToolProgress)]
    steps = [event.progress or 0 for event in reports]
    assert steps == sorted(set(steps))
    assert steps[-1] == reports[-1].total == 20
    assert reports[-1].message == "step 20"
    kinds = [event.kind for event in events if event not in reports]
    assert kinds == ["execution.started", "tool.started", "tool.completed", "execution.completed"]
    assert len({event.execution_id for event in events}) == 1
    assert isinstance(events[-1], ExecutionCompleted)
    assert events[-1].result.data == 20


async def test_pages_and_effects(tmp_path: Path) -> None:
    """All pages of a listing make the catalog; a tool without hints counts as a write to the outside, unless the host declares otherwise."""
    tools: Any = {"count": {"effect": "write", "idempotent": True, "parallel_safe": False, "confirmation": "required"}}
    async with scripted(tmp_path, tools=tools) as client:
        catalog = {spec.name: spec for spec in (await client.catalog()).tools}
    assert len(catalog) == 16
    assert catalog["read"].effect is Effect.READ
    assert catalog["hang"].effect is Effect.EXTERNAL_WRITE
    assert not catalog["hang"].idempotent
    assert catalog["hang"].parallel_safe
    count = catalog["count"]
    assert (count.effect, count.idempotent, count.parallel_safe, count.confirmation) == (
        "write",
        True,
        False,
        "required",
    )


async def test_overrides_that_cannot_be(tmp_path: Path) -> None:
    """An override for a tool that the server does not have, or a wrong one, is refused before anything is called."""
    for tools, words in (
        ({"cuont": {"effect": "read"}}, "no tool named cuont"),
        ({"count": {"efect": "read"}}, "cannot be given 'efect'"),
        ({"count": {"effect": "wild"}}, "not valid"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            async with scripted(tmp_path, tools=tools):
                raise AssertionError("it cannot be open")


async def test_what_goes_along(tmp_path: Path) -> None:
    """The identity and the limit of a call are sent to the server, and a print that went astray harms nothing."""
    async with scripted(tmp_path) as client:
        result = await client.execute(request("count", id="r1", timeout_ms=5000))
        assert result.data == "counted"
    meta = json.loads((tmp_path / "meta").read_text())
    assert meta["carmy/request_id"] == "r1"
    assert 0 < meta["carmy/timeout_ms"] <= 5000


async def test_the_limit_of_a_call(tmp_path: Path) -> None:
    """A call of a server without limits is cancelled at its own limit, there as well; others go on."""
    async with scripted(tmp_path) as client:
        result = await client.execute(request("hang", timeout_ms=150))
        assert result.status == "timed_out"
        assert result.error is not None
        assert result.error.details == {"phase": "running"}
        assert (await client.execute(request("count"))).status == "completed"
        await appears(tmp_path / "cancelled")


async def test_leaving_a_call(tmp_path: Path) -> None:
    """Leaving the scope of a call, or the block of a stream, sends a cancel to the server."""
    async with scripted(tmp_path) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.execute, request("hang"))
            await appears(tmp_path / "hangs")
            nursery.cancel_scope.cancel()
        await appears(tmp_path / "cancelled")
        (tmp_path / "cancelled").unlink()
        async with client.stream(request("hang")) as events:
            assert (await events.receive()).kind == "execution.started"
            while len((tmp_path / "meta").read_text().splitlines()) < 2:
                await client.execute(request("nothing"))  # it takes its calls in order
        await appears(tmp_path / "cancelled")


async def test_a_server_that_dies(tmp_path: Path) -> None:
    """When the server dies in the middle of a call, its outcome is unknown. The server is started again, and calls wait for it."""
    async with scripted(tmp_path) as client:
        with pytest.raises(OutcomeUnknownError, match=r"(?s)exit code 3.*my last words") as caught:
            await client.execute(request("die", id="r1"))
        assert caught.value.request_id == "r1"
        assert (await client.execute(request("count"))).data == "counted"
        assert len((await client.catalog()).tools) == 16
    assert (tmp_path / "count").read_text() == "x"
    with pytest.raises(ClosedError, match="after its block"):
        await client.execute(request("count"))


async def test_a_server_that_dies_again_and_again(tmp_path: Path) -> None:
    """Each further start waits longer. Calls do not wait for it: they have not run, and the error has the server's last output."""
    async with scripted(tmp_path, limits=McpClientLimits(restart_secs=1000, max_restart_secs=2000)) as client:
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError):
                await client.execute(request("die"))
        with pytest.raises(ClosedError, match=r"(?s)exit code 3.*my last words.*started again in .*was not sent"):
            await client.execute(request("count"))
        with pytest.raises(ClosedError, match="exit code 3"):
            await client.catalog()
    assert not (tmp_path / "count").exists()


async def test_a_server_that_comes_back(tmp_path: Path) -> None:
    """After the pause there is a server again."""
    async with scripted(tmp_path, limits=McpClientLimits(restart_secs=0.01)) as client:
        for _ in range(3):
            with pytest.raises(OutcomeUnknownError):
                await execute_when_open(client, request("die"))
        assert (await execute_when_open(client, request("count"))).data == "counted"


async def execute_when_open(client: McpClient, call: ExecutionRequest) -> ExecutionResult:
    """Execute a call as soon as the server takes one."""
    while True:
        try:
            return await client.execute(call)
        except ClosedError:
            await trio.sleep(0.01)


async def test_answers_that_are_none(tmp_path: Path) -> None:
    """Numbers that JSON does not have, missing structure and broken shapes are ``INVALID_OUTPUT``, and no caller waits for ever."""
    async with scripted(tmp_path) as client:
        for tool, words in (
            ("nan", "cannot be read"),
            ("broken", "cannot be read"),
            ("promise", "no structured content"),
        ):
            result = await client.execute(request(tool))
            assert result.error is not None
            assert result.error.code == "INVALID_OUTPUT"
            assert words in result.error.message


async def test_noise(tmp_path: Path) -> None:
    """Whatever a server sends that is no answer, the answer to the call is found, and the next one as well."""
    async with scripted(tmp_path) as client:
        for _ in range(2):
            async with client.stream(request("noise")) as channel:
                events = [event async for event in channel]
            assert [event.kind for event in events] == [
                "execution.started",
                "tool.started",
                "tool.completed",
                "execution.completed",
            ]
            assert isinstance(events[-1], ExecutionCompleted)
            assert events[-1].result.data == "heard"


async def test_an_answer_without_end(tmp_path: Path) -> None:
    """A message over the limit ends the connection, as the call that it answers is not known; the next one is to another process."""
    async with scripted(tmp_path, limits=McpClientLimits(max_answer_bytes=5000)) as client:
        with pytest.raises(OutcomeUnknownError, match="more than 5000 bytes"):
            await client.execute(request("huge", size=6000))
        assert (await client.execute(request("count"))).data == "counted"


async def test_words_of_a_server(tmp_path: Path) -> None:
    """A server's own words about an error are data of a bounded size, and no part of ours."""
    async with scripted(tmp_path) as client:
        for call in (request("huge", size=100_000), request("refuse")):
            result = await client.execute(call)
            assert result.error is not None
            assert result.error.code == "TOOL_ERROR"
            assert result.error.details is not None
            assert 4000 <= len(result.error.details["text"]) <= 4001
            assert len(result.error.message) < 100
        unknown = await client.execute(request("nobody"))
        assert unknown.data == "no structure"  # the server says what there is, not its listing


async def test_what_a_server_may_not_ask(tmp_path: Path) -> None:
    """A server that wants to use the client's model gets an error, and goes on."""
    async with scripted(tmp_path) as client:
        assert (await client.execute(request("sample"))).data == "Sampling not supported"


async def test_tools_that_change(tmp_path: Path) -> None:
    """After a notice that the tools have changed, the next call uses the new ones."""
    async with scripted(tmp_path) as client:
        await client.execute(request("change"))
        result = await client.execute(request("new"))
        assert result.error is not None
        assert "no structured content" in result.error.message  # which only the new listing promises
        assert "new" in [spec.name for spec in (await client.catalog()).tools]
        await client.execute(request("change"))  # and now it lists them no more
        async with client.stream(request("count")) as channel:
            events = [event async for event in channel]
        assert isinstance(events[-1], ExecutionCompleted)
        assert events[-1].result.error is not None
        assert events[-1].result.error.code == "FORBIDDEN"
        assert not (tmp_path / "count").exists()


async def test_no_secrets_for_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server sees the few variables that every program needs, and those that it is given."""
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    async with scripted(tmp_path, env={"GIVEN": "1"}) as client:
        names = (await client.execute(request("environment"))).data.split()
    assert "GIVEN" in names
    assert "PATH" in names
    assert "SECRET_KEY" not in names


async def test_nothing_is_left(tmp_path: Path) -> None:
    """Leaving the block in the middle of a call ends the server and what it has started, and the call does not know its outcome."""
    program = f"import os, subprocess\nsubprocess.Popen(['sleep', '1000'])\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    command = far.scripted(tmp_path)
    command[2] = program + command[2]
    unknown: list[Exception] = []
    with trio.fail_after(50):
        async with trio.open_nursery() as nursery, open_mcp(command) as client:

            async def call() -> None:
                try:
                    await client.execute(request("hang"))
                except OutcomeUnknownError as error:
                    unknown.append(error)

            nursery.start_soon(call)
            await appears(tmp_path / "hangs")
            pid = int((tmp_path / "pid").read_text())
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            assert children
    assert len(unknown) == 1
    for left in (pid, *map(int, children)):
        await is_gone(left)


async def test_commands_that_are_no_servers(tmp_path: Path) -> None:
    """What cannot be started, ends at once, or sends nothing is a `ClosedError` that states which."""
    for command, seconds, words in (
        ([str(tmp_path / "nothing")], 30.0, "cannot be started"),
        ([*far.scripted(tmp_path)[:2], "raise LookupError('the reason')"], 30.0, "the reason"),
        ([*far.scripted(tmp_path)[:2], "import sys; sys.stdin.read()"], 0.3, "not ready within 0.3 s"),
    ):
        with trio.fail_after(30), pytest.raises(ClosedError, match=words):
            async with open_mcp(command, limits=McpClientLimits(ready_secs=seconds)):
                raise AssertionError("it cannot be open")


async def test_a_gateway(tmp_path: Path) -> None:
    """Mounted, a tool that has no guarantees gets ours: it runs once for a request_id, and its loss leaves a write in doubt."""
    app = App("gateway")
    app.mount(lambda: open_mcp(far.scripted(tmp_path), tools={"count": {"effect": "write"}}), prefix="far.")
    with trio.fail_after(50):
        async with app.open() as engine:
            first = await engine.execute(request("far.count", id="r1"))
            again = await engine.execute(request("far.count", id="r1"))
            assert (first.data, again.data, again.replayed) == ("counted", "counted", True)
            assert (tmp_path / "count").read_text() == "x"
            late = await engine.execute(request("far.hang", id="r2", timeout_ms=150))
            assert late.status == "timed_out"
            assert (await engine.execute(request("far.hang", id="r2", timeout_ms=150))).replayed
            for _ in range(2):
                lost = await engine.execute(request("far.die", id="r3"))
                assert lost.error is not None
                assert lost.error.code == "EXECUTION_UNCERTAIN"
                assert "last words" not in str(lost.error)
            again = await engine.execute(request("far.count", id="r4"))
            assert again.data == "counted"  # by the next process
            for _ in range(2):  # a call that may be repeated leaves nothing behind
                gone = await engine.execute(request("far.read", id="r5"))
                assert gone.error is not None
                assert gone.error.code == "EXECUTOR_UNAVAILABLE"


async def test_a_gateway_to_what_is_destructive() -> None:
    """A mounted tool whose server calls it destructive needs a confirmation."""
    app = App("gateway")
    app.mount(open_mcp(far.official(), env=far.PATHS))
    with trio.fail_after(50):
        async with app.open() as engine:
            refused = await engine.execute(request("wipe", path="x"))
            assert refused.error is not None
            assert refused.error.code == "CONFIRMATION_REQUIRED"
            trusted = engine.bind(permissions={"confirm:wipe"})
            assert (await trusted.execute(request("wipe", path="x"))).data == "x"


async def test_a_gateway_to_nothing(tmp_path: Path) -> None:
    """A server that cannot be started keeps the application from starting, with a reason."""
    app = App("gateway")
    app.mount(open_mcp([str(tmp_path / "nothing")]), prefix="far.")
    with trio.fail_after(30), pytest.raises(StartupError, match="cannot be started"):
        async with app.open():
            raise AssertionError("it cannot be open")
    assert not os.listdir(tmp_path)
