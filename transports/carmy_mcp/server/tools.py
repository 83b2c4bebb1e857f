"""Tools: listed for each caller, and called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from carmy_engine import (
    AgentError,
    BoundEngine,
    Engine,
    ExecutionCompleted,
    ExecutionRequest,
    ExecutionResult,
    ToolProgress,
    ToolSpec,
)
from carmy_engine.content import content_of, has_content
from carmy_engine.transport import NameRule, new_execution_id, wire_names
from carmy_net import lacking_permission

from ..protocol.errors import INVALID_PARAMS, JsonRpcError, error_data
from ..protocol.headers import ParameterHeader, declared_headers
from ..protocol.listing import StaleCursorError, is_wrapped, page_of
from ..protocol.params import (
    NO_META,
    Meta,
    PageParams,
    execution_request,
    meta_of,
    parse,
    parse_call,
    parse_meta,
)
from ..protocol.results import ResultWriter
from .asking import UNKNOWN_STATE, Asking, missing_capability
from .confirmations import Prompt, Questions
from .exchange import Exchange
from .features import Handler, Result
from .tasks import Tasks

MAX_REPORTED = 500
"""Limit of a progress message that is kept for the state of a task, in characters."""

LIST_TTL_MS = 60_000
"""How long a client may keep a list of tools. It changes only with the server's start, or with the caller's rights."""

SAFE_NAMES = NameRule(first="A-Za-z0-9_-", rest="A-Za-z0-9_-", limit=64)
"""The names that common clients and models take. The protocol allows more."""


class KnownTool(NamedTuple):
    """What a call needs to know of a tool. It never changes while an engine runs.

    Attributes:
        spec: The tool.
        is_wrapped: Outputs are sent as ``{"result": output}``.
        needs_confirmation: Calls need a confirmation.
        has_content: Outputs are blocks.
        may_ask: It gets a context, and so may ask its client.
        headers: The HTTP headers that repeat arguments.
    """

    spec: ToolSpec
    is_wrapped: bool
    needs_confirmation: bool
    has_content: bool
    may_ask: bool
    headers: tuple[ParameterHeader, ...]


class Tools:
    """The feature of tools.

    Args:
        engine: Has the tools.
        writer: Writes results.
        questions: Questions to the persons behind clients; None if they are not asked.
        tasks: What long calls become; None if every call is answered when it is over.
        asking: Runs what may ask the client.
    """

    def __init__(
        self,
        engine: Engine,
        writer: ResultWriter,
        questions: Questions | None,
        tasks: Tasks | None,
        asking: Asking,
    ) -> None:
        self._writer = writer
        self._questions = questions
        self._tasks = tasks
        self._asking = asking
        self._registry = engine._open_pipeline().registry  # noqa: SLF001 - listing takes a caller and a loop
        names = sorted(self._registry.names)
        self._wire = wire_names(names, SAFE_NAMES) if engine.settings.mcp.names == "safe" else {}
        # A tool is found by both of its names; that of the engine is what its own clients send.
        self._original = {wire: name for name, wire in self._wire.items()} | {name: name for name in names}
        self._known: dict[str, KnownTool] = {}

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {"tools/list": self._list, "tools/call": self._call}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"tools": {"listChanged": True}}

    def find(self, name: str) -> KnownTool | None:
        """The tool with a name, for clients or in the engine; None if there is none."""
        known = self._known.get(name)
        if known is None:
            found = self._registry.get(self._original.get(name, name))
            if found is None:
                return None
            spec, tool = found.spec, found.tool
            known = self._known[name] = KnownTool(
                spec=spec,
                is_wrapped=is_wrapped(spec),
                needs_confirmation=spec.needs_confirmation,
                has_content=has_content(spec.output_schema),
                may_ask=tool.context_parameter is not None or tool.runs is not None,
                headers=declared_headers(spec.input_schema),
            )
        return known

    def _name_for(self, name: str) -> str:
        return self._wire.get(name, name)

    async def _list(self, exchange: Exchange) -> dict[str, Any]:
        """A page of the tools that the caller may use."""
        params = parse(exchange.request.params, PageParams, "tools/list")
        meta_of(exchange.request.params)
        catalog = await exchange.executor.catalog()
        await exchange.peer.wait_for_room()  # lists are large
        try:
            tools, following = page_of(catalog, params.cursor, self._name_for)
        except StaleCursorError:
            message = "the cursor is not valid, or no longer: list again from the start"
            raise JsonRpcError(INVALID_PARAMS, message) from None
        page: dict[str, Any] = {"tools": tools}
        if exchange.client.is_modern:
            page |= {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}
        if following is not None:
            page["nextCursor"] = following
        return page

    async def _call(self, exchange: Exchange) -> Result:
        """One execution, and its answer."""
        params = parse_call(exchange.request.params)
        meta = parse_meta(params.meta)
        tool = self.find(params.name)
        modern = exchange.client.is_modern
        try:
            request = execution_request(params, params.name if tool is None else tool.spec.name, meta)
        except AgentError as error:
            return self._writer.refusal(error.info, modern=modern)
        is_task = self._tasks is not None and self._tasks.are_known_to(exchange.client)
        if tool is not None and not (tool.may_ask or tool.needs_confirmation or is_task or meta.wants_progress):
            if params.request_state is not None:
                raise JsonRpcError(INVALID_PARAMS, UNKNOWN_STATE)
            result = await _run(exchange, request)  # the common case
            if result.error is None and not tool.has_content:
                asked = meta is not NO_META and meta.execution_meta
                return self._writer.call_result(result, wrapped=tool.is_wrapped, asked=asked, modern=modern)
            return await self._answer(exchange, result, meta, tool, None)
        prompt: Prompt | None = None
        if self._questions is not None and tool is not None and tool.needs_confirmation:
            prompt = self._questions.about(exchange, params)
            if prompt is not None:
                exchange.executor = exchange.executor.bind(confirm=prompt)

        async def call() -> ExecutionResult:
            token = meta.progress_token if meta.wants_progress else None
            return await _run(exchange, request, token, observed=is_task or token is not None)

        async def answer(result: ExecutionResult) -> Result:
            return await self._answer(exchange, result, meta, tool, prompt)

        async def run() -> Result:
            return await answer(await call())

        if self._tasks is not None and is_task:
            self._asking.bind(exchange)
            return await self._tasks.run(exchange, call, answer)
        if tool is None or not tool.may_ask or (prompt is not None and params.request_state is not None):
            return await run()
        return await self._asking.run(exchange, run, params.request_state, params.input_responses)

    async def _answer(
        self, exchange: Exchange, result: ExecutionResult, meta: Meta, tool: KnownTool | None, prompt: Prompt | None
    ) -> Result:
        if prompt is not None and prompt.question is not None:
            return prompt.question
        if prompt is not None and prompt.is_unknown:
            raise JsonRpcError(INVALID_PARAMS, UNKNOWN_STATE)
        error = result.error
        if error is not None:
            exchange.lacks = lacking_permission(error)
        if error is not None and error.code == "CLIENT_UNAVAILABLE" and exchange.client.is_modern:
            raise missing_capability(error)
        if error is not None and error.code == "TOOL_NOT_FOUND":
            name = "" if tool is None else tool.spec.name
            if not await _has(exchange.executor, name):
                raise JsonRpcError(INVALID_PARAMS, error.message, error_data(error))
        if (
            tool is not None
            and tool.has_content
            and (content := content_of(tool.spec.output_schema, result)) is not None
        ):
            return self._writer.content_result(content, result, exchange.client)
        return self._writer.call_result(
            result,
            wrapped=tool is None or tool.is_wrapped,
            asked=meta.execution_meta,
            modern=exchange.client.is_modern,
        )


async def _has(executor: BoundEngine, name: str) -> bool:
    return any(spec.name == name for spec in (await executor.catalog()).tools)


async def _run(
    exchange: Exchange, request: ExecutionRequest, token: str | int | None = None, *, observed: bool = False
) -> ExecutionResult:
    """Run a call.

    Args:
        exchange: The request.
        request: The call.
        token: Of progress notifications; None for none.
        observed: The reports of the tool are needed, with or without a token.
    """
    result: ExecutionResult | None = None
    with exchange.block:
        await exchange.peer.wait_for_room()  # outputs are large
        if observed:
            result = await _stream(exchange, request, token)
        else:
            result = await exchange.executor.execute(request)
    if result is None:
        left = AgentError.standard("CANCELLED", f"{request.tool} was cancelled before it was started")
        result = ExecutionResult(execution_id=new_execution_id(), error=left.info)
    return result


async def _stream(exchange: Exchange, request: ExecutionRequest, token: str | int | None) -> ExecutionResult:
    """Run a call, and send its reports. They rise, as the protocol demands: one that does not is left out."""
    result: ExecutionResult | None = None
    highest: float | None = None
    async with exchange.executor.stream(request) as events:
        async for event in events:
            if isinstance(event, ExecutionCompleted):
                result = event.result
            elif isinstance(event, ToolProgress) and event.progress is not None:
                if event.message is not None:
                    exchange.message = event.message[:MAX_REPORTED]
                if token is None or exchange.outlives or (highest is not None and event.progress <= highest):
                    continue
                highest = event.progress
                report: dict[str, Any] = {"progressToken": token, "progress": event.progress}
                if event.total is not None:
                    report["total"] = event.total
                if event.message is not None:
                    report["message"] = event.message
                await exchange.peer.notify("notifications/progress", report)
    assert result is not None  # the last event always comes
    return result
