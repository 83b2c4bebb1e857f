"""State of one running execution: its caller, its phase and its cancel scope. Private to the engine."""

from __future__ import annotations

import enum
import operator
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import trio

from .._model.cause import Cause
from .._model.client_features import NO_CLIENT, ToolClient
from .._model.context import SILENT, AgentContext, Cancellation, Progress
from .._model.execution_result import ExecutionResult
from .._model.protocols import Confirm
from .threads import ThreadRun
from .trio_internals import is_cancelled, start_deadline


class Phase(enum.Enum):
    """Phase of an execution."""

    WAITING = "waiting"
    """Nothing of the tool has run."""
    RUNNING = "running"
    """The tool has begun, so effects may exist."""


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


RUN_FIELDS = ("thread_id", "run_id", "node_path", "attempt", "caller_id", "call_id")
"""Fields of the caller's run, in a context and in a record."""

_run_of = operator.attrgetter(*RUN_FIELDS)
_NO_RUN = (None,) * len(RUN_FIELDS)


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
        if _run_of(self.context) != _NO_RUN:
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
        armed: The deadline is registered: the execution may have waited.
        phase: See `Phase`.
        gone: The caller's own scope was cancelled, so the caller takes no answer.
        thread: Its worker thread, if any.
        ended: The tool has ended; late reports are dropped.
        result: Its result, kept for lookups.
        output_bytes: The size of its output.
        granted: A permission that a person has granted to this execution alone.
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
    armed: bool = False
    phase: Phase = Phase.WAITING
    gone: bool = False
    thread: ThreadRun | None = None
    ended: bool = False
    result: ExecutionResult | None = None
    output_bytes: int = 0
    granted: str | None = None
    _waits_since: float | None = None
    _cancellation: Cancellation | None = None

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
        return AgentContext(
            principal=bound.principal,
            session=bound.session,
            permissions=bound.permissions if self.granted is None else bound.permissions | {self.granted},
            metadata=bound.metadata,
            transport=bound.transport,
            thread_id=bound.thread_id,
            run_id=bound.run_id,
            node_path=bound.node_path,
            attempt=bound.attempt,
            caller_id=bound.caller_id,
            call_id=self.id if bound.call_id is None else bound.call_id,
            services=bound.services,
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
        self.armed = True
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
