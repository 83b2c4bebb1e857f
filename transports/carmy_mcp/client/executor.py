"""The client of an MCP server: an executor."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import mcp_types as types
import trio
from mcp.client._transport import TransportStreams
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from carmy_engine import (
    AgentError,
    Catalog,
    ClosedError,
    ConfigurationError,
    ErrorInfo,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    OutcomeUnknownError,
    __version__,
)
from carmy_engine.transport import flatten_exceptions, new_execution_id, raise_single, require_trio
from carmy_frames.driver import EventChannel

from ..protocol.params import REQUEST_ID, TIMEOUT_MS
from .calls import Narrator, call_params
from .catalog import FarTool, Override, catalog_of, check_overrides, far_tool
from .limits import DEFAULT_LIMITS, McpClientLimits
from .link import CALL, Call, Link
from .results import Answered, answered, error_answered, unreadable
from .stdio import open_process
from .streamable_http import name_of, open_url

_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


@asynccontextmanager
async def open_mcp(
    server: str | Sequence[str],
    *,
    token: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    tools: Mapping[str, Override] | None = None,
    trusted: bool = False,
    limits: McpClientLimits = DEFAULT_LIMITS,
) -> AsyncIterator[McpClient]:
    """Execute through an MCP server for the length of a block.

    ::

        async with open_mcp(["npx", "some-server"], tools={"search": {"effect": "read"}}) as server:
            result = await server.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))

    A command is run as `carmy_stdio.open_stdio` runs one: nothing of it is left, however the block ends. Calls in other
    tasks that are still running then raise `OutcomeUnknownError`.

    Args:
        server: A URL of Streamable HTTP, or a program and its arguments.
        token: For a URL: sent as ``Authorization: Bearer``.
        env: For a command: added to the few variables that every program needs, such as ``PATH``. It sees no others.
        cwd: For a command: its working directory.
        tools: By the name of a tool, what you know better than its server: ``effect``, ``idempotent``, ``parallel_safe``,
            ``confirmation``.
        trusted: The server is one of this package; its ``_meta`` overrides the hints.
        limits: In time, bytes and numbers.

    Raises:
        ConfigurationError: An argument is malformed, or `tools` names what the server does not have.
        ClosedError: The server cannot be started or reached, was not ready in time, or does not speak the protocol.
        AgentError: The server refused.
    """
    require_trio("open_mcp", "open_mcp(...)")
    overrides = check_overrides(tools or {})
    link: AbstractAsyncContextManager[Link]
    if isinstance(server, str):
        if env is not None or cwd is not None:
            raise ConfigurationError("env and cwd are for a command, not for a URL")
        what, link = name_of(server), open_url(server, token, limits)
    else:
        if token is not None:
            raise ConfigurationError("token is for a URL; give a command what it needs by env")
        if not server:
            raise ConfigurationError("a command has at least the name of a program")
        what, link = server[0], open_process(server, env, cwd, limits)
    try:
        async with link as opened:
            client = McpClient(opened, what, overrides, limits, trusted=trusted)
            async with client.connected():
                yield client
    except BaseExceptionGroup as group:
        raise_single(group)


class McpClient:
    """The client of one server; an executor. Made by `open_mcp`.

    Calls run side by side. Leaving a call's scope cancels it on the server, which sends no answer to that; so its end is not
    waited for.
    """

    def __init__(
        self,
        link: Link,
        what: str,
        overrides: Mapping[str, Mapping[str, Any]],
        limits: McpClientLimits,
        *,
        trusted: bool,
    ) -> None:
        self._limits = limits
        self._link = link
        self._what = what
        self._overrides = overrides
        self._trusted = trusted
        self._session: ClientSession | None = None
        self._tools: dict[str, FarTool] = {}
        self._calls = 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """For `open_mcp`: agree on a version, and learn the tools."""
        protocol = Client(
            _Streams(self._link),
            cache=None,
            client_info=types.Implementation(name="carmy-engine", version=__version__),
        )
        is_ready = False
        seconds = self._limits.ready_secs
        try:
            with trio.CancelScope(relative_deadline=seconds) as limit:
                async with protocol, trio.open_nursery() as background:
                    self._session = protocol.session
                    await self._list()
                    if missing := self._overrides.keys() - self._tools.keys():
                        raise ConfigurationError(f"{self._what} has no tool named {', '.join(sorted(missing))}")
                    is_ready = True
                    limit.deadline = math.inf
                    background.start_soon(self._watch)
                    try:
                        yield
                    finally:
                        self._session = None
                        background.cancel_scope.cancel()
            if limit.cancelled_caught:
                raise ClosedError(f"{self._what} was not ready within {seconds:g} s")
        except Exception as error:  # its own, or in groups of the SDK's; what is not the server's leaves as it is
            found = list(flatten_exceptions(error))
            if is_ready or len(found) != 1 or not isinstance(found[0], MCPError | ValidationError | RuntimeError):
                raise
            raise self._refused(found[0]) from found[0]

    def _refused(self, error: MCPError | ValidationError | RuntimeError) -> Exception:
        """Why it could not be opened."""
        if isinstance(error, MCPError):
            failure = self._link.failure(error, Call())
            if failure is not None:
                return ClosedError(failure[1])
            info = error_answered(error, "", known=True)
            if info.code != "TOOL_ERROR":
                return AgentError.of(info)
        return ClosedError(f"{self._what} does not speak the protocol: {error}")

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request to its end; see `carmy_engine.abc.Executor.execute`.

        The limit of the request is kept here, for servers that know of none. A request that cannot be sent at all gives a
        result with an empty ``execution_id``.

        Raises:
            ClosedError: The call was not sent, because the server has gone or cannot be reached: the tool has not run.
            OutcomeUnknownError: The connection was lost while the call may have run.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        return (await self._run(request, new_execution_id(), None)).result

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        """Run one request and give its events; see `carmy_engine.abc.Executor.stream`.

        The events are made here, from progress notifications and the answer. ``tool.started`` comes with the first of
        them: until then it is unknown whether the call has been sent.

        Raises:
            ClosedError: As `execute`; from the channel.
            OutcomeUnknownError: As `execute`; from the channel.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        events = EventChannel()
        try:
            async with trio.open_nursery() as background:
                background.start_soon(self._narrate, request, events)
                try:
                    yield events
                finally:
                    events.stop()
                    background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)

    async def catalog(self) -> Catalog:
        """The tools of the server, as hints and the host describe them. Asked for each time.

        Raises:
            ClosedError: The server has gone or does not answer.
            AgentError: The server refused.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._relist()
        return catalog_of(self._tools.values())

    async def _relist(self) -> None:
        try:
            with trio.fail_after(self._limits.catalog_secs):
                await self._list()
        except (MCPError, ValidationError, RuntimeError) as error:
            raise self._refused(error) from error
        except trio.TooSlowError:
            raise ClosedError(f"{self._what} did not list its tools within {self._limits.catalog_secs:g} s") from None

    async def _list(self) -> None:
        """Ask for all tools."""
        session = self._open()
        self._link.streams[0].has_news = False
        tools: dict[str, FarTool] = {}
        cursor: str | None = None
        for _ in range(self._limits.max_pages):
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            page = await session.list_tools(params=params)
            for tool in page.tools:
                found = far_tool(tool, self._overrides.get(tool.name, {}), trusted=self._trusted)
                tools[found.spec.name] = found
            cursor = page.next_cursor
            if cursor is None:
                self._tools = tools
                return
        raise ClosedError(f"{self._what} lists its tools on more than {self._limits.max_pages} pages")

    async def _watch(self) -> None:
        """Subscribe to changes of the tool list, as servers require since 2026-07-28."""
        session = self._open()
        offers = session.server_capabilities
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or offers is None:
            return
        if offers.tools is None or not offers.tools.list_changed:
            return
        try:
            async with listen(session, tools_list_changed=True) as changes:
                async for _ in changes:
                    pass  # the link has seen it
        except (MCPError, SubscriptionLost):
            pass  # it is asked at the next catalog all the same

    def _open(self) -> ClientSession:
        if self._session is None:
            raise ClosedError(f"the client of {self._what} was used after its block had ended")
        return self._session

    async def _narrate(self, request: ExecutionRequest, events: EventChannel) -> None:
        try:
            execution_id = new_execution_id()
            narrator = Narrator(events, request.tool, execution_id)
            await narrator.start()
            await narrator.end(await self._run(request, execution_id, narrator))
        except (ClosedError, OutcomeUnknownError) as error:
            events.fail(error)

    async def _run(self, request: ExecutionRequest, execution_id: str, narrator: Narrator | None) -> Answered:
        session = self._open()
        try:
            params = call_params(request)
            if self._link.streams[0].has_news:
                await self._relist()
        except AgentError as error:
            await trio.lowlevel.checkpoint()
            return Answered(ExecutionResult(execution_id="", error=error.info), ran=False)
        return await self._call(session, params, execution_id, narrator)

    async def _call(
        self,
        session: ClientSession,
        params: types.CallToolRequestParams,
        execution_id: str,
        narrator: Narrator | None,
    ) -> Answered:
        tool = self._tools.get(params.name)
        minds = tool is not None and tool.ours
        meta = cast("dict[str, Any]", params.meta)
        if narrator is not None:
            self._calls += 1
            meta["progressToken"] = token = f"carmy-{self._calls}"
            self._link.listeners[token] = narrator.report
        call = Call()
        previous = CALL.set(call)
        started = trio.current_time()
        seconds = meta.get(TIMEOUT_MS, math.inf) / 1000
        try:
            with trio.CancelScope(relative_deadline=seconds + (self._limits.margin_secs if minds else 0)):
                answer = await session.send_request(types.CallToolRequest(params=params), _ANSWER)
                return answered(answer, tool, execution_id, (trio.current_time() - started) * 1000)
            if minds:
                raise self._unknown(f"{self._what} did not answer", meta.get(REQUEST_ID))
            error = _timeout(params.name, seconds)
        except MCPError as problem:
            error = self._error(problem, call, params.name, meta.get(REQUEST_ID))
        except ValidationError:
            error = unreadable().info
        finally:
            CALL.reset(previous)
            self._link.listeners.pop(meta.get("progressToken", ""), None)
        duration_ms = (trio.current_time() - started) * 1000
        result = ExecutionResult(execution_id=execution_id, error=error, duration_ms=duration_ms)
        # Another maker's server does not report whether the tool ran before the failure.
        return Answered(result, ran=tool is not None and not minds)

    def _error(self, problem: MCPError, call: Call, tool: str, request_id: str | None) -> ErrorInfo:
        """The error that a problem is.

        Raises:
            ClosedError: It is none of the server's: the call was not sent.
            OutcomeUnknownError: It is none of the server's: the call may have run.
        """
        if call.unreadable:
            return unreadable().info
        failure = self._link.failure(problem, call)
        if failure is None and self._session is None and problem.code == types.CONNECTION_CLOSED:
            failure = "lost", f"the client of {self._what} was closed"
        if failure is None:
            return error_answered(problem, tool, known=tool in self._tools)
        if failure[0] == "not_sent":
            raise ClosedError(f"{failure[1]}; the call was not sent") from problem
        raise self._unknown(failure[1], request_id) from problem

    def _unknown(self, why: str, request_id: str | None) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"{why} before the answer came; the call may have run", request_id=request_id)


class _Streams:
    """A link as the SDK takes it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> TransportStreams:
        return self._link.streams

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return None


def _timeout(tool: str, seconds: float) -> ErrorInfo:
    return AgentError.standard(
        "TIMEOUT",
        f"{tool} did not answer within {seconds:g} s; its effects may exist",
        details={"phase": "running"},
    ).info
