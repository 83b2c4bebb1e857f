"""A tool asks the client behind its call: a person, a model, its log, its roots."""

from __future__ import annotations

import enum
import logging
import threading
from typing import Literal

import msgspec
import pydantic
import pytest
import trio
import trio.testing

from carmy_engine import AgentContext, AgentError, App, DeclarationError, Engine, ExecutionRequest, ToolLog
from carmy_engine.abc import Answer, Root
from carmy_engine.content import Image, Text
from carmy_engine.testing import ScriptedClient


class Size(enum.Enum):
    """Sizes."""

    SMALL = "s"
    LARGE = "l"


class Shipping(pydantic.BaseModel):
    """Where to."""

    street: str
    parcels: int = pydantic.Field(1, ge=1)
    express: bool = False
    size: Size = Size.SMALL
    day: Literal["monday", "friday"] | None = None


class Nested(msgspec.Struct):
    where: Shipping


app = App("shop")


@app.tool(effect="read")
async def ship(ctx: AgentContext) -> str:
    """Ask for an address."""
    found = await ctx.ask(Shipping, "Where to?")
    return f"{type(found).__name__} {found.street} {found.parcels} {found.size.name} {found.day}"


@app.tool(effect="read")
async def look(ctx: AgentContext) -> list[bool]:
    """Tell what the client can do."""
    return [ctx.can_ask, ctx.can_sample, ctx.has_roots]


@app.tool(effect="read")
async def nested(ctx: AgentContext) -> str:
    """Ask for what no client can ask for."""
    return str(await ctx.ask(Nested, "?"))


@app.tool(effect="read")
async def summarise(ctx: AgentContext) -> str:
    """Use the client's model."""
    sample = await ctx.sample(["Sum up", Image(b"1", "image/png")], system="Be short", max_tokens=7, models=["opus"])
    return f"{sample.model}: {sample.text}"


@app.tool(effect="read")
async def places(ctx: AgentContext) -> list[str]:
    """Tell the roots."""
    return [root.uri for root in await ctx.roots()]


@app.tool(effect="read")
async def noisy(ctx: AgentContext, lines: int) -> str:
    """Log."""
    for number in range(lines):
        ctx.log("info", f"line {number}")
    return "done"


@app.tool(effect="read")
def noisy_thread(ctx: AgentContext) -> str:
    """Log in a thread."""
    ctx.log("warning", threading.current_thread().name)
    return "done"


@app.tool(effect="read")
async def wrong_level(ctx: AgentContext) -> str:
    """Log at no level."""
    ctx.log("loud", "hear")  # type: ignore[arg-type]
    return "done"


async def run(engine: Engine, tool: str, client: ScriptedClient | None = None, **arguments: object) -> object:
    bound = engine if client is None else engine.bind(client=client)
    return (await bound.execute(ExecutionRequest(tool=tool, arguments=arguments))).unwrap()


async def test_a_person_is_asked_for_a_model() -> None:
    """The client gets a flat schema without references; the tool gets the model with its defaults."""
    client = ScriptedClient(answers=[{"street": "Main", "day": None, "size": "l"}])
    async with app.open() as engine:
        assert await run(engine, "ship", client) == "Shipping Main 1 LARGE None"
    ((message, schema),) = client.asked
    assert message == "Where to?"
    assert schema["type"] == "object"
    assert schema["required"] == ["street"]
    assert schema["properties"] == {
        "street": {"type": "string"},
        "parcels": {"type": "integer", "default": 1, "minimum": 1},
        "express": {"type": "boolean", "default": False},
        "size": {"type": "string", "enum": ["s", "l"], "default": "s", "description": "Sizes."},
        "day": {"type": "string", "enum": ["monday", "friday"]},
    }
    assert "$defs" not in schema


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (Answer("decline"), "ANSWER_DECLINED", "declined"),
        (Answer("cancel"), "ANSWER_DECLINED", "did not answer"),
        ({"street": 7}, "INVALID_ANSWER", "value 'street' must be a string"),
        ({"street": "x", "parcels": 0}, "INVALID_ANSWER", "parcels"),
        ({"street": "x", "extra": 1}, "INVALID_ANSWER", "not known"),
        (AgentError("LATER", "come back", "conflict"), "LATER", "come back"),
        (RuntimeError("secret"), "TOOL_PANIC", "failed unexpectedly"),
    ],
)
async def test_answers_are_checked(answer: object, code: str, says: str) -> None:
    """A refusal, an answer that does not fit and a failing client each end the tool with an error of its own."""
    client = ScriptedClient(answers=[answer])  # type: ignore[list-item]
    async with app.open() as engine:
        with pytest.raises(AgentError, match=says) as raised:
            await run(engine, "ship", client)
    assert raised.value.code == code
    assert "secret" not in str(raised.value)


