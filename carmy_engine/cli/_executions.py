"""The commands ``executions``: list the executions that are in doubt, show one, settle one."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from cyclopts import Parameter

from .._model.cause import Cause
from .._model.error_info import ErrorCategory
from .._model.errors import AgentError
from .._model.protocols import RecordingStore, SearchableStore
from .._model.record import ExecutionRecord
from .._model.reservation import Reservation, ReservationState
from .._model.result import ExecutionStatus, Outcome
from ._json_words import json_word
from ._outcome import SUCCESS, Failure, UsageError
from ._stdout import claimed_stdout
from ._store_commands import AsJson, Limit, StoreCommands, StoreUrl, Target, Tool, checked_limit, with_store
from ._table import moment, table

State = Annotated[
    ReservationState | None, Parameter(help="In this state only. Default: those that run or were interrupted.")
]
Words = Annotated[str, Parameter(help="The target (unless there is --store), and the execution's id.")]
Completed = Annotated[
    str | None,
    Parameter(
        allow_leading_hyphen=True,  # for the '-', and for numbers
        help="It has happened: the output that retries get, as JSON ('-': from standard input).",
    ),
]
Failed = Annotated[str | None, Parameter(help="It has failed: the message that retries get.")]
Code = Annotated[str, Parameter(help="The error's code, for --failed.")]
Released = Annotated[bool, Parameter(negative="", help="It has not happened: a retry may run.")]

_HEAD = ("STARTED", "STATE", "CAUSE", "TOOL", "PRINCIPAL", "SESSION", "REQUEST", "EXECUTION")


class Executions:
    """The commands ``executions list``, ``show`` and ``settle``."""

    def __init__(self, store_commands: StoreCommands) -> None:
        self._store_commands = store_commands

    def list(
        self,
        target: Target = None,
        /,
        *,
        store: StoreUrl = None,
        state: State = None,
        tool: Tool = None,
        limit: Limit = 100,
        json: AsJson = False,
    ) -> int:
        """List executions that run or are in doubt, newest first."""
        limit = checked_limit(limit)
        with claimed_stdout() as out:
            opened = self._store_commands.searchable_store(target, store)
            entries: list[Reservation] = with_store(
                opened, lambda store: store.entries(state=state, tool=tool, limit=limit)
            )
            if json:
                for entry in entries:
                    out(_as_json(entry) + b"\n")
            else:
                out(table(_HEAD, [_row(entry) for entry in entries]))
        return SUCCESS

    def show(self, *words: Words, store: StoreUrl = None) -> int:
        """Print the entry of one execution as JSON."""
        target, execution_id = self._store_commands.words(words, "executions show", "an execution")
        with claimed_stdout() as out:
            opened = self._store_commands.searchable_store(target, store)

            async def show(store: SearchableStore) -> Reservation:
                return await _find(store, execution_id)

            out(_as_json(with_store(opened, show), output=True) + b"\n")
        return SUCCESS

    def settle(
        self,
        *words: Words,
        store: StoreUrl = None,
        completed: Completed = None,
        failed: Failed = None,
        code: Code = "SETTLED_AS_FAILED",
        released: Released = False,
    ) -> int:
        """Settle an interrupted execution whose outcome you have found out."""
        target, execution_id = self._store_commands.words(words, "executions settle", "an execution")
        if [completed is not None, failed is not None, released].count(True) != 1:
            raise UsageError("settle needs one of --completed JSON, --failed MESSAGE and --released")
        outcome = _outcome(execution_id, completed, failed, code)
        with claimed_stdout() as out:
            opened = self._store_commands.searchable_store(target, store)

            async def settle(store: SearchableStore) -> ExecutionRecord:
                return await _settle(store, await _find(store, execution_id), outcome)

            record = with_store(opened, settle)
            outcome_text = "released" if outcome is None else record.status.value
            out(f"{execution_id} ({record.tool}) is settled: {outcome_text}\n".encode())
        return SUCCESS


async def _find(store: SearchableStore, execution_id: str) -> Reservation:
    found = await store.find_execution(execution_id)
    if found is None:
        raise Failure(f"the store has no execution {execution_id}; executions list shows those in doubt")
    return found


async def _settle(store: SearchableStore, entry: Reservation, outcome: Outcome | None) -> ExecutionRecord:
    """Store the outcome, and an audit record of the settlement.

    Raises:
        Failure: The execution is not in doubt, or another process has just settled it.
    """
    if entry.state is not ReservationState.INTERRUPTED:
        why = "its process is alive, and will end it" if entry.state is ReservationState.RUNNING else "it has an answer"
        raise Failure(f"{entry.execution_id} is {entry.state.value}: {why}")
    now = time.time()
    done = (
        await store.release(entry.identity, entry.execution_id)
        if outcome is None
        else await store.complete(entry.identity, entry.execution_id, outcome, now)
    )
    if not done:
        raise Failure(f"{entry.execution_id} was settled by another process just now")
    record = ExecutionRecord(
        execution_id=entry.execution_id,
        request_id=entry.identity.request_id,
        principal=entry.identity.principal,
        session=entry.identity.session,
        transport="command",
        tool=entry.tool,
        effect=None,
        status=ExecutionStatus.CANCELLED
        if outcome is None
        else ExecutionStatus.COMPLETED
        if outcome.error is None
        else ExecutionStatus.FAILED,
        error_code=None if outcome is None or outcome.error is None else outcome.error.code,
        cause=Cause.OPERATOR,
        duration_ms=0.0,
        waited_ms=0.0,
        started_at=now,
        replayed=False,
        settled="operator",
    )
    if isinstance(store, RecordingStore) and store.sink is not None:
        store.sink.record(record)
    return record


def _outcome(execution_id: str, completed: str | None, failed: str | None, code: str) -> Outcome | None:
    if completed is not None:
        data = json_word(completed, "--completed is")
        return Outcome(execution_id=execution_id, data_json=data)
    if failed is not None:
        error = AgentError(code, failed, ErrorCategory.CONFLICT)
        return Outcome(execution_id=execution_id, error=error.info)
    return None


def _row(entry: Reservation) -> tuple[object, ...]:
    return (
        moment(entry.started_at),
        entry.state.value,
        None if entry.cause is None else entry.cause.value,
        entry.tool,
        entry.identity.principal,
        entry.identity.session,
        entry.identity.request_id,
        entry.execution_id,
    )


def _as_json(entry: Reservation, *, output: bool = False) -> bytes:
    """The entry as JSON; with `output`, what its retries get as well."""
    identity = entry.identity
    fields: dict[str, object] = {
        "execution_id": entry.execution_id,
        "state": entry.state,
        "tool": entry.tool,
        "principal": identity.principal,
        "session": identity.session,
        "scope": identity.scope,
        "request_id": identity.request_id,
        "started_at": entry.started_at,
        "finished_at": entry.finished_at,
        "cause": entry.cause,
    }
    if output and entry.outcome is not None:
        if entry.outcome.error is not None:
            fields["error"] = entry.outcome.error
        else:
            fields["data"] = msgspec.Raw(entry.outcome.data_json or b"null")
    return msgspec.json.encode(fields)
