"""The events of one execution, in order.

``execution.started`` → [``tool.waiting``] → ``tool.started`` → [``tool.progress``, ``tool.log`` …] → ``tool.completed`` →
``execution.completed``. The last event is sent exactly once, and no event follows it. Replays and refusals skip
``tool.*``. Consumers must ignore unknown kinds.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .client_features import LogLevel
from .result import ExecutionResult


class ExecutionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events.

    Attributes:
        seq: Position in the stream, from 0, without gaps.
        execution_id: The execution; on a replay, the started event has the new id and the completed one the original.
        tool: The tool's name.
    """

    kind: ClassVar[str]
    seq: int
    execution_id: str
    tool: str


class ExecutionStarted(ExecutionEvent, frozen=True, kw_only=True):
    """Always the first event."""

    kind: ClassVar[str] = "execution.started"


class ToolWaiting(ExecutionEvent, frozen=True, kw_only=True):
    """The call waits for its turn or for a thread. Omitted when there is no wait."""

    kind: ClassVar[str] = "tool.waiting"


class ToolStarted(ExecutionEvent, frozen=True, kw_only=True):
    """The tool starts to run."""

    kind: ClassVar[str] = "tool.started"


class ToolProgress(ExecutionEvent, frozen=True, kw_only=True):
    """The tool reported its progress, or sent a part of its result (`partial_json`, JSON bytes)."""

    kind: ClassVar[str] = "tool.progress"
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    partial_json: bytes | None = None

    @property
    def partial(self) -> Any:
        """The decoded part of the result; None for a progress report."""
        return None if self.partial_json is None else msgspec.json.decode(self.partial_json)


class ToolLog(ExecutionEvent, frozen=True, kw_only=True):
    """The tool logged a message; see `AgentContext.log`."""

    kind: ClassVar[str] = "tool.log"
    level: LogLevel
    message: str


class ToolCompleted(ExecutionEvent, frozen=True, kw_only=True):
    """The tool ended, with or without success."""

    kind: ClassVar[str] = "tool.completed"
    duration_ms: float
    waited_ms: float
    ok: bool


class ExecutionCompleted(ExecutionEvent, frozen=True, kw_only=True):
    """Always the last event; carries the result."""

    kind: ClassVar[str] = "execution.completed"
    result: ExecutionResult
