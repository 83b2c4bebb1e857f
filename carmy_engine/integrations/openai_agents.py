# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
"""Tools for the OpenAI Agents SDK.

::

    async with aio.open_app(app) as engine:
        agent = Agent(name="shop", tools=function_tools(engine, await engine.catalog()))
        result = await Runner.run(agent, "Find a mouse")

A confirmation is an approval of the SDK: the run ends with an interruption; ``state.approve(...)`` confirms the call.
"""

from __future__ import annotations

from typing import Any

from .._model.extras import missing_extra
from .._model.spec import Catalog
from ._calls import Calls

try:
    from agents import FunctionTool
    from agents.tool_context import ToolContext
except ModuleNotFoundError as absent:
    raise missing_extra("tools for the OpenAI Agents SDK", "openai-agents", absent) from None


def function_tools(executor: Any, catalog: Catalog, *, run_id: str | None = None) -> list[FunctionTool]:
    """The tools of an executor as function tools.

    Schemas are exported in strict mode where the tool has one. An error is a text for the model with the way to repair the call.

    Args:
        executor: Of `carmy_engine.aio`.
        catalog: The tools to offer.
        run_id: The scope in which the model's ids of calls are unique: a repeated id gets the stored answer. None for one of these
            tools alone.
    """
    calls = Calls(executor, catalog, run_id)
    return [_tool(calls, name) for name in calls.specs]


def _tool(calls: Calls, name: str) -> FunctionTool:
    needs_approval = calls.needs_confirmation(name)

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        call = calls.call(name, arguments, context.tool_call_id)
        # The SDK invokes a tool that needs an approval only after a person has approved this call.
        result = await calls.run(call, is_confirmed=needs_approval)
        return calls.text(call, result)

    exported = calls.strict[name]
    return FunctionTool(
        name=name,
        description=exported.get("description", ""),
        params_json_schema=exported["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=exported.get("strict") is True,
        needs_approval=needs_approval,
    )
