"""Tools as a toolset of Pydantic AI, under a model that follows a script."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from carmy_engine import aio
from tests.integrations.shop import ARGUMENTS, REPAIR, WRONG, make_app

pytest.importorskip("pydantic_ai", reason="make test-agents installs the frameworks")

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolApproved, ToolDenied

from carmy_engine.integrations.pydantic_ai import EngineToolset


def scripted(seen: list[Any], *turns: Any) -> FunctionModel:
    """A model that makes one call a turn, and notes what it was shown."""
    script = list(turns)

    def answer(messages: Any, info: Any) -> ModelResponse:
        seen.append((messages[-1].parts[-1], info))
        turn = script.pop(0)
        return ModelResponse(parts=[TextPart(turn) if isinstance(turn, str) else turn])

    return FunctionModel(answer)


def test_a_model_calls_repairs_and_ends() -> None:
    """It sees schemas and results; wrong arguments come back as a retry with the engine's words."""
    app, done = make_app()
    seen: list[Any] = []
    model = scripted(
        seen,
        ToolCallPart("order_create", dict(WRONG), "1"),
        ToolCallPart("order_create", dict(ARGUMENTS), "2"),
        ToolCallPart("fails", {}, "3"),
        "done",
    )

    async def main() -> Any:
        async with aio.open_app(app) as engine:
            return await Agent(model, toolsets=[EngineToolset(engine)]).run("order")

    assert asyncio.run(main()).output == "done"
    assert done == ["order 2 MO-1"]
    tools = {tool.name: tool for tool in seen[0][1].function_tools}
    assert tools["search"].parameters_json_schema["required"] == ["query"]
    (_, _), (retry, _), (returned, _), (failed, _) = seen
    assert (retry.outcome, retry.content) == ("retried", REPAIR)
    assert (returned.outcome, returned.content) == ("success", "ordered 2 x MO-1")
    assert (failed.outcome, failed.content) == ("failed", "the tool failed: nothing is left. Try another shop.")


@pytest.mark.parametrize(("answer", "effects"), [(True, ["delete"]), (False, [])])
def test_a_confirmation_is_an_approval(answer: bool, effects: list[str]) -> None:
    """The run ends with the request; a second run with the answer goes on."""
    app, done = make_app()
    seen: list[Any] = []
    model = scripted(seen, ToolCallPart("delete_all", {}, "1"), "done")

    async def main() -> None:
        async with aio.open_app(app) as engine:
            agent = Agent(model, toolsets=[EngineToolset(engine)], output_type=[str, DeferredToolRequests])
            first = await agent.run("delete")
            assert [call.tool_name for call in first.output.approvals] == ["delete_all"]
            assert done == []
            results = DeferredToolResults(approvals={"1": ToolApproved() if answer else ToolDenied()})
            second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
            assert second.output == "done"

    asyncio.run(main())
    assert done == effects
