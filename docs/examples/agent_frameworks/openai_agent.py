"""An agent of the OpenAI Agents SDK that calls tools of the engine, under a model that follows a script.

pip install carmy-engine openai-agents
python openai_agent.py
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from shop import app

from carmy_engine import aio
from carmy_engine.integrations.openai_agents import function_tools


def call(name: str, call_id: str, **arguments: Any) -> ResponseFunctionToolCall:
    """A turn of the model that calls one tool."""
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id)


def say(text: str) -> ResponseOutputMessage:
    """A turn of the model in words."""
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])


class Scripted(Model):  # type: ignore[misc,unused-ignore]
    """In place of a model: its turns."""

    def __init__(self, *turns: Any) -> None:
        self._turns = list(turns)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Give the next turn."""
        return ModelResponse(output=[self._turns.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Is not used here."""
        raise NotImplementedError


async def main() -> None:
    """Run the agent; approve what it asks for."""
    model = Scripted(call("search", "1", query="mouse"), call("clear_cart", "2"), say("Done."))
    config = RunConfig(tracing_disabled=True)
    async with aio.open_app(app) as engine:
        agent = Agent(name="shop", model=model, tools=function_tools(engine, await engine.catalog()))
        result = await Runner.run(agent, "Find a mouse, and clear my cart.", run_config=config)
        state = result.to_state()
        for question in result.interruptions:
            print("asked:", question.name)
            state.approve(question)
        result = await Runner.run(agent, state, run_config=config)
        print("agent:", result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
