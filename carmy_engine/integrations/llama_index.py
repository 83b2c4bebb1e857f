# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
"""Tools for LlamaIndex.

::

    async with aio.open_app(app) as engine:
        agent = FunctionAgent(llm=llm, tools=llama_index_tools(engine, await engine.catalog()))
        answer = await agent.run("Find a mouse")

LlamaIndex gives a tool neither the model's id of the call nor an approval: calls have no ``request_id``, and a call that needs a confirmation
is refused unless the host has granted it, ``engine.bind(permissions={"confirm:..."})``.
"""

from __future__ import annotations

from typing import Any

from .._model.extras import missing_extra
from .._model.result import ExecutionResult
from .._model.spec import Catalog
from ._calls import Calls, plain_schema

try:
    from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput
except ModuleNotFoundError as absent:
    raise missing_extra("tools for LlamaIndex", "llama-index", absent) from None


def llama_index_tools(executor: Any, catalog: Catalog) -> list[AsyncBaseTool]:
    """The tools of an executor as LlamaIndex tools.

    The result is a text for the model, and ``raw_output`` the output as data. An error has ``is_error`` and a text with the way to repair
    the call.

    Args:
        executor: Of `carmy_engine.aio`; of `carmy_engine.blocking` for plain calls.
        catalog: The tools to offer.
    """
    calls = Calls(executor, catalog, None)
    return [_Tool(calls, name) for name in calls.specs]


class _Metadata(ToolMetadata):
    """Metadata with the schema of the engine in place of one that pydantic makes."""

    def __init__(self, name: str, description: str, schema: dict[str, Any]) -> None:
        super().__init__(description=description, name=name, fn_schema=None)
        self._schema = schema

    def get_parameters_dict(self) -> dict[str, Any]:
        return {key: value for key, value in self._schema.items() if key != "$schema"}


class _Tool(AsyncBaseTool):
    def __init__(self, calls: Calls, name: str) -> None:
        spec = calls.specs[name]
        self._calls = calls
        self._name = name
        self._metadata = _Metadata(name, spec.description or spec.name, plain_schema(spec))

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **arguments: Any) -> ToolOutput:
        arguments = self._named(args, arguments)
        call = self._calls.call(self._name, arguments, None)
        return self._output(call, arguments, self._calls.run_blocking(call))

    async def acall(self, *args: Any, **arguments: Any) -> ToolOutput:
        arguments = self._named(args, arguments)
        call = self._calls.call(self._name, arguments, None)
        return self._output(call, arguments, await self._calls.run(call))

    def _named(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
        """All arguments by name: LlamaIndex passes the only argument of a tool without its name."""
        names = self._metadata.get_parameters_dict().get("properties", {})
        return {**dict(zip(names, args, strict=False)), **arguments}

    def _output(self, call: Any, arguments: dict[str, Any], result: ExecutionResult) -> ToolOutput:
        return ToolOutput(
            tool_name=self._name,
            content=self._calls.text(call, result) or " ",
            raw_input={"args": (), "kwargs": arguments},
            raw_output=result.data,
            is_error=result.error is not None,
        )
