"""Use of the idempotency store by the engine: reserve, record, release, interrupt. Every failure is a typed error."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

import msgspec
import trio

from .._execution.completion import Sinks
from .._execution.execution import Execution
from .._execution.grace import grace
from .._execution.invoke import Ending
from .._execution.listing import MAX_LISTED
from .._model.cause import Cause
from .._model.codec import decode, is_json
from .._model.compiled_tool import CheckOutput, CompiledTool
from .._model.context import AgentContext
from .._model.error_boundary import Fault, await_foreign, call_foreign, log_traceback
from .._model.errors import AgentError
from .._model.fingerprint import fingerprint
from .._model.ids import check_request_id
from .._model.protocols import IdempotencyStore, ListableStore, StoreError, StoreFull
from .._model.rate_limited_log import RateLimitedLogger
from .._model.record import ExecutionRecord
from .._model.request import ExecutionRequest
from .._model.reservation import Identity, Reservation, ReservationState
from .._model.result import ExecutionStatus, Outcome, status_of
from .._model.spec import ToolSpec
from .._telemetry.metrics import STORE, Metrics
from .decisions import Settle, decide_settle, is_in_doubt, judge
from .joins import Joins
from .reconcile import ask

log = logging.getLogger("carmy.engine")

T = TypeVar("T")

STORE_SECONDS = 10.0
"""Longest wait for the store to record an ending. The wait is shielded from the caller's cancel, so it needs a bound."""


def identity_of(request_id: str, context: AgentContext) -> Identity:
    """The identity of a request.

    The transport separates callers with neither principal nor session, so that an anonymous caller of one transport cannot
    occupy the ids of another.

    Raises:
        AgentError: ``INVALID_ID``.
    """
    anonymous = context.principal is None and context.session is None
    return Identity(
        principal=context.principal,
        session=context.session,
        scope=context.transport if anonymous else "",
        request_id=check_request_id(request_id),
    )


