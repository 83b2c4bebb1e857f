"""Tools as LangChain tools, and in a graph of LangGraph."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from carmy_engine import aio, blocking
from tests.integrations.shop import ARGUMENTS, REPAIR, WRONG, make_app

pytest.importorskip("langchain_core", reason="make test-agents installs the frameworks")

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from typing_extensions import TypedDict

from carmy_engine.integrations.langchain import langchain_tools


def tool_call(name: str, arguments: Any, call_id: str = "1") -> Any:
    return {"type": "tool_call", "name": name, "args": dict(arguments), "id": call_id}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(tools: Any, turns: list[AIMessage]) -> Any:
    """A model that follows a script, and its tools."""

    def model(state: State) -> Any:
        said = sum(isinstance(message, AIMessage) for message in state["messages"])
        return {"messages": [turns[said]]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def test_tools_have_names_schemas_and_results() -> None:
    """Names fit the rule of models; the schema is the engine's; a result is a text and data."""
    app, done = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.name: tool for tool in langchain_tools(engine, await engine.catalog())}
            assert set(tools) == {"search", "order_create", "delete_all", "fails", "configure", "wait"}
            assert tools["search"].args_schema["required"] == ["query"]
            assert tools["search"].description == "Search the catalog."
            message = await tools["search"].ainvoke(tool_call("search", {"query": "mouse", "limit": 1}))
            assert message.content == '[{"name":"mouse 0"}]'
            assert message.artifact == [{"name": "mouse 0"}]
            assert await tools["search"].ainvoke({"query": "pad", "limit": 1}) == '[{"name":"pad 0"}]'
            wrong = await tools["order_create"].ainvoke(tool_call("order_create", WRONG, "2"))
            assert (wrong.status, wrong.content) == ("error", REPAIR)
            failed = await tools["fails"].ainvoke(tool_call("fails", {}, "3"))
            assert failed.content == "the tool failed: nothing is left. Try another shop."
            odd = await tools["configure"].ainvoke(tool_call("configure", {"config": "a", "run_manager": 3}, "4"))
            assert odd.content == "a 3"

    asyncio.run(main())
    assert done == ["search mouse", "search pad"]


def test_a_repeated_call_repeats_no_effect() -> None:
    """The same id of the same thread gets the stored answer; another thread runs it."""
    app, done = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.name: tool for tool in langchain_tools(engine, await engine.catalog())}
            for thread in ("a", "a", "b"):
                config = {"configurable": {"thread_id": thread}}
                message = await tools["order_create"].ainvoke(tool_call("order_create", ARGUMENTS), config)
                assert message.content == "ordered 2 x MO-1"

    asyncio.run(main())
    assert done == ["order 2 MO-1"] * 2


def test_a_confirmation_is_an_interrupt() -> None:
    """The graph stops with the question; only a yes runs the tool."""
    app, done = make_app()

    async def main(answer: bool) -> str:
        async with aio.open_app(app) as engine:
            tools = langchain_tools(engine, await engine.catalog())
            graph = graph_of(tools, [AIMessage("", tool_calls=[tool_call("delete_all", {})]), AIMessage("end")])
            config = {"configurable": {"thread_id": str(answer)}}
            state = await graph.ainvoke({"messages": [("user", "delete")]}, config)
            (question,) = state["__interrupt__"]
            assert question.value == {"type": "confirmation", "tool": "delete_all", "arguments": {}}
            state = await graph.ainvoke(Command(resume=answer), config)
            return str(state["messages"][-2].content)

    assert "confirm" in asyncio.run(main(False))
    assert done == []
    assert asyncio.run(main(True)) == "deleted"
    assert done == ["delete"]


def test_outside_of_a_graph_a_confirmation_is_an_error() -> None:
    """No person can be asked there."""
    app, done = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.name: tool for tool in langchain_tools(engine, await engine.catalog())}
            message = await tools["delete_all"].ainvoke(tool_call("delete_all", {}))
            assert message.status == "error"

    asyncio.run(main())
    assert done == []


def test_cancelling_the_task_cancels_the_execution() -> None:
    """The tool ends with the cause `caller`."""
    app, done = make_app()

    async def main() -> None:
        async with aio.open_app(app) as engine:
            tools = {tool.name: tool for tool in langchain_tools(engine, await engine.catalog())}
            task = asyncio.create_task(tools["wait"].ainvoke(tool_call("wait", {})))
            while "waiting" not in done:  # noqa: ASYNC110 - another thread appends to it
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert done == ["waiting", "ended caller"]


def test_plain_calls_need_a_blocking_executor() -> None:
    """`invoke` works with one, and is refused without."""
    app, _ = make_app()
    with blocking.open_app(app) as engine:
        tools = {tool.name: tool for tool in langchain_tools(engine, engine.catalog())}
        assert tools["search"].invoke({"query": "mouse", "limit": 1}) == '[{"name":"mouse 0"}]'
        assert asyncio.run(tools["search"].ainvoke({"query": "mouse", "limit": 1})) == '[{"name":"mouse 0"}]'

    async def main() -> None:
        async with aio.open_app(make_app()[0]) as engine:
            (tool, *_) = langchain_tools(engine, await engine.catalog())
            with pytest.raises(Exception, match=r"carmy_engine\.blocking"):
                tool.invoke({})

    asyncio.run(main())
