"""Decisions about one ``request_id``, as pure functions: the answer to an existing entry, and the entry after an ending."""

from __future__ import annotations

import enum

from .._model.cause import Cause
from .._model.codec import invalid_request
from .._model.error_info import ErrorInfo
from .._model.errors import AgentError
from .._model.reservation import Reservation, ReservationState
from .._model.result import Outcome
from .._model.spec import ToolSpec


def judge(existing: Reservation, fingerprint: bytes) -> Outcome:
    """The answer to a request whose identity is taken.

    Returns:
        The stored outcome, to be replayed.

    Raises:
        AgentError: ``IDEMPOTENCY_CONFLICT``: the entry is of another request, whose answer is not shown.
            ``EXECUTION_UNCERTAIN``: the first attempt is running, or was interrupted.
    """
    if existing.fingerprint != fingerprint:
        raise AgentError.standard(
            "IDEMPOTENCY_CONFLICT",
            "this request_id was used for another request (other tool, arguments or metadata)",
            suggested_action="Use a new request_id for a new request.",
        )
    if existing.state is ReservationState.COMPLETED:
        assert existing.outcome is not None
        return existing.outcome
    details = {
        "state": existing.state.value,
        "execution_id": existing.execution_id,
        "started_at": existing.started_at,
    }
    if existing.state is ReservationState.RUNNING:
        raise AgentError.standard(
            "EXECUTION_UNCERTAIN",
            "the first attempt with this request_id is still running",
            suggested_action='Send the same request again later to get its result, or with on_running "wait" to wait for it.',
            details=details,
        )
    if existing.cause is not None:
        details["cause"] = existing.cause.value
    raise AgentError.standard(
        "EXECUTION_UNCERTAIN",
        "the first attempt with this request_id was interrupted; its effects may or may not exist",
        suggested_action="Find out whether the effect exists before you use a new request_id.",
        details=details,
    )


def may_join(on_running: object) -> bool:
    """True if a request's ``on_running`` asks to wait for a running attempt.

    Raises:
        AgentError: ``INVALID_REQUEST``: an unknown value.
    """
    if on_running not in ("refuse", "wait"):
        raise invalid_request("on_running must be 'refuse' or 'wait'")
    return on_running == "wait"


def is_in_doubt(existing: Reservation, fingerprint: bytes) -> bool:
    """True if the entry is an interrupted attempt of the same request: its effects may or may not exist."""
    return existing.state is ReservationState.INTERRUPTED and existing.fingerprint == fingerprint


class Settle(enum.Enum):
    """The change that an ending makes to the entry of the request_id."""

    COMPLETE = "complete"
    """Record the outcome; retries replay it."""
    RELEASE = "release"
    """Free the id."""
    INTERRUPT = "interrupt"
    """Mark the entry as interrupted: effects may exist, and no caller has an answer."""


def decide_settle(
    spec: ToolSpec,
    *,
    started: bool,
    error: ErrorInfo | None,
    cause: Cause | None,
    crashed: bool = False,
    gone: bool = False,
) -> Settle:
    """The change to the entry after an execution has ended.

    Args:
        spec: The declared properties of the tool.
        started: The tool had started to run.
        error: The error, None for success.
        cause: The cause of the cancellation, None when the tool ended by itself.
        crashed: The tool raised an undeclared exception.
        gone: The caller's own scope was cancelled, so it receives no answer.
    """
    if error is None:
        return Settle.COMPLETE
    if not started:
        return Settle.RELEASE  # waiting for a turn or a thread, overload, a store that refused
    if cause is None:
        if error.retryable or (crashed and spec.is_repeatable):
            return Settle.RELEASE
        return Settle.COMPLETE
    if spec.is_repeatable:
        return Settle.RELEASE
    if gone or cause in (Cause.DISCONNECT, Cause.SHUTDOWN):
        return Settle.INTERRUPT
    return Settle.COMPLETE  # deadline, or cancelled by id: the answer states that effects may exist
