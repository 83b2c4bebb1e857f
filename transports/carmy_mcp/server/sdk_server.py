"""The SDK's low-level server in front of an executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from carmy_engine import (
    AgentError,
    BoundEngine,
    ExecutionCompleted,
    ExecutionRequest,
    ExecutionResult,
    ToolProgress,
    __version__,
)
from carmy_engine.transport import as_agent_error, new_execution_id, raise_own

from ..protocol.listing import StaleCursorError, is_wrapped, page_of
from ..protocol.request_state import EXECUTION_META, Context, Exchange, request_of
from ..protocol.results import call_result, error_data, refusal
from .confirmations import Questions
from .tasks import Tasks

__all__ = ["Context", "guard", "make_server"]

log = logging.getLogger("carmy.mcp")

MAX_REPORTED = 500
"""Limit of a progress message that is kept for the state of a task, in characters."""

UNKNOWN_STATE = "the requestState is not valid for this call, or no longer: call again without it to be asked again"
"""The answer to a call that refers to no question that was asked about it."""

LIST_TTL_MS = 60_000
"""How long a client may keep a list of tools. It changes only with the server's start, or with the caller's rights."""


def make_server(
    name: str,
    executor_of: Callable[[Context], BoundEngine],
    exchange_of: Callable[[Context], Exchange],
    questions: Questions | None = None,
    tasks: Tasks | None = None,
    *,
    version: str | None = None,
) -> Server[Any]:
    """A server that lists and calls what executors have.

    Args:
        name: The server's name.
        executor_of: Returns the executor of a request's caller.
        exchange_of: Returns the state of a request.
        questions: To the persons behind clients; None when they are not asked.
        tasks: What calls become that take long; None when every call is answered when it is over.
        version: The application's; None for that of the engine.
    """
    handlers = _Handlers(executor_of, exchange_of, questions, tasks)
    server: Server[Any] = Server(
        name,
        version=version or __version__,
        cache_hints={"tools/list": CacheHint(ttl_ms=LIST_TTL_MS, scope="private")},
        # Both give the JSON that they mean. The SDK takes that as well as its models, and checks it in the same way.
        on_list_tools=handlers.list_tools,  # type: ignore[arg-type] # as above
        on_call_tool=handlers.call_tool,  # type: ignore[arg-type] # as above
    )
    if tasks is not None:
        tasks.serve(server, executor_of, exchange_of)
    # In the place of the SDK's own, which writes the messages of errors into spans.
    server.middleware[:] = [guard]
    return server


async def guard(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Round every message: whatever goes wrong, the client gets no text of an exception.

    Raises:
        MCPError: The error for the client.
        ValidationError: The client's message is malformed. The SDK's error text repeats nothing of it.
    """
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except BaseException as error:  # noqa: BLE001 - the boundary round one request; a host's policy can raise anything
        raise_own(error)
        told, _ = as_agent_error(error, "the request", expose=False)
        raise MCPError(code=types.INTERNAL_ERROR, message=told.message, data=error_data(told.info)) from None


