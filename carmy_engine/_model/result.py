"""The outcome of an execution: for its caller, and for the store."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from .error_info import ErrorCategory, ErrorInfo
from .errors import AgentError


class ExecutionStatus(enum.StrEnum):
    """The status of an ended execution."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


_STATUS_OF_CATEGORY = {
    ErrorCategory.CANCELLED: ExecutionStatus.CANCELLED,
    ErrorCategory.TIMEOUT: ExecutionStatus.TIMED_OUT,
}


def status_of(error: ErrorInfo | None) -> ExecutionStatus:
    """The status for an error; None means success."""
    if error is None:
        return ExecutionStatus.COMPLETED
    return _STATUS_OF_CATEGORY.get(error.category, ExecutionStatus.FAILED)


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The stored answer of an execution, for replays.

    Attributes:
        execution_id: The execution that produced it.
        data_json: The output as JSON, None when it failed.
        error: The error, None when it succeeded.
    """

    execution_id: str
    data_json: bytes | None = None
    error: ErrorInfo | None = None


class NextAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A suggested call after a result. Absent arguments mean the same as in this call.

    Attributes:
        tool: The tool to call.
        reason: The reason, in one sentence.
        arguments: Other arguments than those of this call.
        after_ms: Milliseconds to wait first.
    """

    tool: str
    reason: str
    arguments: dict[str, Any] | None = None
    after_ms: int | None = None


class ExecutionResult(msgspec.Struct, kw_only=True, eq=False):
    """The outcome of one execution, as its caller receives it. Treat it as read-only.

    Attributes:
        execution_id: The execution that produced the answer (of the first run, on a replay).
        data_json: The output as JSON bytes; None unless it completed.
        error: The error; None if it completed.
        replayed: The tool did not run: this is the stored answer to an earlier request with the same request_id.
        exception: In process only: the exception of the tool.
        duration_ms: From the reservation to the end, waiting included. 0 for refusals and replays.
        cacheable: The caller may reuse this result.
        next_actions: Suggested next calls.
    """

    execution_id: str
    data_json: bytes | None = None
    error: ErrorInfo | None = None
    replayed: bool = False
    exception: BaseException | None = None
    duration_ms: float = 0.0
    cacheable: bool = False
    next_actions: tuple[NextAction, ...] = ()
    _data: Any = msgspec.UNSET

    @property
    def status(self) -> ExecutionStatus:
        """The status of the execution."""
        return status_of(self.error)

    @property
    def data(self) -> Any:
        """The output as JSON-shaped Python data; None when there is none. Decoded at the first use."""
        if self._data is msgspec.UNSET:
            self._data = None if self.data_json is None else msgspec.json.decode(self.data_json)
        return self._data

    def unwrap(self) -> Any:
        """Return `data`, or raise the `AgentError` that the execution ended with."""
        if self.error is None:
            return self.data
        raise AgentError.of(self.error) from self.exception

    def without_exception(self) -> ExecutionResult:
        """The same result for storage: an exception keeps the frames of its traceback alive, with all their objects."""
        if self.exception is None:
            return self
        return msgspec.structs.replace(self, exception=None)

    def __repr__(self) -> str:
        outcome = self.error.code if self.error is not None else "ok"
        replayed = ", replayed" if self.replayed else ""
        return f"<ExecutionResult {self.execution_id} {self.status.value}: {outcome}{replayed}>"
