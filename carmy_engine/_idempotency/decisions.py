"""Decisions about one ``request_id``, as pure functions: what an existing entry means, and what an ending leaves."""

from __future__ import annotations

import enum

from .._model.cause import Cause
from .._model.codec import invalid_request
from .._model.error import ErrorInfo
from .._model.errors import AgentError
from .._model.reservation import Reservation, ReservationState
from .._model.result import Outcome
from .._model.spec import ToolSpec


def judge(existing: Reservation, fingerprint: bytes) -> Outcome:
    """What to answer when the identity is taken.

    Returns:
        The stored outcome, to be replayed.

    Raises:
        AgentError: ``IDEMPOTENCY_CONFLICT``: it stands for another request, whose answer is not shown.
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
    """What a request's ``on_running`` says.

    Raises:
        AgentError: ``INVALID_REQUEST``: nothing that there is.
    """
    if on_running not in ("refuse", "wait"):
        raise invalid_request("on_running must be 'refuse' or 'wait'")
    return on_running == "wait"


def is_in_doubt(existing: Reservation, fingerprint: bytes) -> bool:
    """Whether it is the same request, and nobody knows what became of it."""
    return existing.state is ReservationState.INTERRUPTED and existing.fingerprint == fingerprint


class Leaves(enum.Enum):
    """What an ending leaves under the request_id."""

    ANSWER = "answer"
    """The outcome is recorded, and replayed from now on."""
    NOTHING = "nothing"
    """The id is free again."""
    DOUBT = "doubt"
    """Interrupted: effects may exist, and nobody has seen an answer."""


def leaves(
    spec: ToolSpec,
    *,
    started: bool,
    error: ErrorInfo | None,
    cause: Cause | None,
    crashed: bool = False,
    gone: bool = False,
) -> Leaves:
    """The table of contract section 6, row by row.

    Args:
        spec: The tool's.
        started: The tool had begun to run.
        error: How it failed, None for success.
        cause: Why it was cut off, None when it ended by itself.
        crashed: The tool raised something undeclared.
        gone: Nobody takes the answer: the caller's own scope was cancelled, whatever else was.
    """
    if error is None:
        return Leaves.ANSWER
    if not started:
        return Leaves.NOTHING  # waiting for a turn or a thread, overload, a store that refused
    if cause is None:
        if error.retryable or (crashed and spec.is_repeatable):
            return Leaves.NOTHING
        return Leaves.ANSWER
    if spec.is_repeatable:
        return Leaves.NOTHING
    if gone or cause in (Cause.DISCONNECT, Cause.SHUTDOWN):
        return Leaves.DOUBT
    return Leaves.ANSWER  # deadline, or cancelled by id: the caller is told that effects may exist
