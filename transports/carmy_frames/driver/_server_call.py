"""One call of a connection, on the server."""

from __future__ import annotations

from carmy_engine import AgentError, BoundEngine, Cause, ExecutionResult
from carmy_engine.transport import LazyDeadlineScope, new_execution_id


class ServerCall:
    """One call, from its acceptance to the end of its execution.

    Attributes:
        executor: An executor for this call alone, so that `cancel` finds its execution.
        block: The scope of the execution.
        cause: The cause of the cancel; None if there was none.
        execution_id: The execution that cancelling `block` has ended; empty if it had not begun.
    """

    __slots__ = ("_has_ended", "block", "cause", "execution_id", "executor")

    def __init__(self, executor: BoundEngine) -> None:
        self.executor = executor
        self.block = LazyDeadlineScope()
        self.execution_id = ""
        self.cause: Cause | None = None
        self._has_ended = False

    def cancel(self, cause: Cause, *, gone: bool = False) -> bool:
        """Cancel the call. False if it is already cancelled or has ended.

        Args:
            cause: The cause, for the answer.
            gone: The caller does not wait for an answer.
        """
        if self.cause is not None or self._has_ended:
            return False
        ids = self.executor.running()
        if ids and not gone and not self.executor.cancel(ids[0], cause):
            return False
        self.cause = cause
        if ids and not gone:
            return True
        # A caller that leaves, or a call that the engine has not admitted yet: cancelling the scope suffices.
        self.execution_id = ids[0] if ids else ""
        self.block.scope.cancel()
        return True

    def mark_ended(self) -> None:
        """Record the end of the execution."""
        self._has_ended = True


def cancelled_result(call: ServerCall, tool: str) -> ExecutionResult:
    """The result of a call whose scope was cancelled."""
    started = bool(call.execution_id)
    code = "SHUTTING_DOWN" if call.cause is Cause.SHUTDOWN else "CANCELLED"
    what = "was cancelled: its caller no longer waits for it" if started else "was cancelled before it was started"
    error = AgentError.standard(code, f"{tool} {what}", details={"phase": "running" if started else "waiting"})
    return ExecutionResult(execution_id=call.execution_id or new_execution_id(), error=error.info)
