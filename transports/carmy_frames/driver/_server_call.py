"""One call of a connection, on the server's side."""

from __future__ import annotations

from carmy_engine import AgentError, BoundEngine, Cause, ExecutionResult
from carmy_engine.transport import QuickScope, new_execution_id


class ServerCall:
    """One call, from its acceptance until its execution has ended.

    Attributes:
        executor: Its own, so that its execution can be told from others.
        block: Round its execution.
        cause: Why it was cancelled, None as long as it was not.
        execution_id: Of an execution that was left by way of `block`; empty when it had not begun.
    """

    __slots__ = ("_over", "block", "cause", "execution_id", "executor")

    def __init__(self, executor: BoundEngine) -> None:
        self.executor = executor
        self.block = QuickScope()
        self.execution_id = ""
        self.cause: Cause | None = None
        self._over = False

    def cancel(self, cause: Cause, *, gone: bool = False) -> bool:
        """Cancel it. False when it was cancelled already, or its execution has ended.

        Args:
            cause: Why, if there is an answer to come.
            gone: Nobody waits for the answer.
        """
        if self.cause is not None or self._over:
            return False
        ids = self.executor.running()
        if ids and not gone and not self.executor.cancel(ids[0], cause):
            return False
        self.cause = cause
        if ids and not gone:
            return True
        # Like a caller that leaves. Also when the engine has not admitted it yet: nothing has run, and nothing will.
        self.execution_id = ids[0] if ids else ""
        self.block.scope.cancel()
        return True

    def ends(self) -> None:
        """Its execution has ended."""
        self._over = True


def cancelled_result(running: ServerCall, tool: str) -> ExecutionResult:
    """What a call is answered that was left by way of its scope."""
    started = bool(running.execution_id)
    code = "SHUTTING_DOWN" if running.cause is Cause.SHUTDOWN else "CANCELLED"
    what = "was cancelled: its caller no longer waits for it" if started else "was cancelled before it was started"
    error = AgentError.standard(code, f"{tool} {what}", details={"phase": "running" if started else "waiting"})
    return ExecutionResult(execution_id=running.execution_id or new_execution_id(), error=error.info)
