"""Tools as LlamaIndex tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from carmy_engine import aio, blocking
from tests.integrations.shop import ARGUMENTS, REPAIR, WRONG, make_app

pytest.importorskip("llama_index.core", reason="make test-agents installs the frameworks")

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM

from carmy_engine.integrations.llama_index import llama_index_tools

looks_at_itself = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
"""An agent of LlamaIndex reads all of its attributes, the deprecated ones of pydantic among them."""


def scripted(turns: Sequence[Sequence[tuple[str, dict[str, Any]]]]) -> MockFunctionCallingLLM:
    """A model whose turns make these calls, and whose last turn is a text: what it has been given for each call."""
    taken = iter(turns)

    def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        calls = next(taken, None)
        if calls is None:
            given = [message.content for message in messages if message.role == MessageRole.TOOL]
            return ChatMessage(role=MessageRole.ASSISTANT, content=" | ".join(map(str, given)))
        blocks = [
            ToolCallBlock(tool_call_id=f"{name} {number}", tool_name=name, tool_kwargs=arguments)
            for number, (name, arguments) in enumerate(calls)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)

    return MockFunctionCallingLLM(response_generator=answer)


def test_tools_have_names_schemas_and_results() -> None:
    """The schema is the engine's; errors are words for the model."""
    app, _ = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.metadata.name: tool for tool in llama_index_tools(engine, await engine.catalog())}
            function = tools["search"].metadata.to_openai_tool()["function"]
            assert function["parameters"]["required"] == ["query"]
            output = await tools["search"].acall(query="mouse", limit=1)
            assert (output.content, output.raw_output) == ('[{"name":"mouse 0"}]', [{"name": "mouse 0"}])
            wrong = await tools["order_create"].acall(**WRONG)
            assert (wrong.is_error, wrong.content) == (True, REPAIR)
            assert (await tools["delete_all"].acall()).is_error
            granted = engine.bind(permissions={"confirm:delete_all"})
            tools = {tool.metadata.name: tool for tool in llama_index_tools(granted, await granted.catalog())}
            assert (await tools["delete_all"].acall()).content == "deleted"

    asyncio.run(main())


def test_plain_calls() -> None:
    """With an executor of a program without a loop."""
    with blocking.open_app(make_app()[0]) as engine:
        tools = {tool.metadata.name: tool for tool in llama_index_tools(engine, engine.catalog())}
        assert tools["search"](query="mouse", limit=1).content == '[{"name":"mouse 0"}]'


@looks_at_itself
def test_an_agent_calls_tools_and_repairs_a_call() -> None:
    """A `FunctionAgent` makes two calls of one turn, gets the words for a wrong one, makes it again, and answers."""
    app, done = make_app()
    model = scripted(
        [
            [("search", {"query": "mouse", "limit": 1}), ("order_create", dict(WRONG))],
            [("order_create", dict(ARGUMENTS))],
            [("delete_all", {})],
        ]
    )

    async def main() -> None:
        async with aio.open_app(app) as engine:
            agent = FunctionAgent(llm=model, tools=llama_index_tools(engine, await engine.catalog()))
            run = agent.run("Order a mouse")
            outputs = [event.tool_output async for event in run.stream_events() if isinstance(event, ToolCallResult)]
            answer = str(await run)
            errors = [output.is_error for output in outputs]
            assert (sorted(errors[:2]), errors[2:]) == ([False, True], [False, True])  # the two of one turn run at once
            *of_one_turn, ordered, refused = answer.split(" | ")
            assert sorted(of_one_turn) == sorted(['[{"name":"mouse 0"}]', REPAIR])
            assert ordered == "ordered 2 x MO-1"
            assert "confirm" in refused

    asyncio.run(main())
    assert done == ["search mouse", "order 2 MO-1"]


@looks_at_itself
def test_cancelling_an_agent_cancels_its_call() -> None:
    """The execution ends with the cause of a caller that leaves."""
    app, done = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            agent = FunctionAgent(
                llm=scripted([[("wait", {})]]), tools=llama_index_tools(engine, await engine.catalog())
            )
            run = agent.run("Wait")
            while not done:  # noqa: ASYNC110 - the tool runs in another thread
                await asyncio.sleep(0.01)
            await run.cancel_run()
            with pytest.raises(BaseException):  # noqa: B017, PT011 - its own exception, or the cancel
                await run
            await engine.wait_idle()

    asyncio.run(main())
    assert done == ["waiting", "ended caller"]