async def test_without_a_client_nothing_can_be_asked() -> None:
    """The members say so before, and the error names the member to look at."""
    async with app.open() as engine:
        assert await run(engine, "look") == [False, False, False]
        assert await run(engine, "look", ScriptedClient(answers=[], samples=[], roots=[])) == [True, True, True]
        for client in (None, ScriptedClient()):
            for tool, member in (("ship", "can_ask"), ("summarise", "can_sample"), ("places", "has_roots")):
                with pytest.raises(AgentError, match="CLIENT_UNAVAILABLE") as raised:
                    await run(engine, tool, client)
                assert f"ctx.{member}" in str(raised.value.suggested_action)


async def test_a_model_that_no_client_can_ask_for_is_refused() -> None:
    """The programmer learns which field it is."""
    async with app.open() as engine:
        result = await engine.bind(client=ScriptedClient(answers=[])).execute(ExecutionRequest(tool="nested"))
    assert isinstance(result.exception, DeclarationError)
    assert "cannot ask for 'where', which is of type object" in str(result.exception)


async def test_a_model_and_roots_are_asked_for() -> None:
    """The request has what the tool gave; the answer is read in words."""
    client = ScriptedClient(samples=["fine"], roots=[Root("file:///a"), Root("file:///b", "b")])
    async with app.open() as engine:
        assert await run(engine, "summarise", client) == "scripted: fine"
        assert await run(engine, "places", client) == ["file:///a", "file:///b"]
    (request,) = client.sampled
    assert [message.content for message in request.messages] == [Text("Sum up"), Image(b"1", "image/png")]
    assert (request.system, request.max_tokens, request.models) == ("Be short", 7, ("opus",))


async def test_waiting_for_an_answer_counts(autojump_clock: trio.testing.MockClock) -> None:
    """The deadline of the call ends the wait for a person."""
    client = ScriptedClient(answers=[])
    async with app.open() as engine:
        request = ExecutionRequest(tool="ship", timeout_ms=5000)
        result = await engine.bind(client=client).execute(request)
    assert result.error is not None
    assert result.error.code == "TIMEOUT"
    assert client.is_waiting.is_set()


async def test_a_cancel_reaches_the_question() -> None:
    """A call that is cancelled by id stops waiting for the person."""
    client = ScriptedClient(answers=[])
    async with app.open() as engine, trio.open_nursery() as nursery:
        bound = engine.bind(client=client)
        codes: list[str | None] = []

        async def call() -> None:
            result = await bound.execute(ExecutionRequest(tool="ship"))
            codes.append(None if result.error is None else result.error.code)

        nursery.start_soon(call)
        await client.is_waiting.wait()
        assert bound.cancel(bound.running()[0])
    assert codes == ["CANCELLED"]


async def test_log_messages_go_to_the_client() -> None:
    """In order, from the loop and from threads; beyond the limit they are counted."""
    client = ScriptedClient()
    async with app.open() as engine:
        await run(engine, "noisy", client, lines=150)
        assert client.logged == [("info", f"line {number}") for number in range(100)]
        other = ScriptedClient()
        await run(engine, "noisy_thread", other)
        await trio.testing.wait_all_tasks_blocked()
        assert [level for level, _ in other.logged] == ["warning"]


async def test_log_messages_are_events_of_a_stream() -> None:
    """Without a client that takes them, and between start and end of the tool."""
    client = ScriptedClient(takes_logs=False)
    async with app.open() as engine:
        for bound in (engine, engine.bind(client=client)):
            request = ExecutionRequest(tool="noisy", arguments={"lines": 150})
            async with bound.stream(request) as stream:
                events = [event async for event in stream]
            kinds = [event.kind for event in events]
            assert kinds[:2] == ["execution.started", "tool.started"]
            assert kinds[-2:] == ["tool.completed", "execution.completed"]
            logs = [event for event in events if isinstance(event, ToolLog)]
            assert [event.message for event in logs] == [f"line {number}" for number in range(100)]
            assert [event.seq for event in events] == [*range(len(events))]


async def test_other_log_messages_are_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    """A plain call without a client writes to the logger for tools, and a wrong level is the tool's fault."""
    caplog.set_level(logging.INFO, "carmy.tools")
    async with app.open() as engine:
        await run(engine, "noisy", lines=2)
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ["line 0", "line 1"]
        with pytest.raises(AgentError, match="TOOL_PANIC"):
            await run(engine, "wrong_level")


async def test_a_wrong_client_is_refused_where_it_is_bound() -> None:
    """An object without the members is no client."""
    async with app.open() as engine:
        with pytest.raises(DeclarationError, match="str object is not a client for this executor"):
            engine.bind(client="me")  # type: ignore[arg-type]
