"""What goes on, for people who look after an engine: everybody's executions, without what was sent or answered."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable

import msgspec

from .._model.cause import Cause
from .._model.reservation import Reservation, ReservationState
from .._model.result import ExecutionStatus
from .execution import Execution

LIST_PERMISSION = "executions:list"
"""In the trusted context: may list the executions of others."""

MAX_LISTED = 200
"""Executions of each state in one listing: what a person can look through, in about 150 KB."""


class ListedState(enum.StrEnum):
    """How far a listed execution has come."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Over, and nobody knows whether its effects exist: it may have to be settled."""
    FINISHED = "finished"


class ListedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of anybody. Never arguments, never outputs.

    Attributes:
        execution_id: Its id.
        tool: The name that was asked for.
        state: See `ListedState`.
        started_at: Unix seconds.
        request_id: Its idempotency identity.
        principal: Whose it is.
        session: In which session.
        transport: How it arrived; None for one that only the store knows, of another process or of an earlier one.
        joined: The execution whose end it waits for, to get its answer.
        status: How a finished one ended.
        error_code: Why it did not complete.
        cause: Why it was cut off.
    """

    execution_id: str
    tool: str
    state: ListedState
    started_at: float
    request_id: str | None = None
    principal: str | None = None
    session: str | None = None
    transport: str | None = None
    joined: str | None = None
    status: ExecutionStatus | None = None
    error_code: str | None = None
    cause: Cause | None = None


def listing(
    running: Iterable[Execution], ended: Iterable[Execution], entries: Iterable[Reservation]
) -> list[ListedExecution]:
    """All of them, newest first, `MAX_LISTED` of each state at most.

    Args:
        running: In this engine.
        ended: In this engine, lately.
        entries: Of the store: what it says runs, here or elsewhere, and what is in doubt.
    """
    found = {execution.id: _of_execution(execution, is_running=False) for execution in ended}
    found |= {execution.id: _of_execution(execution, is_running=True) for execution in running}
    for entry in entries:
        known = found.get(entry.execution_id)
        if known is None:
            found[entry.execution_id] = _of_entry(entry)
        elif known.state is ListedState.FINISHED and entry.state is ReservationState.INTERRUPTED:
            found[entry.execution_id] = msgspec.structs.replace(known, state=ListedState.INTERRUPTED)
    count: Counter[ListedState] = Counter()
    listed: list[ListedExecution] = []
    for each in sorted(found.values(), key=lambda each: each.started_at, reverse=True):
        count[each.state] += 1
        if count[each.state] <= MAX_LISTED:
            listed.append(each)
    return listed


def _of_execution(execution: Execution, *, is_running: bool) -> ListedExecution:
    context = execution.caller.context
    thread = execution.thread
    runs_on = thread is not None and thread.abandoned and not thread.ended.is_set()
    status = error_code = cause = None
    if not is_running:
        cause = execution.cancellation.cause
        result = execution.result
        # Without a result there is nobody who could have been given one: its caller had gone.
        status = ExecutionStatus.CANCELLED if result is None else result.status
        error_code = None if result is None or result.error is None else result.error.code
    return ListedExecution(
        execution_id=execution.id,
        tool=execution.tool,
        state=ListedState.RUNNING if is_running or runs_on else ListedState.FINISHED,
        started_at=execution.started_at,
        request_id=execution.request_id,
        principal=context.principal,
        session=context.session,
        transport=context.transport,
        joined=execution.joined if is_running else None,
        status=status,
        error_code=error_code,
        cause=cause,
    )


def _of_entry(entry: Reservation) -> ListedExecution:
    identity = entry.identity
    return ListedExecution(
        execution_id=entry.execution_id,
        tool=entry.tool,
        state=ListedState(entry.state.value),
        started_at=entry.started_at,
        request_id=identity.request_id,
        principal=identity.principal,
        session=identity.session,
        cause=entry.cause,
    )
