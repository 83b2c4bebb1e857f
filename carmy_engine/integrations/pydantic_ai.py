# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
"""A toolset for Pydantic AI.

::

    async with aio.open_app(app) as engine:
        agent = Agent(model, toolsets=[EngineToolset(engine)])
        result = await agent.run("Find a mouse")

A confirmation is an approval of the framework: the run ends with `DeferredToolRequests`; ``ToolApproved()`` confirms the call.
"""

from __future__ import annotations

import inspect
from typing import Any

from .._model.extras import missing_extra
from ._calls import Calls, plain_schema

try:
    from pydantic_ai import ModelRetry, RunContext
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ModuleNotFoundError as absent:
    raise missing_extra("tools for Pydantic AI", "pydantic-ai", absent) from None

_ANY = SchemaValidator(core_schema.dict_schema())
"""The engine checks the arguments, with errors that a model can act on."""

_REPAIRABLE = frozenset({"INVALID_ARGUMENTS", "INVALID_REQUEST", "TOOL_NOT_FOUND"})


class EngineToolset(AbstractToolset[Any]):
    """The tools of an executor. The catalog is read at every step, so a tool that is disabled disappears.

    Wrong arguments are a retry of the framework, other errors a failed tool; both with a text for the model. The identity of a call is
    the model's id of it in the run.

    Args:
        executor: Of `carmy_engine.aio`.
        id: Of the toolset, for durable runs.
        max_retries: Times that a model may repair a call.
    """

    def __init__(self, executor: Any, *, id: str | None = None, max_retries: int = 2) -> None:  # noqa: A002
        self._executor = executor
        self._id = id
        self._max_retries = max_retries
        self._calls: Calls | None = None

    @property
    def id(self) -> str | None:
        """See `AbstractToolset`."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """See `AbstractToolset`."""
        catalog = self._executor.catalog()
        self._calls = calls = Calls(self._executor, await catalog if inspect.isawaitable(catalog) else catalog, None)
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=spec.description,
                    parameters_json_schema=plain_schema(spec),
                    kind="unapproved" if calls.needs_confirmation(name) else "function",
                    sequential=False,
                ),
                max_retries=self._max_retries,
                args_validator=_ANY,
            )
            for name, spec in calls.specs.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """See `AbstractToolset`."""
        assert self._calls is not None  # `get_tools` made the tool
        call = self._calls.call(name, tool_args, ctx.tool_call_id)
        result = await self._calls.run(call, scope=ctx.run_id, is_confirmed=ctx.tool_call_approved)
        if result.error is None:
            return result.data
        text = self._calls.text(call, result)
        raise ModelRetry(text) if result.error.code in _REPAIRABLE else ToolFailed(text)
