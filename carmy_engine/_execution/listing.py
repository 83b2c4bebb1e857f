"""Listing of all executions for operators, without arguments and outputs."""

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
"""Permission to list the executions of other callers."""

MAX_LISTED = 200
"""Limit for each state in one listing; a full listing has about 150 KB."""


class ListedState(enum.StrEnum):
    """State of a listed execution."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Ended with an unknown outcome: effects may exist, and an operator may have to settle it."""
    FINISHED = "finished"


class ListedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of any caller, without arguments and outputs.

    Attributes:
        execution_id: Its id.
        tool: The requested name.
        state: See `ListedState`.
        started_at: Unix seconds.
        request_id: Its idempotency identity.
        principal: Principal of the caller.
        session: Session of the caller.
        transport: Transport of the request; None if only the store has the execution, from another or an earlier process.
        joined: Id of the execution whose answer it waits for.
        status: Status of a finished execution.
        error_code: Code of its error.
        cause: Cause of its cancellation.
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
    """Return the executions, newest first, at most `MAX_LISTED` of each state.

    Args:
        running: Running executions of this engine.
        ended: Recently ended executions of this engine.
        entries: Entries of the store: executions that run in any process, and interrupted ones.
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
        # Without a result, the caller had gone before the end.
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
