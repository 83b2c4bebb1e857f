"""Table of the errors of cancelled executions, by cause."""

from __future__ import annotations

from .._model.cause import Cause
from .._model.errors import AgentError
from .._model.spec import ToolSpec

CODE_OF_CAUSE = {
    Cause.DEADLINE: "TIMEOUT",
    Cause.CALLER: "CANCELLED",
    Cause.OPERATOR: "CANCELLED",
    Cause.DISCONNECT: "CANCELLED",
    Cause.SHUTDOWN: "SHUTTING_DOWN",
}
"""Error code of each cause. The category of the code gives the status: timed_out, cancelled or failed."""

_WHAT_HAPPENED = {
    Cause.DEADLINE: "the deadline of {timeout:g} s passed",
    Cause.CALLER: "the caller cancelled it",
    Cause.OPERATOR: "an operator cancelled it",
    Cause.DISCONNECT: "the caller disconnected",
    Cause.SHUTDOWN: "the engine is shutting down",
}


def cancelled_error(
    cause: Cause, spec: ToolSpec, *, started: bool, timeout: float, joined: str | None = None
) -> AgentError:
    """Error of a cancelled execution.

    Args:
        cause: Cause of the cancellation.
        spec: The spec of the tool.
        started: The tool had begun to run, so effects may exist; otherwise there are none.
        timeout: The execution's limit in seconds, for the message.
        joined: Id of the execution whose end it waited for; None if it waited for none.
    """
    code = CODE_OF_CAUSE[cause]
    happened = _WHAT_HAPPENED[cause].format(timeout=round(timeout, 3) or timeout)
    advice = None
    details = {"phase": "running" if started else "waiting", "cause": cause.value}
    if not started and joined is not None:
        message = f"the first attempt with this request_id is still running: {happened} while this call waited for it"
        details["execution_id"] = joined
    elif not started:
        message = f"{spec.name} was never started: {happened} while it waited"
    elif spec.effect.is_safe:
        message = f"{spec.name} was stopped while it ran: {happened}"
    else:
        message = f"{spec.name} was stopped while it ran: {happened}; its effects may exist"
        if not spec.is_repeatable:
            advice = "Find out whether the effect exists before you send the call again."
    known = AgentError.standard(code, message)
    # A retry is safe if the tool has not begun or is repeatable. A call that was cancelled on purpose needs none.
    may_retry = cause in (Cause.DEADLINE, Cause.SHUTDOWN) and (not started or (spec.is_repeatable and known.retryable))
    return AgentError(
        code,
        message,
        known.category,
        retryable=may_retry,
        retry_after=1 if may_retry else None,
        suggested_action=advice,
        details=details,
    )
