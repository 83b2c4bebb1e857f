"""Running executions, and a bounded history of recently ended ones."""

from __future__ import annotations

from collections import deque

import msgspec
import trio

from .._model.cause import Cause
from .._model.context import AgentContext
from .._model.errors import AgentError
from .._model.execution_result import ExecutionResult
from .execution import Caller, Execution

OVERLOAD_RETRY_SECONDS = 1
"""``retry_after`` of ``OVERLOADED``, when the engine is full."""

SHUTDOWN_RETRY_SECONDS = 5
"""``retry_after`` of ``SHUTTING_DOWN``: about the duration of a restart."""


class ExecutionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of an execution, looked up by its id.

    Attributes:
        execution_id: The id.
        tool: The tool's name.
        state: ``running`` or ``finished``.
        started_at: Unix seconds.
        request_id: Its idempotency identity.
        principal: Principal of the caller.
        session: Session of the caller.
        transport: Transport of the request.
        result: Result of a finished execution; None if the caller had gone before the end.
    """

    execution_id: str
    tool: str
    state: str
    started_at: float
    request_id: str | None
    principal: str | None
    session: str | None
    transport: str
    result: ExecutionResult | None = None


class Inflight:
    """Table of running executions; admits new ones up to a limit.

    Args:
        max_executions: Running executions.
        max_recent: Ended executions that can still be looked up.
        max_recent_bytes: Of the outputs of these executions.
    """

    def __init__(self, max_executions: int, max_recent: int, max_recent_bytes: int) -> None:
        self._max = max_executions
        self._max_recent = max_recent
        self._max_recent_bytes = max_recent_bytes
        self._running: dict[str, Execution] = {}
        self._recent: dict[str, Execution] = {}
        self._oldest: deque[Execution] = deque()
        """The recent executions in the order of their ends: finding the first entry of a dict is slow."""
        self._recent_bytes = 0
        self._idle: trio.Event | None = None
        self.closing = False
        """New executions are refused as ``SHUTTING_DOWN``."""

    def __len__(self) -> int:
        return len(self._running)

    def running(self) -> list[Execution]:
        """A snapshot."""
        return list(self._running.values())

    def runs(self, execution_id: str) -> bool:
        """True if the execution is counted as running."""
        return execution_id in self._running

    def recent(self) -> list[Execution]:
        """A snapshot of the recently ended executions."""
        return list(self._recent.values())

    def admit(self, execution: Execution) -> None:
        """Count an execution as running.

        Raises:
            AgentError: ``SHUTTING_DOWN`` or ``OVERLOADED``; nothing was counted.
        """
        if self.closing:
            raise AgentError.standard(
                "SHUTTING_DOWN",
                "the server is shutting down; this call was never started",
                retry_after=SHUTDOWN_RETRY_SECONDS,
                details={"phase": "waiting"},
            )
        if len(self._running) >= self._max:
            raise AgentError.standard(
                "OVERLOADED",
                f"{self._max} executions are running, which is the limit (max_executions)",
                retry_after=OVERLOAD_RETRY_SECONDS,
            )
        self._running[execution.id] = execution

    def dismiss(self, execution: Execution) -> None:
        """Stop counting an execution as running."""
        del self._running[execution.id]
        if not self._running and self._idle is not None:
            self._idle.set()
            self._idle = None

    def remember(self, execution: Execution) -> None:
        """Keep an ended execution with its result for `lookup`. Beyond the limits, the oldest are dropped."""
        recent = self._recent
        recent[execution.id] = execution
        self._oldest.append(execution)
        self._recent_bytes += execution.output_bytes
        while len(recent) > self._max_recent or self._recent_bytes > self._max_recent_bytes:
            forgotten = self._oldest.popleft()
            del recent[forgotten.id]
            self._recent_bytes -= forgotten.output_bytes

    def cancel(self, execution_id: str, cause: Cause, owner: AgentContext | None) -> bool:
        """Cancel an execution. False if it is not running, is already ending, or has another owner (None owns all)."""
        execution = self._running.get(execution_id)
        return execution is not None and _owns(owner, execution) and execution.cancel(cause)

    def running_for(self, caller: Caller) -> tuple[str, ...]:
        """Ids of the running executions of this `Caller` object; an equal object does not match."""
        return tuple(execution.id for execution in self._running.values() if execution.caller is caller)

    def lookup(self, execution_id: str, owner: AgentContext | None) -> ExecutionSummary | None:
        """Summary of a running or recently ended execution; None if it is unknown or has another owner."""
        running = self._running.get(execution_id)
        execution = self._recent.get(execution_id) if running is None else running
        if execution is None or not _owns(owner, execution):
            return None
        context = execution.caller.context
        return ExecutionSummary(
            execution_id=execution.id,
            tool=execution.tool,
            state="finished" if running is None else "running",
            started_at=execution.started_at,
            request_id=execution.request_id,
            principal=context.principal,
            session=context.session,
            transport=context.transport,
            result=execution.result,
        )

    async def wait_idle(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()


def _owns(owner: AgentContext | None, execution: Execution) -> bool:
    """True for the same principal; anonymous callers also need the same session."""
    if owner is None:
        return True
    context = execution.caller.context
    return owner.principal == context.principal and (owner.principal is not None or owner.session == context.session)
