"""One execution: its caller, its phase and its cancel scope. And the table of all that run or have ended recently."""

from __future__ import annotations

import enum
import operator
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import trio

from .._model.cause import Cause
from .._model.client_features import NO_CLIENT, ToolClient
from .._model.context import SILENT, AgentContext, Cancellation, Progress
from .._model.errors import AgentError
from .._model.protocols import Confirm
from .._model.result import ExecutionResult
from .._model.run import CallIds
from .shares import share_of
from .trio_internals import is_cancelled, start_deadline

_BATCH = 256
"""Ids generated at once: one at a time takes three times as long."""

_LAYOUT = b"exec_########-####-4###-@###-############ "
"""``#`` stands for a random digit, ``@`` for one of 8, 9, a and b."""

_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)

_ready: list[str] = []
os.register_at_fork(after_in_child=_ready.clear)  # otherwise parent and child would use the same ids


def new_execution_id() -> str:
    """``exec_`` and a random UUID (version 4, RFC 9562): 41 characters, not guessable, safe in threads and after a fork."""
    try:
        return _ready.pop()
    except IndexError:
        first, *others = _batch()
        _ready.extend(others)
        return first


def _batch() -> list[str]:
    digits = os.urandom(16 * _BATCH).hex().encode()
    text = bytearray(_LAYOUT * _BATCH)
    drawn = 0
    for place, kind in enumerate(_LAYOUT):
        if kind in b"#@":  # one column for all ids
            column = digits[drawn::32]
            text[place :: len(_LAYOUT)] = column if kind == ord("#") else column.translate(_VARIANT)
            drawn += 1
    return text.decode().split()


class Phase(enum.Enum):
    """Phase of an execution."""

    WAITING = "waiting"
    """Nothing of the tool has run."""
    RUNNING = "running"
    """The tool has begun, so effects may exist."""


class Abandonable(Protocol):
    """The run of a tool outside the task of trio that waits for it.

    Attributes:
        abandoned: The task has stopped waiting, and the run goes on.
        ended: Set once an abandoned run has ended.
    """

    abandoned: bool
    ended: trio.Event


class Usable(Protocol):
    """Something that one execution may use, once."""

    async def use(self) -> None:
        """Use it up.

        Raises:
            AgentError: It is used up, or no longer counts.
        """
        ...


class Listener(Protocol):
    """Receiver of the events of one execution. `tool_started` may be called in a worker thread."""

    def execution_started(self, execution: Execution) -> None:
        """Before anything else."""
        ...

    def tool_waiting(self, execution: Execution) -> None:
        """The call waits for a turn or a thread."""
        ...

    def tool_started(self, execution: Execution) -> None:
        """The tool begins. May be called in a worker thread."""
        ...

    def tool_completed(self, execution: Execution, *, ok: bool) -> None:
        """The tool has ended."""
        ...

    def execution_completed(self, execution: Execution, result: ExecutionResult) -> None:
        """The last event."""
        ...

    def progress(self, execution: Execution) -> Progress:
        """The channel for the tool's own reports."""
        ...


