"""The outcome of one execution, as its caller receives it."""

from __future__ import annotations

from typing import Any

import msgspec

from .error import ErrorInfo
from .errors import AgentError
from .result import ExecutionStatus, NextAction, status_of


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
