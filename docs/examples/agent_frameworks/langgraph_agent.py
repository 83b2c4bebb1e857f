"""An agent of LangGraph that calls tools of the engine, under a model that follows a script.

pip install carmy-engine langgraph
python langgraph_agent.py
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from shop import app

from carmy_engine import aio
from carmy_engine.integrations.langchain import langchain_tools


class State(TypedDict):
    """The conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


def call(name: str, call_id: str, **arguments: Any) -> AIMessage:
    """A turn of the model that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": call_id, "type": "tool_call"}])


SCRIPT = [call("search", "1", query="mouse"), call("clear_cart", "2"), AIMessage("Done.")]
"""In place of a model: its turns."""


def model(state: State) -> Any:
    """Give the next turn."""
    return {"messages": [SCRIPT[sum(isinstance(message, AIMessage) for message in state["messages"])]]}


async def main() -> None:
    """Run the agent; confirm what it asks for."""
    async with aio.open_app(app) as engine:
        graph = StateGraph(State)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode(langchain_tools(engine, await engine.catalog())))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
        graph.add_edge("tools", "model")
        agent = graph.compile(checkpointer=InMemorySaver())

        thread: Any = {"configurable": {"thread_id": "ana"}}
        state = await agent.ainvoke({"messages": [("user", "Find a mouse, and clear my cart.")]}, thread)
        print("asked:", state["__interrupt__"][0].value)
        state = await agent.ainvoke(Command(resume=True), thread)
        for message in state["messages"]:
            print(f"{message.type}: {message.content}")


if __name__ == "__main__":
    asyncio.run(main())
