"""The audit record of one execution. Never arguments, never outputs."""

from __future__ import annotations

import msgspec

from .cause import Cause
from .effect import Effect
from .result import ExecutionStatus


class ExecutionRecord(msgspec.Struct, frozen=True, gc=False):
    """One execution, or one refusal, as sinks receive it.

    A store that outlives a process may add that of an execution that the process did not live to end: ``cancelled`` with
    ``EXECUTION_UNCERTAIN``, and without what nobody knows any more.

    Attributes:
        execution_id: The id of the answer that was given (of the first run, on a replay).
        request_id: The caller's idempotency identity.
        principal: Who called.
        session: In which session.
        transport: How the call arrived, ``in_process`` for direct calls; empty when nobody knows.
        tool: The name that was asked for; empty for a request that a transport refused before any was known.
        effect: The tool's effect, None when there is no such tool, or nobody knows.
        status: How it ended.
        error_code: None when it completed.
        cause: Why it was cancelled, None when it was not.
        duration_ms: From the reservation to the end, waiting included.
        waited_ms: Of that, the wait for a turn or a thread.
        started_at: Unix seconds of the call's arrival.
        replayed: The answer was a stored one.
        settled: By what an execution in doubt was settled afterwards, ``operator`` or ``reconcile``: `status` is then as what, and
            ``cancelled`` means that it was released to run again. None for the record of a call.
        thread_id: From the caller's run, when it was given; so are the next four.
        run_id: The run.
        node_path: Where in the run.
        attempt: Which attempt of the node.
        caller_id: Which agent or node called.
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
    thread_id: str | None = None
    run_id: str | None = None
    node_path: str | None = None
    attempt: int | None = None
    caller_id: str | None = None
    call_id: str | None = None
