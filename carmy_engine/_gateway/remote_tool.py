"""One call that runs in another executor, as a tool of this engine: what goes over, what comes back, and what it means here."""

from __future__ import annotations

import hashlib
import logging
import math

import msgspec
import trio

from .._execution.execution import Execution, Phase
from .._execution.grace import GRACE_SECONDS
from .._execution.invoke import Ending
from .._model.cause import Cause
from .._model.context import SILENT, Progress
from .._model.error_boundary import await_foreign
from .._model.errors import AgentError, ClosedError, OutcomeUnknownError
from .._model.events import ExecutionCompleted, ExecutionEvent, ToolProgress, ToolStarted, ToolWaiting
from .._model.execution_result import ExecutionResult
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .._model.spec import ToolSpec

log = logging.getLogger("carmy.engine")

RESULT_SECONDS = GRACE_SECONDS + 0.25
"""Beyond the deadline, for the far side to say what came of the call at its own: it has the same limit, a moment later, and
gives its tool a grace. What it says is the truth; without it nobody could tell whether the tool had begun."""

_CAUSE_OF_CODE = {"TIMEOUT": Cause.DEADLINE, "CANCELLED": Cause.CALLER, "SHUTTING_DOWN": Cause.SHUTDOWN}
"""Of the far side's answers: what cut the tool off there, and so what stays under the request_id here."""


class RemoteTool:
    """A tool of another executor. Its calls are the `function` of a `CompiledTool` that is ``relayed``.

    Args:
        executor: Who runs it.
        name: What it is called there.
        spec: Its properties here.
    """

    def __init__(self, executor: Executor, name: str, spec: ToolSpec) -> None:
        self._executor = executor
        self._name = name
        self._spec = spec

    async def __call__(self, execution: Execution, arguments: bytes) -> Ending:
        """Run one call there to its end.

        It is cancelled there when it is cancelled here, and its end waited for as briefly as the executor does.

        Args:
            execution: The execution here; it hears of the tool's progress.
            arguments: JSON.

        Raises:
            trio.Cancelled: Cut off here, before the far side had said what came of it.
        """
        request = ExecutionRequest(
            tool=self._name,
            arguments=msgspec.Raw(arguments),
            request_id=remote_request_id(execution),
            timeout_ms=_timeout_ms(execution),
            on_running="wait" if execution.may_join else "refuse",
        )
        call = RemoteCall(self._executor, self._spec, execution)
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
    """One call. It runs in a shielded task, which alone decides when it is left.

    Attributes:
        scope: Cancel it to leave the call.
        done: Set when it is over.
        ending: What came of it, unless it was left.
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
        """Cancelled: whether the far side says in time what came of the call. Only its deadline is worth waiting for."""
        execution = self._execution
        if execution.cancellation.cause not in (None, Cause.DEADLINE) or execution.now() < execution.deadline:
            return False
        with trio.CancelScope(shield=True, deadline=execution.deadline + RESULT_SECONDS):
            await self.done.wait()
        return self.done.is_set() and self.ending is not None

    async def run(self, request: ExecutionRequest) -> None:
        """Run it to its end."""
        # From here on it may run there; only an answer can tell that it does not.
        self._execution.phase = Phase.RUNNING
        try:
            with self.scope:
                # The nursery of this task would take a cancel that no scope has asked for as its own.
                self.ending = await await_foreign(self._ended(request))
        finally:
            # Whatever else a foreign executor raises leaves by way of the nursery, to the boundary round tools.
            self.done.set()

    async def _ended(self, request: ExecutionRequest) -> Ending:
        try:
            return self._ending_of(await self._result(request))
        except ClosedError as error:
            return self._lost(error, may_have_run=self._has_begun)
        except OutcomeUnknownError as error:
            return self._lost(error, may_have_run=True)

    async def _result(self, request: ExecutionRequest) -> ExecutionResult:
        """Its events tell whether the tool has begun there, which no answer says."""
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
            self._execution.waits()
        elif isinstance(event, ToolStarted):
            self._begin()
        elif isinstance(event, ToolProgress) and self._progress.is_listening:
            if event.partial_json is None:
                # No number is told as one that is not finite, which is left out again.
                progress = math.nan if event.progress is None else event.progress
                self._progress.report(progress, event.total, event.message)
            else:
                await self._progress.partial(event.partial)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._execution.starts()

    def _ending_of(self, result: ExecutionResult) -> Ending:
        """The same answer, and what it means for what this engine keeps."""
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
        """The far side has gone. Its last words go to the log: they may hold what no caller should see."""
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
    """The request_id of a call on the far side: equal for equal identities here, so that a retry is a retry on both hops.

    All callers of this engine are one caller there, so that it has to stand for all of an identity. A call without one gets an
    id of its own, with which a client can repeat a request whose connection broke.
    """
    if execution.request_id is None:
        return f"relay:{execution.id}"
    context = execution.caller.context
    anonymous = context.principal is None and context.session is None
    parts = [context.principal, context.session, context.transport if anonymous else "", execution.request_id]
    return f"relay:{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()}"


def _timeout_ms(execution: Execution) -> float | None:
    remaining = execution.deadline - execution.now()
    # Never 0, which is not a limit: the scope itself ends the call in a moment.
    return None if math.isinf(remaining) else max(remaining * 1000, 1.0)