class Reservations:
    """The reservations of an engine: identities are reserved before a tool runs, and settled after.

    Args:
        store: The idempotency store.
        sinks: Receive a record when an attempt in doubt is settled.
        joins: The joiners, woken when an attempt releases its identity.
        check_output: Checks a long output of a ``reconcile`` function.
        metrics: Receive the time of each operation of the store, and count what is left in doubt; None for none.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        sinks: Sinks,
        joins: Joins,
        check_output: CheckOutput,
        metrics: Metrics | None = None,
    ) -> None:
        self._check_output = check_output
        self._sinks = sinks
        self._joins = joins
        # A store of this package raises only declared errors; the boundary would double the cost of the memory store.
        self._given = store
        self._store: IdempotencyStore | _GuardedStore | _TimedStore
        self._store = store if type(store).__module__.startswith("carmy_engine.") else _GuardedStore(store)
        self._metrics = metrics
        if metrics is not None:
            self._store = _TimedStore(self._store, metrics)
        self._log = RateLimitedLogger(log)  # a failing store fails for every call
        # Read from the exact class: a subclass that adds a wait must not inherit the promise.
        self._never_waits = vars(type(store)).get("never_waits", False) is True
        self._takes_back = vars(type(store)).get("takes_back", False) is True

    async def reserve(
        self,
        identity: Identity,
        execution: Execution,
        tool: CompiledTool,
        request: ExecutionRequest,
        arguments: bytes,
        digest: bytes | None = None,
    ) -> Outcome | None:
        """Reserve the identity for this execution. If it may join, wait first while the same request runs.

        Args:
            identity: The identity.
            execution: The execution.
            tool: The tool.
            request: The request.
            arguments: Its arguments as JSON.
            digest: Its fingerprint; None: it is computed here.

        Returns:
            None when reserved, otherwise the stored outcome to replay. If cancelled, nothing is reserved.

        Raises:
            AgentError: ``IDEMPOTENCY_CONFLICT``, ``EXECUTION_UNCERTAIN``, ``IDEMPOTENCY_CAPACITY``, ``STORE_ERROR``.
        """
        mine = digest or fingerprint(request.tool, arguments, request.metadata)
        reservation = Reservation(
            identity=identity,
            fingerprint=mine,
            execution_id=execution.id,
            state=ReservationState.RUNNING,
            started_at=execution.started_at,
            tool=request.tool,
            repeatable=tool.spec.is_repeatable,
        )
        if not self._never_waits:
            execution.start_deadline()
        try:
            existing = await self._store.reserve(reservation)
            if existing is not None and is_in_doubt(existing, mine):
                existing = await self._take_over(existing, reservation, execution, tool, arguments)
            if execution.may_join and existing is not None and existing.fingerprint == mine:
                again = partial(self._reserve_again, reservation, execution, tool, arguments)
                existing = await self._joins.wait(existing, execution, again)
            if not self._never_waits and existing is not None:
                call_foreign(_check_answer, existing)
        except trio.Cancelled:
            # The store may have inserted the entry before the cancel. Without a release it would count as running forever.
            if not self._takes_back:
                with grace(STORE_SECONDS):
                    await self._give_back(identity, execution)
            self._joins.ended(execution.id)  # another execution may have joined that entry
            raise
        except Exception as error:  # noqa: BLE001 - declared by a store, or from the boundary
            failure = _origin(error)
            if isinstance(failure, StoreFull):
                raise AgentError.standard(
                    "IDEMPOTENCY_CAPACITY",
                    "the store of request_ids is full, and what it holds may not be forgotten",
                    suggested_action="Call without a request_id if the call need not be safe to retry.",
                ) from None
            log_traceback(self._log, failure, "the idempotency store could not reserve a request_id")
            raise AgentError.standard(
                "STORE_ERROR",
                f"the idempotency store failed{_in_brackets(failure)}; the tool was not run",
                retry_after=1,
                details={"ran": False, **_reason(failure)},
            ) from failure
        return None if existing is None else judge(existing, mine)

    async def unsettled(self) -> list[Reservation]:
        """The running and interrupted entries of the store, newest first; none if the store cannot list entries.

        Raises:
            AgentError: ``STORE_ERROR``.
        """
        store = self._given
        if not isinstance(store, ListableStore):
            return []
        failure: BaseException | None = None
        try:
            with trio.move_on_after(STORE_SECONDS):
                found: list[Reservation] = []
                for state in (ReservationState.RUNNING, ReservationState.INTERRUPTED):
                    found += await await_foreign(call_foreign(store.entries, state=state, limit=MAX_LISTED))
                return found
        except Exception as error:  # noqa: BLE001 - declared by a store, or from the boundary
            failure = _origin(error)
            log_traceback(self._log, failure, "the idempotency store could not list what is in doubt")
        raise AgentError.standard(
            "STORE_ERROR",
            f"the idempotency store could not list what is in doubt{_in_brackets(failure)}",
            retry_after=1,
            details=_reason(failure),
        ) from failure

    async def _reserve_again(
        self, reservation: Reservation, execution: Execution, tool: CompiledTool, arguments: bytes
    ) -> Reservation | None:
        """Reserve after a wait for another attempt, with the current time as the start."""
        now = msgspec.structs.replace(reservation, started_at=time.time())
        existing = await self._store.reserve(now)
        if existing is not None and is_in_doubt(existing, now.fingerprint):
            existing = await self._take_over(existing, now, execution, tool, arguments)
        return existing

    async def _take_over(
        self, entry: Reservation, new: Reservation, execution: Execution, tool: CompiledTool, arguments: bytes
    ) -> Reservation | None:
        """Settle an entry in doubt, if possible, and reserve again."""
        if tool.spec.is_repeatable:
            # An ending would have released the id; a process that dies cannot.
            await self._store.release(entry.identity, entry.execution_id)
        elif tool.reconcile is not None:
            await self._reconcile(entry, execution, tool, arguments)
        return await self._store.reserve(new)

    async def _reconcile(self, entry: Reservation, execution: Execution, tool: CompiledTool, arguments: bytes) -> None:
        """Settle an entry in doubt by the tool's ``reconcile``; leave it if the outcome is unknown or already settled."""
        execution.start_deadline()
        answer = await ask(tool, execution.context(), arguments, entry, self._check_output)
        if answer is False:
            return
        if isinstance(answer, Outcome):
            settled = await self._store.complete(entry.identity, entry.execution_id, answer, time.time())
        else:
            settled = await self._store.release(entry.identity, entry.execution_id)
        if settled:
            self._sinks.record(_settled(entry, execution, tool.spec, answer if isinstance(answer, Outcome) else None))

    async def _give_back(self, identity: Identity, execution: Execution) -> None:
        """Release the identity if it was reserved; the tool has not run."""
        try:
            await self._store.release(identity, execution.id)
        except Exception as error:  # noqa: BLE001 - declared by a store, or from the boundary
            what = "the idempotency store could not release what %s may have reserved"
            log_traceback(self._log, _origin(error), what, execution.id)

    async def settle(self, identity: Identity, execution: Execution, spec: ToolSpec, ending: Ending) -> Ending:
        """Settle the identity after an ending; see `decide_settle`.

        Runs to its end, within `STORE_SECONDS`, even if the caller is cancelled.

        Returns:
            The ending to send: the same, or ``STORE_ERROR`` when a committed effect could not be recorded.
        """
        error = None if ending.error is None else ending.error.info
        left = Settle.COMPLETE
        if error is not None:
            left = decide_settle(
                spec,
                started=execution.started,
                error=error,
                cause=ending.cause,
                crashed=ending.crashed,
                gone=execution.gone,
            )
        step: Awaitable[bool]
        if left is Settle.COMPLETE:
            outcome = Outcome(execution_id=execution.id, data_json=ending.data_json, error=error)
            step = self._store.complete(identity, execution.id, outcome, time.time())
        elif left is Settle.INTERRUPT:
            step = self._store.interrupt(identity, execution.id, ending.cause, time.time())
            if self._metrics is not None:
                self._metrics.count_doubt()
        else:
            step = self._store.release(identity, execution.id)
        failure: BaseException | None = None
        try:
            if self._never_waits:
                await step
                return ending
            with grace(STORE_SECONDS) as limit:
                await step
        except Exception as error:  # noqa: BLE001 - declared by a store, or from the boundary
            failure = _origin(error)
            what = "the idempotency store could not record the end of %s (%s)"
            log_traceback(self._log, failure, what, execution.id, left.value)
        else:
            if not limit.cancelled_caught:
                return ending
            self._log.error("the idempotency store took over %g s to record the end of %s", STORE_SECONDS, execution.id)
        finally:
            self._joins.ended(execution.id)
        return ending if left is not Settle.COMPLETE or spec.is_repeatable else self._unrecorded(spec, ending, failure)

    def _unrecorded(self, spec: ToolSpec, ending: Ending, failure: BaseException | None) -> Ending:
        """The ending for a result that could not be recorded: ``STORE_ERROR``, with the result in its details."""
        details: dict[str, object] = {"ran": True, **_reason(failure)}
        if ending.error is not None:
            details["error"] = ending.error.info
        else:
            details["data"] = _plain(ending.data_json or b"null")
        told = AgentError(
            "STORE_ERROR",
            f"{spec.name} ran, but its result could not be recorded{_in_brackets(failure)};"
            " a retry with this request_id will not repeat it",
            "internal",
            suggested_action="Take the result from details; do not run the tool again.",
            details=details,
        )
        return Ending(error=told, exception=ending.exception)


