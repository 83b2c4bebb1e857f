"""The client of an MCP server: an executor."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import trio

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
)
from carmy_engine.abc import ClientFeatures
from carmy_engine.content import Completion, PromptCatalog, ResourceCatalog
from carmy_engine.transport import new_execution_id, raise_single, require_trio
from carmy_frames.driver import EventChannel

from ..protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
from ..protocol.headers import parameter_headers
from ..protocol.params import REQUEST_ID, TIMEOUT_MS
from .calls import Caller, CallParams, Narrator, call_params
from .catalog import FarTool, Override, catalog_of, check_overrides
from .connector import Connector
from .limits import DEFAULT_LIMITS, McpClientLimits
from .link import Link, LinkError, LostError, NotSentError, UnreadableError
from .listing import ToolList, pages, unusable
from .reading import completion, prompt_catalog, prompt_result, read_failure, read_result, resource_catalog
from .results import Answered, answered, call_result, error_answered, question_answered, unreadable
from .session import ClientSession, QuestionError
from .stdio import open_process
from .streamable_http import name_of, open_url

T = TypeVar("T")


@asynccontextmanager
async def open_mcp(
    server: str | Sequence[str],
    *,
    token: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    tools: Mapping[str, Override] | None = None,
    trusted: bool = False,
    client: ClientFeatures | None = None,
    limits: McpClientLimits = DEFAULT_LIMITS,
) -> AsyncIterator[McpClient]:
    """Execute through an MCP server for the length of a block.

    ::

        async with open_mcp(["npx", "some-server"], tools={"search": {"effect": "read"}}) as server:
            result = await server.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))

    A command is run as `carmy_stdio.open_stdio` runs one: nothing of it is left, however the block ends. If it ends before, it is
    started again. Calls in other tasks that are still running at the end of the block raise `OutcomeUnknownError`.

    Args:
        server: A URL of Streamable HTTP, or a program and its arguments.
        token: For a URL: sent as ``Authorization: Bearer``.
        env: For a command: added to the few variables that every program needs, such as ``PATH``. It sees no others.
        cwd: For a command: its working directory.
        tools: By the name of a tool, what you know better than its server: ``effect``, ``idempotent``, ``parallel_safe``,
            ``confirmation``.
        trusted: The server is one of this package; its ``_meta`` overrides the hints.
        client: Answers what the server asks, of callers that have no client of their own; see `McpClient.bind`.
        limits: In time, bytes and numbers.

    Raises:
        ConfigurationError: An argument is malformed, or `tools` names what the server does not have.
        ClosedError: The server cannot be started or reached, was not ready in time, or does not speak the protocol.
        AgentError: The server refused.
    """
    require_trio("open_mcp", "open_mcp(...)")
    overrides = check_overrides(tools or {})
    open_link: Callable[[], AbstractAsyncContextManager[Link]]
    if isinstance(server, str):
        if env is not None or cwd is not None:
            raise ConfigurationError("env and cwd are for a command, not for a URL")
        what, open_link = name_of(server), partial(open_url, server, token, limits)
    else:
        if token is not None:
            raise ConfigurationError("token is for a URL; give a command what it needs by env")
        if not server:
            raise ConfigurationError("a command has at least the name of a program")
        what, open_link = server[0], partial(open_process, tuple(server), env, cwd, limits)
    tools_of = ToolList(what, overrides, limits, trusted=trusted)
    connector = Connector(what, open_link, tools_of.prepare, limits, client)
    try:
        async with trio.open_nursery() as background:
            await background.start(connector.run)
            try:
                yield McpClient(connector, tools_of, limits, client)
            finally:
                connector.close()
                background.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


class McpClient:
    """The client of one server; an executor, with the resources and prompts of the server. Made by `open_mcp`.

    Calls run side by side. Leaving a call's scope cancels it on the server, which sends no answer to that; so its end is not
    waited for.
    """

    def __init__(
        self, connector: Connector, tools: ToolList, limits: McpClientLimits, client: ClientFeatures | None
    ) -> None:
        self._limits = limits
        self._connector = connector
        self._tools = tools
        self._client = client

    @property
    def _what(self) -> str:
        return self._connector.what

    def bind(self, *, client: ClientFeatures) -> McpClient:
        """The same client for a caller whose person, model and roots the server may ask for.

        Servers of versions with a handshake ask over the connection that all calls share. If calls of several callers run then, nothing
        shows which of them such a question belongs to, and it is refused.

        Args:
            client: See `carmy_engine.abc.ClientFeatures`.
        """
        return McpClient(self._connector, self._tools, self._limits, client)

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request to its end; see `carmy_engine.abc.Executor.execute`.

        The limit of the request is kept here, for servers that know of none. A request that cannot be sent at all gives a
        result with an empty ``execution_id``.

        Raises:
            ClosedError: The call was not sent, because the server has gone or cannot be reached: the tool has not run.
            OutcomeUnknownError: The connection was lost while the call may have run.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        return (await self._run(request, new_execution_id(), Caller(self._client))).result

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
        await self._asked(self._tools.list)
        return catalog_of(self._tools.by_name.values())

    async def resources(self) -> ResourceCatalog:
        """The resources and templates of the server; none if it has none. Asked for each time. Raises as `catalog`."""

        async def ask(session: ClientSession) -> ResourceCatalog:
            if not session.has("resources"):
                return resource_catalog([], [])
            limits = self._limits
            resources = await pages(session, "resources/list", "resources", limits, self._what)
            try:
                templates = await pages(session, "resources/templates/list", "resourceTemplates", limits, self._what)
            except JsonRpcError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                templates = []
            return resource_catalog(resources, templates)

        return await self._asked(ask)

    async def prompts(self) -> PromptCatalog:
        """The prompts of the server; none if it has none. Asked for each time. Raises as `catalog`."""

        async def ask(session: ClientSession) -> PromptCatalog:
            has_prompts = session.has("prompts")
            return prompt_catalog(
                await pages(session, "prompts/list", "prompts", self._limits, self._what) if has_prompts else []
            )

        return await self._asked(ask)

    async def read_resource(self, uri: str, *, timeout_ms: float | None = None) -> ExecutionResult:
        """Read a resource. The data of the result is a `ReadResult`.

        Args:
            uri: Its address.
            timeout_ms: Limit in milliseconds.

        Raises:
            ClosedError: The server has gone, or cannot be reached.
        """
        return await self._read("resource", "resources/read", {"uri": uri}, read_result, timeout_ms)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout_ms: float | None = None
    ) -> ExecutionResult:
        """Get a prompt. The data of the result is a `PromptResult`.

        Args:
            name: Its name.
            arguments: Texts; other values are sent as their JSON.
            timeout_ms: Limit in milliseconds.

        Raises:
            ClosedError: The server has gone, or cannot be reached.
        """
        texts = {
            key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for key, value in (arguments or {}).items()
        }
        params = {"name": name, "arguments": texts}
        return await self._read("prompt", "prompts/get", params, prompt_result, timeout_ms)

    async def complete(
        self,
        kind: Literal["prompt", "resource"],
        name: str,
        argument: str,
        value: str,
        given: Mapping[str, str] | None = None,
    ) -> Completion:
        """The values of an argument that begin with a text; see `carmy_engine.abc.Completer.complete`."""
        ref = {"type": "ref/prompt", "name": name} if kind == "prompt" else {"type": "ref/resource", "uri": name}
        params = {"ref": ref, "argument": {"name": argument, "value": value}, "context": {"arguments": given or {}}}

        async def ask(session: ClientSession) -> Completion:
            if not session.has("completions"):
                return Completion(values=(), total=0, has_more=False)
            try:
                return completion(await session.request("completion/complete", params))
            except JsonRpcError as error:
                if error.code == INVALID_PARAMS:
                    code = "PROMPT_NOT_FOUND" if kind == "prompt" else "RESOURCE_NOT_FOUND"
                    raise AgentError.standard(code, "the server has nothing of this name to complete") from error
                raise

        return await self._asked(ask)

    async def _asked(self, ask: Callable[[ClientSession], Coroutine[Any, Any, T]]) -> T:
        """Ask for something that changes nothing.

        Raises:
            ClosedError: There is no answer.
            AgentError: The server refused.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            with trio.fail_after(self._limits.catalog_secs):
                return await ask(await self._connector.session())
        except msgspec.DecodeError as error:
            raise ClosedError(f"{self._what} does not speak the protocol: {error}") from error
        except (JsonRpcError, LinkError) as error:
            raise unusable(self._what, error) from error
        except trio.TooSlowError:
            raise ClosedError(f"{self._what} did not answer within {self._limits.catalog_secs:g} s") from None

    async def _read(
        self,
        kind: Literal["prompt", "resource"],
        method: str,
        params: Mapping[str, Any],
        decode: Callable[[msgspec.Raw, str, float], ExecutionResult],
        timeout_ms: float | None,
    ) -> ExecutionResult:
        await trio.lowlevel.checkpoint_if_cancelled()
        started = trio.current_time()
        seconds = math.inf if timeout_ms is None else timeout_ms / 1000
        execution_id = new_execution_id()
        try:
            with trio.CancelScope(relative_deadline=seconds):
                session = await self._connector.session()
                return decode(await session.request(method, params, Caller(self._client)), execution_id, started)
            error = _timeout(f"the {kind}", seconds)
        except JsonRpcError as refusal:
            error = read_failure(refusal, kind)
        except QuestionError as question:
            error = question_answered(question.asked, str(question))
        except (msgspec.DecodeError, UnreadableError):
            error = unreadable().info
        except LinkError as lost:
            raise ClosedError(str(lost)) from lost
        duration_ms = (trio.current_time() - started) * 1000
        return ExecutionResult(execution_id=execution_id, error=error, duration_ms=duration_ms)

    async def _narrate(self, request: ExecutionRequest, events: EventChannel) -> None:
        try:
            execution_id = new_execution_id()
            narrator = Narrator(self._client, events, request.tool, execution_id)
            await narrator.start()
            await narrator.end(await self._run(request, execution_id, narrator))
        except (ClosedError, OutcomeUnknownError) as error:
            events.fail(error)

    async def _run(self, request: ExecutionRequest, execution_id: str, caller: Caller) -> Answered:
        if self._connector.is_closed:
            await self._connector.session()  # raises
        try:
            params = call_params(request)
        except AgentError as error:
            await trio.lowlevel.checkpoint()
            return Answered(ExecutionResult(execution_id="", error=error.info), ran=False)
        return await self._call(params, execution_id, caller)

    async def _call(self, params: CallParams, execution_id: str, caller: Caller) -> Answered:
        request_id = params.meta.get(REQUEST_ID)
        started = trio.current_time()
        seconds = params.meta.get(TIMEOUT_MS, math.inf) / 1000
        tool: FarTool | None = None
        has_limits = was_sent = False
        try:
            with trio.CancelScope(relative_deadline=seconds) as scope:
                session = await self._connector.session()
                if session.has_news:
                    await self._asked(self._tools.list)
                tool = self._tools.by_name.get(params.name)
                has_limits = tool is not None and tool.ours
                if has_limits:
                    scope.deadline += self._limits.margin_secs
                was_sent = True
                answer = await self._send(session, params, tool, caller)
                return answered(call_result(answer), tool, execution_id, (trio.current_time() - started) * 1000)
            if has_limits:
                raise OutcomeUnknownError.before_answer(f"{self._what} did not answer", request_id)
            error = _timeout(params.name, seconds, was_sent=was_sent)
        except JsonRpcError as refusal:
            error = error_answered(refusal, params.name, known=tool is not None)
        except AgentError as problem:
            error = problem.info
        except QuestionError as question:
            error = question_answered(question.asked, str(question))
        except UnreadableError:
            error = unreadable().info
        except NotSentError as lost:
            raise ClosedError(f"{lost}; the call was not sent") from lost
        except LostError as lost:
            raise OutcomeUnknownError.before_answer(str(lost), request_id) from lost
        duration_ms = (trio.current_time() - started) * 1000
        result = ExecutionResult(execution_id=execution_id, error=error, duration_ms=duration_ms)
        # Another maker's server does not report whether the tool ran before the failure.
        return Answered(result, ran=tool is not None and not has_limits)

    async def _send(
        self, session: ClientSession, params: CallParams, tool: FarTool | None, caller: Caller
    ) -> msgspec.Raw:
        """Send a call. One that is refused because its headers follow an old list of tools is sent again, once."""

        def headers() -> Mapping[str, str]:
            return parameter_headers(tool.headers, params.values) if tool is not None and session.has_headers else {}

        try:
            return await session.request("tools/call", params.members(), caller, headers())
        except JsonRpcError as error:
            if error.code != HEADER_MISMATCH or not session.has_headers:
                raise
        await self._tools.list(session)
        tool = self._tools.by_name.get(params.name)
        return await session.request("tools/call", params.members(), caller, headers())


def _timeout(what: str, seconds: float, *, was_sent: bool = True) -> ErrorInfo:
    effects = "its effects may exist" if was_sent else "it was not called"
    phase = "running" if was_sent else "waiting"
    message = f"{what} did not answer within {seconds:g} s; {effects}"
    return AgentError.standard("TIMEOUT", message, details={"phase": phase}).info
