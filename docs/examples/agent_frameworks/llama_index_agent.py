"""An agent of LlamaIndex with tools of the engine, under a model that follows a script.

pip install carmy-engine llama-index-core
python llama_index_agent.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from shop import app

from carmy_engine import aio
from carmy_engine.integrations.llama_index import llama_index_tools

SCRIPT = [
    ToolCallBlock(tool_call_id="1", tool_name="search", tool_kwargs={"query": "mouse"}),
    ToolCallBlock(tool_call_id="2", tool_name="clear_cart", tool_kwargs={}),
]


def answer(messages: list[ChatMessage], **_: Any) -> ChatMessage:
    """What the model answers: the next call of the script, and then its words."""
    called = sum(message.role == MessageRole.TOOL for message in messages)
    if called < len(SCRIPT):
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[SCRIPT[called]])
    return ChatMessage(role=MessageRole.ASSISTANT, content="Done.")


async def main() -> None:
    """Run the agent; the host has granted the confirmation of one tool."""
    async with aio.open_app(app) as engine:
        granted = engine.bind(principal="ana", permissions={"confirm:clear_cart"})
        tools = llama_index_tools(granted, await granted.catalog())
        agent = FunctionAgent(llm=MockFunctionCallingLLM(response_generator=answer), tools=tools)
        run = agent.run("Find a mouse, and clear my cart.")
        async for event in run.stream_events():
            if isinstance(event, ToolCallResult):
                print(f"{event.tool_name}: {event.tool_output.content}")
        print(f"agent: {await run}")


if __name__ == "__main__":
    asyncio.run(main())
