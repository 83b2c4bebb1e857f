# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
"""Tools for LangChain and LangGraph.

::

    async with aio.open_app(app) as engine:
        tools = langchain_tools(engine, await engine.catalog())
        agent = create_react_agent(model, tools)

A confirmation is an interrupt of LangGraph, where the agent runs in a graph with a checkpointer: resume it with ``Command(resume=True)``
to confirm the call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from .._model.extras import missing_extra
from .._model.result import ExecutionResult
from .._model.spec import Catalog
from ._calls import Calls, plain_schema

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
except ModuleNotFoundError as absent:
    raise missing_extra("tools for LangChain", "langchain", absent) from None

_call_id: ContextVar[str | None] = ContextVar("carmy_langchain_call_id", default=None)

_RESERVED = frozenset({"config", "run_manager", "callbacks"})
"""Keywords of `BaseTool` itself: arguments of these names take a way round."""

_APART = "argument:"


def langchain_tools(executor: Any, catalog: Catalog, *, run_id: str | None = None) -> list[BaseTool]:
    """The tools of an executor as LangChain tools.

    The result for the model is a text; ``artifact`` of the message is the output as data. An error is a message with the status
    ``error``, whose text is the way to repair the call.

    The identity of a call is the model's id of it in the ``thread_id`` of the graph: a repeated turn repeats no effect.

    Args:
        executor: Of `carmy_engine.aio`; of `carmy_engine.blocking` for ``invoke`` beside ``ainvoke``.
        catalog: The tools to offer.
        run_id: The scope of the ids of calls, where there is no ``thread_id``. None for one of these tools alone.
    """
    calls = Calls(executor, catalog, run_id)
    return [
        _Tool(
            name=name,
            description=spec.description or spec.name,
            args_schema=plain_schema(spec),
            func=_function(calls, name),
            coroutine=_coroutine(calls, name),
            handle_tool_error=True,
            response_format="content_and_artifact",
        )
        for name, spec in calls.specs.items()
    ]


class _Tool(StructuredTool):
    """A tool that sees the id of its call, and may have any argument."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        token = _call_id.set(_id_of(input))
        try:
            return super().invoke(_renamed(input), config, **kwargs)
        finally:
            _call_id.reset(token)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        token = _call_id.set(_id_of(input))
        try:
            return await super().ainvoke(_renamed(input), config, **kwargs)
        finally:
            _call_id.reset(token)


def _is_call(given: Any) -> bool:
    return isinstance(given, Mapping) and given.get("type") == "tool_call" and "args" in given


def _id_of(given: Any) -> str | None:
    found = given.get("id") if _is_call(given) else None
    return found if isinstance(found, str) else None


def _renamed(given: Any) -> Any:
    """The input with arguments under names that the framework does not use itself."""
    if _is_call(given):
        return {**given, "args": _renamed(given["args"])}
    if isinstance(given, Mapping) and not _RESERVED.isdisjoint(given):
        return {f"{_APART}{name}" if name in _RESERVED else name: value for name, value in given.items()}
    return given


def _own_names(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(_APART): value for name, value in arguments.items()}


def _scope(config: RunnableConfig) -> str | None:
    thread = (config.get("configurable") or {}).get("thread_id")
    return None if thread is None else str(thread)


def _coroutine(calls: Calls, name: str) -> Any:
    # The framework passes its configuration to the parameter with this annotation.
    async def run(*, carmy_config: RunnableConfig, **arguments: Any) -> tuple[str, Any]:
        call = calls.call(name, _own_names(arguments), _call_id.get())
        result = await calls.run(call, scope=_scope(carmy_config))
        if _wants_confirmation(result) and _confirms(calls, name, call.arguments):
            result = await calls.run(call, scope=_scope(carmy_config), is_confirmed=True)
        return _answer(calls, call, result)

    return run


def _function(calls: Calls, name: str) -> Any:
    def run(*, carmy_config: RunnableConfig, **arguments: Any) -> tuple[str, Any]:
        call = calls.call(name, _own_names(arguments), _call_id.get())
        result = calls.run_blocking(call, scope=_scope(carmy_config))
        if _wants_confirmation(result) and _confirms(calls, name, call.arguments):
            result = calls.run_blocking(call, scope=_scope(carmy_config), is_confirmed=True)
        return _answer(calls, call, result)

    return run


def _answer(calls: Calls, call: Any, result: ExecutionResult) -> tuple[str, Any]:
    text = calls.text(call, result)
    if result.error is not None:
        raise ToolException(text)
    return text, result.data


def _wants_confirmation(result: ExecutionResult) -> bool:
    return result.error is not None and result.error.code == "CONFIRMATION_REQUIRED"


def _confirms(calls: Calls, name: str, arguments: Any) -> bool:
    """Ask by an interrupt of LangGraph; False outside of a graph that can be interrupted."""
    try:
        from langgraph.types import interrupt  # noqa: PLC0415 - only where the agent runs in LangGraph
    except ModuleNotFoundError:
        return False
    question = {
        "type": "confirmation",
        "tool": calls.specs[name].name,
        "arguments": json.loads(bytes(arguments)) if arguments is not None else {},
    }
    try:
        return interrupt(question) is True
    except (RuntimeError, KeyError):  # not in a graph, or in one without a checkpointer
        return False
