"""One table: what a cancelled execution is called, by its cause."""

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
"""The status follows from the code's category: timed_out, cancelled, failed."""

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
    """The error of an execution that was cut off.

    Args:
        cause: Why.
        spec: The tool's.
        started: The tool had begun to run, so effects may exist; else it is certain that there are none.
        timeout: The execution's limit in seconds, for the message.
        joined: The execution whose end it was waiting for, if that is why it had not begun.
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
    # Trying again is safe when nothing has begun or when repeating does no harm; a caller's own cancel asks for neither.
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