_ids_of = operator.attrgetter(*CallIds.__struct_fields__)
_NO_IDS = (None,) * len(CallIds.__struct_fields__)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and options that are bound to an executor.

    Attributes:
        context: The trusted context.
        gone: The cause when the caller's own cancel scope is cancelled, or a function that returns it.
        only: Names of the tools in its view of the engine; None for all.
        confirm: Asks a person to confirm a call; None if no person is available.
        client: The client behind the calls, for tools.
    """

    context: AgentContext
    gone: Cause | Callable[[], Cause] = Cause.CALLER
    only: frozenset[str] | None = None
    confirm: Confirm | None = None
    client: ToolClient = NO_CLIENT
    in_run: bool = False
    """The context names a run. Derived."""

    def __post_init__(self) -> None:
        if _ids_of(self.context) != _NO_IDS:
            msgspec.structs.force_setattr(self, "in_run", True)


class Execution(msgspec.Struct, eq=False):
    """One execution.

    Attributes:
        id: The execution id.
        tool: The requested name.
        request_id: The caller's idempotency identity.
        caller: The caller and its options.
        listener: Receiver of its events; None for none.
        now: The engine's clock, trio's time; callable in any thread.
        returned: Called with the return value of the tool, for callers in process.
        may_join: Wait for a running attempt with the same request_id, instead of a refusal.
        joined: Id of the execution whose end it waits for; None if it waits for none.
        started_at: Unix seconds of its arrival.
        timeout: Its limit, in seconds.
        began: Start of the clock of the deadline; None before the reservation.
        deadline: Time of the timeout; infinite before the reservation.
        waited: Seconds spent waiting for a turn, a thread, or the end of another attempt.
        scope: Cancel scope of the execution; None before the reservation.
        may_have_waited: The deadline is registered, since something was about to block.
        phase: See `Phase`.
        gone: The caller's own scope was cancelled, so the caller takes no answer.
        thread: Its worker thread, or its task of asyncio, if any.
        ended: The tool has ended; late reports are dropped.
        result: Its result, kept for lookups.
        output_bytes: The size of its output.
        granted: A permission that a person has granted to this execution alone.
        approval: The person's approval outside the call, to be used when the tool is about to run.
        confirmed_by: The principal of the approval that was used.
    """

    id: str
    tool: str
    request_id: str | None
    caller: Caller
    listener: Listener | None
    now: Callable[[], float]
    returned: Callable[[Any], None] | None = None
    may_join: bool = False
    joined: str | None = None
    started_at: float = msgspec.field(default_factory=time.time)
    timeout: float = float("inf")
    began: float | None = None
    deadline: float = float("inf")
    waited: float = 0.0
    scope: trio.CancelScope | None = None
    may_have_waited: bool = False
    phase: Phase = Phase.WAITING
    gone: bool = False
    thread: Abandonable | None = None
    ended: bool = False
    result: ExecutionResult | None = None
    output_bytes: int = 0
    granted: str | None = None
    approval: Usable | None = None
    confirmed_by: str | None = None
    _waits_since: float | None = None
    _cancellation: Cancellation | None = None

    @property
    def is_waiting(self) -> bool:
        """True while it waits for a turn, a thread or another execution."""
        return self._waits_since is not None

    @property
    def cancellation(self) -> Cancellation:
        """Cancellation state for the tool; holds the cause. Created on first use."""
        if self._cancellation is None:
            self._cancellation = Cancellation()
        return self._cancellation

    @property
    def started(self) -> bool:
        """True once the tool has begun to run, so effects may exist. An abandoned thread counts as started."""
        return self.phase is Phase.RUNNING or (self.thread is not None and self.thread.abandoned)

    def context(self) -> AgentContext:
        """The context of the tool: the caller's context with the fields of this execution."""
        bound = self.caller.context
        return msgspec.structs.replace(
            bound,
            permissions=bound.permissions if self.granted is None else bound.permissions | {self.granted},
            call_id=self.id if bound.call_id is None else bound.call_id,
            execution_id=self.id,
            request_id=self.request_id,
            cancellation=self.cancellation,
            progress=SILENT if self.listener is None else self.listener.progress(self),
            client=self.caller.client,
            deadline=self.deadline,
            clock=self.now,
        )

    def begin(self, now: float) -> None:
        """Start the clock of the deadline."""
        self.began = now
        self.deadline = now + self.timeout

    def start_deadline(self) -> None:
        """Register the deadline of the scope, before anything that may block."""
        self.may_have_waited = True
        if self.scope is not None:
            start_deadline(self.scope)

    @property
    def duration_ms(self) -> float:
        """Since the reservation, waiting included; 0 before it."""
        return 0.0 if self.began is None else (self.now() - self.began) * 1000

    def mark_waiting(self) -> None:
        """Record that it waits for a turn or a thread."""
        if self._waits_since is None:
            self._waits_since = self.now() - self.waited
            if self.listener is not None:
                self.listener.tool_waiting(self)

    def mark_joined(self, holder: str) -> None:
        """Record that it waits for the end of another execution. No event is sent, since the wait may end in a replay."""
        self.joined = holder
        if self._waits_since is None:
            self._waits_since = self.now() - self.waited

    def mark_started(self) -> None:
        """Record that the tool begins. Also called in a worker thread."""
        self.stops_waiting()
        self.phase = Phase.RUNNING
        if self.listener is not None:
            self.listener.tool_started(self)

    def stops_waiting(self) -> None:
        """Record the end of a wait, with or without success."""
        # Read once: a thread that is abandoned as it begins comes here at the same time as its end.
        since = self._waits_since
        if since is not None:
            self.waited = self.now() - since
            self._waits_since = None

    def cancel(self, cause: Cause) -> bool:
        """Record the cause, then cancel. False if the tool has ended, is already cancelled, or has no scope yet."""
        if self.scope is None or self.ended or self.cancellation.cause is not None:
            return False
        self.cancellation._set(cause)  # noqa: SLF001 - the engine's side of the handle
        self.scope.cancel()
        return True

    def is_cut_off(self) -> bool:
        """True once its scope is cancelled, by itself or from further out. The cause is recorded then."""
        if self.cancellation.cause is None and self.scope is not None and is_cancelled(self.scope):
            self.notice_cancel()
        return self.cancellation.cause is not None

    def notice_cancel(self) -> None:
        """Record the cause of a ``Cancelled``. Without an earlier cause, it is the deadline or the caller's own scope."""
        if self.cancellation.cause is None:
            self.gone = self.gone or self.now() < self.deadline
            means = self.caller.gone if self.gone else Cause.DEADLINE
            self.cancellation._set(means if isinstance(means, Cause) else means())  # noqa: SLF001


