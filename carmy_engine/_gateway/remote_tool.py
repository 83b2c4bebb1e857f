"""A tool of another executor: its request there, and the meaning of its result here."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from .._execution.execution import Execution, Phase
from .._execution.grace import GRACE_SECONDS
from .._execution.invoke import Ending
from .._model.cause import Cause
from .._model.context import SILENT, Progress
from .._model.error_boundary import await_foreign
from .._model.errors import AgentError, ClosedError, OutcomeUnknownError
from .._model.events import ExecutionCompleted, ExecutionEvent, ToolLog, ToolProgress, ToolStarted, ToolWaiting
from .._model.protocols import ClientBinder, Executor
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.spec import ToolSpec

log = logging.getLogger("carmy.engine")

RESULT_SECONDS = GRACE_SECONDS + 0.25
"""Wait beyond the deadline for the result of the remote executor, whose own deadline and grace end a moment later. Only that
result states whether the tool had begun."""

_CAUSE_OF_CODE = {"TIMEOUT": Cause.DEADLINE, "CANCELLED": Cause.CALLER, "SHUTTING_DOWN": Cause.SHUTDOWN}
"""The cause here for each error code there; it decides the state of the request_id."""


class RemoteTool:
    """A tool of another executor; `CompiledTool.runs` of the tool here.

    Args:
        executor: The executor that runs it.
        name: Its name there.
        spec: Its properties here.
    """

    def __init__(self, executor: Executor, name: str, spec: ToolSpec) -> None:
        self._executor = executor
        self._binder = executor if isinstance(executor, ClientBinder) else None
        self._name = name
        self._spec = spec

    async def __call__(self, execution: Execution, arguments: Mapping[str, Any]) -> Ending:
        """Run one call there to its end.

        A cancellation here cancels it there, and waits only as long as the executor does.

        Args:
            execution: The execution here; it receives the tool's progress.
            arguments: The JSON of them, as ``arguments``.

        Raises:
            trio.Cancelled: Cancelled here, before the remote result arrived.
        """
        request = ExecutionRequest(
            tool=self._name,
            arguments=msgspec.Raw(arguments["arguments"]),
            request_id=remote_request_id(execution),
            timeout_ms=_timeout_ms(execution),
            on_running="wait" if execution.may_join else "refuse",
        )
        client = execution.caller.client.features
        executor = self._executor if client is None or self._binder is None else self._binder.bind(client=client)
        call = RemoteCall(executor, self._spec, execution)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.run, request)
            try:
                await call.done.wait()
            except trio.Cancelled:
                if not await call.wait_for_result():
                    call.scope.cancel()
                    raise
        assert call.ending is not None
        return call.ending


class RemoteCall:
    """One call. It runs in a shielded task, which alone ends it.

    Attributes:
        scope: Cancel it to abandon the call.
        done: Set at the end of the call.
        ending: The result; None if the call was abandoned.
    """

    def __init__(self, executor: Executor, spec: ToolSpec, execution: Execution) -> None:
        self._executor = executor
        self._spec = spec
        self._execution = execution
        self._has_begun = False
        listener = execution.listener
        self._progress: Progress = SILENT if listener is None else listener.progress(execution)
        self.scope = trio.CancelScope(shield=True)
        self.done = trio.Event()
        self.ending: Ending | None = None

    async def wait_for_result(self) -> bool:
        """After a cancellation: True if the remote result arrives in time. Only a deadline justifies the wait."""
        execution = self._execution
        if execution.cancellation.cause not in (None, Cause.DEADLINE) or execution.now() < execution.deadline:
            return False
        with trio.CancelScope(shield=True, deadline=execution.deadline + RESULT_SECONDS):
            await self.done.wait()
        return self.done.is_set() and self.ending is not None

    async def run(self, request: ExecutionRequest) -> None:
        """Run the call to its end."""
        # From here on the tool may run there, unless an answer states otherwise.
        self._execution.phase = Phase.RUNNING
        try:
            with self.scope:
                # A stray Cancelled from the executor must not reach the nursery of this task, which would swallow it.
                self.ending = await await_foreign(self._ended(request))
        finally:
            # Other exceptions of a foreign executor leave through the nursery, to the boundary around tools.
            self.done.set()

    async def _ended(self, request: ExecutionRequest) -> Ending:
        try:
            return self._ending_of(await self._result(request))
        except ClosedError as error:
            return self._lost(error, may_have_run=self._has_begun)
        except OutcomeUnknownError as error:
            return self._lost(error, may_have_run=True)

    async def _result(self, request: ExecutionRequest) -> ExecutionResult:
        """Read the events: only these show whether the tool has begun there."""
        result: ExecutionResult | None = None
        async with self._executor.stream(request) as events:
            async for event in events:
                if isinstance(event, ExecutionCompleted):
                    result = event.result
                else:
                    await self._report(event)
        if result is None:
            raise OutcomeUnknownError(f"the stream of {request.tool} ended without an answer")
        return result

    async def _report(self, event: ExecutionEvent) -> None:
        if isinstance(event, ToolWaiting):
            self._execution.mark_waiting()
        elif isinstance(event, ToolStarted):
            self._begin()
        elif isinstance(event, ToolLog):
            # A client that takes log messages gets it, as it gets those of tools that run here.
            if not self._execution.caller.client.log(event.level, event.message):
                self._progress.log(event.level, event.message)
        elif isinstance(event, ToolProgress) and self._progress.is_listening:
            if event.partial_json is None:
                # NaN stands for a missing number; the event omits it again.
                progress = math.nan if event.progress is None else event.progress
                self._progress.report(progress, event.total, event.message)
            else:
                await self._progress.partial(event.partial)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._execution.mark_started()

    def _ending_of(self, result: ExecutionResult) -> Ending:
        """The ending here for a result there."""
        if result.error is None:
            self._begin()
            return Ending(b"null" if result.data_json is None else result.data_json)
        if not self._has_begun and not result.replayed:
            self._execution.phase = Phase.WAITING  # refused there, so nothing has run
        error = AgentError.of(result.error)
        return Ending(
            error=error,
            exception=error if result.exception is None else result.exception,
            crashed=error.code == "TOOL_PANIC",
            cause=_CAUSE_OF_CODE.get(error.code),
        )

    def _lost(self, problem: Exception, *, may_have_run: bool) -> Ending:
        """The ending for a lost executor. The problem is logged only: its text may be confidential."""
        name = self._spec.name
        log.warning("the executor behind the tool %s was lost: %s", name, problem)
        if not may_have_run:
            self._execution.phase = Phase.WAITING
            error = AgentError.standard(
                "EXECUTOR_UNAVAILABLE",
                f"the executor behind {name} cannot be reached; the tool was not run",
                details={"phase": "waiting"},
            )
            return Ending(error=error, exception=problem)
        if self._spec.is_repeatable:
            error = AgentError.standard(
                "EXECUTOR_UNAVAILABLE",
                f"the executor behind {name} was lost while it ran",
                details={"phase": "running"},
            )
        else:
            error = AgentError.standard(
                "EXECUTION_UNCERTAIN",
                f"the executor behind {name} was lost while it ran; its effects may or may not exist",
                suggested_action="Find out whether the effect exists before you use a new request_id.",
                details={
                    "state": "interrupted",
                    "execution_id": self._execution.id,
                    "started_at": self._execution.started_at,
                    "cause": Cause.DISCONNECT.value,
                },
            )
        return Ending(error=error, exception=problem, cause=Cause.DISCONNECT)


def remote_request_id(execution: Execution) -> str:
    """The request_id of a remote call: equal for equal identities here, so that a retry is a retry on both hops.

    All callers of this engine are one caller there, so the id is derived from the whole identity. A call without a request_id
    gets a new one, with which a client can repeat a request after a broken connection.
    """
    if execution.request_id is None:
        return f"relay:{execution.id}"
    context = execution.caller.context
    anonymous = context.principal is None and context.session is None
    parts = [context.principal, context.session, context.transport if anonymous else "", execution.request_id]
    return f"relay:{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()}"


def _timeout_ms(execution: Execution) -> float | None:
    remaining = execution.deadline - execution.now()
    # Never 0, which means no limit; the scope here ends the call in a moment.
    return None if math.isinf(remaining) else max(remaining * 1000, 1.0)
