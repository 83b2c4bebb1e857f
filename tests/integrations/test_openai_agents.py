"""Tools as function tools of the OpenAI Agents SDK, under a model that follows a script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from carmy_engine import aio
from tests.integrations.shop import ARGUMENTS, REPAIR, WRONG, make_app

pytest.importorskip("agents", reason="make test-agents installs the frameworks")

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from carmy_engine.integrations.openai_agents import function_tools

CONFIG = RunConfig(tracing_disabled=True)


class Scripted(Model):  # type: ignore[misc,unused-ignore]
    """A model that makes one call a turn, and notes what it was shown."""

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.seen: list[Any] = []
        self.tools: Any = None

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(kwargs["input"])
        self.tools = kwargs["tools"]
        turn = self.turns.pop(0)
        item: Any
        if isinstance(turn, str):
            text = ResponseOutputText(type="output_text", text=turn, annotations=[])
            item = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        else:
            name, arguments, call_id = turn
            item = ResponseFunctionToolCall(
                type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def outputs(seen: Any) -> list[str]:
    """The results that the model was shown last."""
    return [item["output"] for item in seen if item.get("type") == "function_call_output"]


def test_a_model_calls_repairs_and_ends() -> None:
    """It sees strict schemas and results; errors come back in the engine's words."""
    app, done = make_app()
    model = Scripted(
        ("order_create", WRONG, "1"),
        ("order_create", ARGUMENTS, "2"),
        ("order_create", ARGUMENTS, "2"),
        ("search", {"query": "mouse", "limit": None}, "3"),
        "done",
    )

    async def main() -> Any:
        async with aio.open_app(app) as engine:
            agent = Agent(name="shop", model=model, tools=function_tools(engine, await engine.catalog()))
            return await Runner.run(agent, "order", run_config=CONFIG)

    assert asyncio.run(main()).final_output == "done"
    assert done == ["order 2 MO-1", "search mouse"]
    assert {tool.name: tool.strict_json_schema for tool in model.tools}["search"] is True
    assert outputs(model.seen[-1]) == [
        REPAIR, "ordered 2 x MO-1", '[{"name":"mouse 0"},{"name":"mouse 1"}]',
    ]  # fmt: skip


@pytest.mark.parametrize(("answer", "effects"), [(True, ["delete"]), (False, [])])
def test_a_confirmation_is_an_approval(answer: bool, effects: list[str]) -> None:
    """The run is interrupted; the state goes on with the answer."""
    app, done = make_app()
    model = Scripted(("delete_all", {}, "1"), "done")

    async def main() -> None:
        async with aio.open_app(app) as engine:
            agent = Agent(name="shop", model=model, tools=function_tools(engine, await engine.catalog()))
            result = await Runner.run(agent, "delete", run_config=CONFIG)
            (question,) = result.interruptions
            assert done == []
            state = result.to_state()
            if answer:
                state.approve(question)
            else:
                state.reject(question)
            result = await Runner.run(agent, state, run_config=CONFIG)
            assert result.final_output == "done"

    asyncio.run(main())
    assert done == effects