OVERLOAD_RETRY_SECONDS = 1
"""``retry_after`` of ``OVERLOADED``, when the engine is full."""

SHUTDOWN_RETRY_SECONDS = 5
"""``retry_after`` of ``SHUTTING_DOWN``: about the duration of a restart."""


class ExecutionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of an execution, looked up by its id.

    Attributes:
        execution_id: The id.
        tool: The tool's name.
        state: ``running`` or ``finished``.
        started_at: Unix seconds.
        request_id: Its idempotency identity.
        principal: Principal of the caller.
        session: Session of the caller.
        transport: Transport of the request.
        result: Result of a finished execution; None if the caller had gone before the end.
    """

    execution_id: str
    tool: str
    state: str
    started_at: float
    request_id: str | None
    principal: str | None
    session: str | None
    transport: str
    result: ExecutionResult | None = None


class Inflight:
    """Table of running executions; admits new ones up to a limit.

    Args:
        max_executions: Running executions.
        max_recent: Ended executions that can still be looked up.
        max_recent_bytes: Of the outputs of these executions.
        per_principal: Running executions of one share (`share_of`); None for no limit.
    """

    def __init__(
        self, max_executions: int, max_recent: int, max_recent_bytes: int, per_principal: int | None = None
    ) -> None:
        self._max = max_executions
        self._per_principal = per_principal
        self._shares: dict[tuple[str, str], int] = {}
        """Running executions by share, if there is a limit."""
        self._max_recent = max_recent
        self._max_recent_bytes = max_recent_bytes
        self._running: dict[str, Execution] = {}
        self._recent: dict[str, Execution] = {}
        self._oldest: deque[Execution] = deque()
        """The recent executions in the order of their ends: finding the first entry of a dict is slow."""
        self._recent_bytes = 0
        self._idle: trio.Event | None = None
        self.closing = False
        """New executions are refused as ``SHUTTING_DOWN``."""

    def __len__(self) -> int:
        return len(self._running)

    def running(self) -> list[Execution]:
        """A snapshot."""
        return list(self._running.values())

    def runs(self, execution_id: str) -> bool:
        """True if the execution is counted as running."""
        return execution_id in self._running

    def recent(self) -> list[Execution]:
        """A snapshot of the recently ended executions."""
        return list(self._recent.values())

    def admit(self, execution: Execution) -> None:
        """Count an execution as running.

        Raises:
            AgentError: ``SHUTTING_DOWN``, ``RATE_LIMITED`` or ``OVERLOADED``; nothing was counted.
        """
        if self.closing:
            raise AgentError.standard(
                "SHUTTING_DOWN",
                "the server is shutting down; this call was never started",
                retry_after=SHUTDOWN_RETRY_SECONDS,
                details={"phase": "waiting"},
            )
        share, running = None, 0
        if self._per_principal is not None:
            share = share_of(execution.caller.context)
            running = self._shares.get(share, 0)
            if running >= self._per_principal:
                raise AgentError.standard(
                    "RATE_LIMITED",
                    f"{running} executions of this caller are running, which is the limit (limits.per_principal_executions)",
                    retry_after=OVERLOAD_RETRY_SECONDS,
                )
        if len(self._running) >= self._max:
            raise AgentError.standard(
                "OVERLOADED",
                f"{self._max} executions are running, which is the limit (max_executions)",
                retry_after=OVERLOAD_RETRY_SECONDS,
            )
        if share is not None:
            self._shares[share] = running + 1
        self._running[execution.id] = execution

    def dismiss(self, execution: Execution) -> None:
        """Stop counting an execution as running."""
        del self._running[execution.id]
        if self._per_principal is not None:
            share = share_of(execution.caller.context)
            self._shares[share] -= 1
            if not self._shares[share]:
                del self._shares[share]
        if not self._running and self._idle is not None:
            self._idle.set()
            self._idle = None

    def remember(self, execution: Execution) -> None:
        """Keep an ended execution with its result for `lookup`. Beyond the limits, the oldest are dropped."""
        recent = self._recent
        recent[execution.id] = execution
        self._oldest.append(execution)
        self._recent_bytes += execution.output_bytes
        while len(recent) > self._max_recent or self._recent_bytes > self._max_recent_bytes:
            forgotten = self._oldest.popleft()
            del recent[forgotten.id]
            self._recent_bytes -= forgotten.output_bytes

    def cancel(self, execution_id: str, cause: Cause, owner: AgentContext | None) -> bool:
        """Cancel an execution. False if it is not running, is already ending, or has another owner (None owns all)."""
        execution = self._running.get(execution_id)
        return execution is not None and _owns(owner, execution) and execution.cancel(cause)

    def running_for(self, caller: Caller) -> tuple[str, ...]:
        """Ids of the running executions of this `Caller` object; an equal object does not match."""
        return tuple(execution.id for execution in self._running.values() if execution.caller is caller)

    def lookup(self, execution_id: str, owner: AgentContext | None) -> ExecutionSummary | None:
        """Summary of a running or recently ended execution; None if it is unknown or has another owner."""
        running = self._running.get(execution_id)
        execution = self._recent.get(execution_id) if running is None else running
        if execution is None or not _owns(owner, execution):
            return None
        context = execution.caller.context
        return ExecutionSummary(
            execution_id=execution.id,
            tool=execution.tool,
            state="finished" if running is None else "running",
            started_at=execution.started_at,
            request_id=execution.request_id,
            principal=context.principal,
            session=context.session,
            transport=context.transport,
            result=execution.result,
        )

    async def wait_idle(self) -> None:
        """Wait until nothing runs."""
        while self._running:
            if self._idle is None:
                self._idle = trio.Event()
            await self._idle.wait()


def _owns(owner: AgentContext | None, execution: Execution) -> bool:
    """True for the same principal; anonymous callers also need the same session."""
    if owner is None:
        return True
    context = execution.caller.context
    return owner.principal == context.principal and (owner.principal is not None or owner.session == context.session)
