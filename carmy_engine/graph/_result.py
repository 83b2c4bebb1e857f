"""The outcome of a run."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

from .._model.cause import Cause
from .._model.checkpoint import RunStatus
from .._model.error_info import ErrorCategory, ErrorInfo
from .._model.errors import AgentError
from ._position import Doubt, Question

S = TypeVar("S")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunResult(Generic[S]):
    """How a run has ended, or why it stopped.

    Attributes:
        run_id: The run.
        thread_id: Its thread.
        status: Its status. All but ``completed`` can be resumed.
        state: The state at its end; before a fan-out that has not ended, if it stopped in one.
        error: The error of a failed, cancelled or timed-out run.
        exception: The exception behind it.
        cause: The cause of a cancellation.
        questions: Those that wait for an answer, if it is ``interrupted``.
        doubts: The calls with an unknown outcome, if it is ``in_doubt``.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    state: S
    error: ErrorInfo | None = None
    exception: BaseException | None = None
    cause: Cause | None = None
    questions: tuple[Question, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def question(self) -> Any:
        """The value of the first question; None without one."""
        return self.questions[0].value if self.questions else None

    def unwrap(self) -> S:
        """Return `state`, or raise the `AgentError` that the run ended with; ``RUN_INTERRUPTED`` if it waits."""
        if self.status is RunStatus.COMPLETED:
            return self.state
        if self.error is not None:
            raise AgentError.of(self.error) from self.exception
        raise stopped(self)


def stopped(result: RunResult[Any]) -> AgentError:
    """The error for a run that waits for an answer, or whose outcome is in doubt."""
    if result.doubts:
        doubt = result.doubts[0]
        return AgentError(
            "EXECUTION_UNCERTAIN",
            f"the node {doubt.node} called {doubt.tool}, and the outcome of {doubt.execution_id} is not known",
            ErrorCategory.CONFLICT,
            recoverable=True,
            retryable=True,  # unlike a call in doubt: the run continues under the same request_id once that is settled
            suggested_action="Settle the execution, then resume the run. If a tool runs the graph, send the same call again.",
            details={
                "state": doubt.state,
                "execution_id": doubt.execution_id,
                "node": doubt.node,
                "tool": doubt.tool,
                "thread_id": result.thread_id,
                "run_id": result.run_id,
            },
        )
    return AgentError.standard(
        "RUN_INTERRUPTED",
        f"the run on the thread {result.thread_id!r} waits for an answer",
        suggested_action="Resume the thread with an answer.",
        details={
            "thread_id": result.thread_id,
            "run_id": result.run_id,
            "questions": [{"node": each.node, "value": each.value} for each in result.questions],
        },
    )
