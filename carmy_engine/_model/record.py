"""The audit record of one execution. Never arguments, never outputs."""

from __future__ import annotations

from .cause import Cause
from .effect import Effect
from .result import ExecutionStatus
from .run import CallIds


class ExecutionRecord(CallIds, frozen=True, gc=False):
    """The audit record of one execution or refusal, for sinks.

    A durable store may add the record of an execution that the end of its process cut off: ``cancelled`` with
    ``EXECUTION_UNCERTAIN``, without the values that were lost.

    Attributes:
        execution_id: The id in the answer (of the first run, on a replay).
        request_id: The caller's idempotency identity.
        principal: The caller.
        session: The caller's session.
        transport: The transport of the call, ``in_process`` for direct calls; empty if unknown.
        tool: The requested name; empty for a request that a transport refused before it read a name.
        effect: The tool's effect; None when there is no such tool, or if unknown.
        status: The status of the execution.
        error_code: None when it completed.
        cause: The cause of the cancellation, None when it was not cancelled.
        duration_ms: From the reservation to the end, waiting included.
        waited_ms: Of that, the wait for a turn or a thread.
        started_at: Unix seconds of the call's arrival.
        replayed: The answer was a stored one.
        settled: The source of a later settlement, ``operator`` or ``reconcile``: `status` is then the settled status, and
            ``cancelled`` means that the execution was released to run again. None for the record of a call.
        confirmed_by: The principal of the confirmation that approved this call; see `ConfirmationEntry.answered_by`.
        thread_id: From the caller's run, if there is one; so are the next four.
        run_id: The run.
        node_path: The position in the run.
        attempt: The number of the attempt at the node.
        caller_id: The calling agent or node.
        call_id: The model's own id of the call.
    """

    execution_id: str
    request_id: str | None
    principal: str | None
    session: str | None
    transport: str
    tool: str
    effect: Effect | None
    status: ExecutionStatus
    error_code: str | None
    cause: Cause | None
    duration_ms: float
    waited_ms: float
    started_at: float
    replayed: bool
    settled: str | None = None
    confirmed_by: str | None = None
