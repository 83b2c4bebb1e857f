"""The parts of an outcome."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from .error import ErrorCategory, ErrorInfo


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
