"""An agent of Pydantic AI that calls tools of the engine, under a model that follows a script.

pip install carmy-engine pydantic-ai-slim
python pydantic_ai_agent.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from shop import app

from carmy_engine import aio
from carmy_engine.integrations.pydantic_ai import EngineToolset

SCRIPT = [ToolCallPart("search", {"query": "mouse"}, "1"), ToolCallPart("clear_cart", {}, "2"), TextPart("Done.")]
"""In place of a model: its turns."""


def model(messages: Any, info: Any) -> ModelResponse:
    """Give the next turn."""
    return ModelResponse(parts=[SCRIPT.pop(0)])


async def main() -> None:
    """Run the agent; approve what it asks for."""
    async with aio.open_app(app) as engine:
        toolset = EngineToolset(engine)
        agent = Agent(FunctionModel(model), toolsets=[toolset], output_type=[str, DeferredToolRequests])
        result = await agent.run("Find a mouse, and clear my cart.")
        assert isinstance(result.output, DeferredToolRequests)
        answers = DeferredToolResults()
        for call in result.output.approvals:
            print("asked:", call.tool_name)
            answers.approvals[call.tool_call_id] = True
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
        print("agent:", result.output)


if __name__ == "__main__":
    asyncio.run(main())