class _Handlers:
    def __init__(
        self,
        executor_of: Callable[[Context], BoundEngine],
        exchange_of: Callable[[Context], Exchange],
        questions: Questions | None,
        tasks: Tasks | None,
    ) -> None:
        self._executor_of = executor_of
        self._exchange_of = exchange_of
        self._questions = questions
        self._tasks = tasks
        self._wrapped: dict[str, bool] = {}

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> dict[str, Any]:
        """A page of the tools that the caller may use."""
        catalog = await self._executor_of(context).catalog()
        await self._exchange_of(context).wait_for_room()  # lists are large
        try:
            tools, following = page_of(catalog, None if params is None else params.cursor)
        except StaleCursorError:
            raise MCPError(
                code=types.INVALID_PARAMS, message="the cursor is not valid, or no longer: list again from the start"
            ) from None
        page: dict[str, Any] = {"tools": tools, "resultType": "complete"}
        if following is not None:
            page["nextCursor"] = following
        return page

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """One execution, and its answer."""
        exchange = self._exchange_of(context)
        asking = None if self._questions is None else self._questions.about(context, exchange, params)
        executor = exchange.executor = self._executor_of(context).bind(confirm=asking)
        meta = _meta_of(context)
        try:
            request = request_of(params.name, exchange, meta)
        except AgentError as error:
            return refusal(error.info)

        async def call() -> ExecutionResult:
            return await _run(context, exchange, request, streamed=is_task or _wants_progress(meta))

        async def answer(result: ExecutionResult) -> dict[str, Any]:
            if asking is not None and asking.question is not None:
                return asking.question
            if asking is not None and asking.is_unknown:
                raise MCPError(code=types.INVALID_PARAMS, message=UNKNOWN_STATE)
            return await self._answer(executor, params.name, result, asked=meta.get(EXECUTION_META, False))

        is_task = self._tasks is not None and self._tasks.are_known_to(context)
        if self._tasks is not None and is_task:
            return await self._tasks.run(exchange, call, answer)
        return await answer(await call())

    async def _answer(
        self, executor: BoundEngine, name: str, result: ExecutionResult, *, asked: bool
    ) -> dict[str, Any]:
        if result.error is not None and result.error.code == "TOOL_NOT_FOUND" and not await _has(executor, name):
            raise MCPError(code=types.INVALID_PARAMS, message=result.error.message, data=error_data(result.error))
        wrapped = result.error is None and await self._is_wrapped(executor, name)
        return call_result(result, wrapped=wrapped, asked=asked)

    async def _is_wrapped(self, executor: BoundEngine, name: str) -> bool:
        """Whether this tool's outputs are sent inside an object. It never changes while an engine runs."""
        known = self._wrapped.get(name)
        if known is None:
            self._wrapped.update((spec.name, is_wrapped(spec)) for spec in (await executor.catalog()).tools)
            # A callable tool is in the catalog, unless a policy has changed during the call.
            known = self._wrapped.get(name, True)
        return known


async def _has(executor: BoundEngine, name: str) -> bool:
    return any(spec.name == name for spec in (await executor.catalog()).tools)


async def _run(context: Context, exchange: Exchange, request: ExecutionRequest, *, streamed: bool) -> ExecutionResult:
    executor = exchange.executor
    assert executor is not None  # its handler has bound one
    result: ExecutionResult | None = None
    with exchange.scope:
        await exchange.wait_for_room()  # outputs are large
        if streamed:
            result = await _stream(context, exchange, executor, request)
        else:
            result = await executor.execute(request)
    if result is None:
        left = AgentError.standard("CANCELLED", f"{request.tool} was cancelled before it was started")
        result = ExecutionResult(execution_id=new_execution_id(), error=left.info)
    return result


async def _stream(
    context: Context, exchange: Exchange, executor: BoundEngine, request: ExecutionRequest
) -> ExecutionResult:
    """Run it, and pass its reports on. They rise, as the protocol demands: one that does not is left out."""
    result: ExecutionResult | None = None
    highest: float | None = None
    async with executor.stream(request) as events:
        async for event in events:
            if isinstance(event, ExecutionCompleted):
                result = event.result
            elif isinstance(event, ToolProgress) and event.progress is not None:
                if event.message is not None:
                    exchange.message = event.message[:MAX_REPORTED]
                if not exchange.outlives and (highest is None or event.progress > highest):
                    highest = event.progress
                    await exchange.wait_report()
                    await context.session.report_progress(event.progress, event.total, event.message)
    assert result is not None  # the last event always comes
    return result


def _meta_of(context: Context) -> Mapping[str, Any]:
    """The call's ``_meta`` as it was sent; the SDK has checked that it is an object, if there is one."""
    return (context.params or {}).get("_meta") or {}


def _wants_progress(meta: Mapping[str, Any]) -> bool:
    token = meta.get("progressToken")
    return isinstance(token, str | int) and not isinstance(token, bool)