class _GuardedStore:
    """A foreign store behind the error boundary; see `raise_foreign` for the exceptions of its methods."""

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        return await await_foreign(call_foreign(self._store.reserve, reservation))

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        return await await_foreign(call_foreign(self._store.complete, identity, execution_id, outcome, finished_at))

    async def release(self, identity: Identity, execution_id: str) -> bool:
        return await await_foreign(call_foreign(self._store.release, identity, execution_id))

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        return await await_foreign(call_foreign(self._store.interrupt, identity, execution_id, cause, finished_at))


class _TimedStore:
    """A store whose operations are timed."""

    def __init__(self, store: IdempotencyStore | _GuardedStore | _TimedStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        return await self._timed("reserve", self._store.reserve(reservation))

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        return await self._timed("complete", self._store.complete(identity, execution_id, outcome, finished_at))

    async def release(self, identity: Identity, execution_id: str) -> bool:
        return await self._timed("release", self._store.release(identity, execution_id))

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        return await self._timed("interrupt", self._store.interrupt(identity, execution_id, cause, finished_at))

    async def _timed(self, operation: str, step: Awaitable[T]) -> T:
        began = time.perf_counter()
        try:
            return await step
        finally:
            self._metrics.add_seconds(STORE, time.perf_counter() - began, operation)


def _plain(data: bytes) -> Any:
    """An output as plain data; as text if it is nested too deeply to decode."""
    try:
        return decode(data)
    except AgentError:
        return data.decode()


class _DamagedAnswerError(StoreError):
    """A store returned an answer that is not valid JSON."""

    reason = "corrupt"


def _check_answer(entry: Reservation) -> None:
    """Check that a stored output is JSON: every transport replays it unchanged.

    Raises:
        StoreError: The output is not JSON.
    """
    data = None if entry.outcome is None else entry.outcome.data_json
    if data is not None and not is_json(data):
        raise _DamagedAnswerError(f"the stored answer of {entry.execution_id} is damaged: it is not JSON")


def _origin(error: Exception) -> BaseException:
    return error.origin if isinstance(error, Fault) else error


def _reason(failure: BaseException | None) -> dict[str, str]:
    """The reason of a store's failure for callers: one word, if there is one. The text may hold paths of this machine."""
    return {"reason": failure.reason} if isinstance(failure, StoreError) else {}


def _in_brackets(failure: BaseException | None) -> str:
    return f" ({failure.reason})" if isinstance(failure, StoreError) else ""


def _settled(entry: Reservation, execution: Execution, spec: ToolSpec, outcome: Outcome | None) -> ExecutionRecord:
    """The record of a settlement by ``reconcile``; `outcome` is None if the attempt had no effect."""
    identity = entry.identity
    return ExecutionRecord(
        execution_id=entry.execution_id,
        request_id=identity.request_id,
        principal=identity.principal,
        session=identity.session,
        transport=execution.caller.context.transport,
        tool=entry.tool,
        effect=spec.effect,
        status=ExecutionStatus.CANCELLED if outcome is None else status_of(outcome.error),
        error_code=None if outcome is None or outcome.error is None else outcome.error.code,
        cause=entry.cause,
        duration_ms=0.0,
        waited_ms=0.0,
        started_at=execution.started_at,
        replayed=False,
        settled="reconcile",
    )
