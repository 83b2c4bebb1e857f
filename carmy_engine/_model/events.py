"""What happens during one execution, in the order in which it happens.

``execution.started`` → [``tool.waiting``] → ``tool.started`` → [``tool.progress`` …] → ``tool.completed`` →
``execution.completed``. The last one always comes, exactly once, and nothing follows it. Replays and refusals skip
``tool.*``. Consumers must ignore kinds they do not know.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .execution_result import ExecutionResult


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
    """The call waits for its turn or for a thread. Omitted when it need not."""

    kind: ClassVar[str] = "tool.waiting"


class ToolStarted(ExecutionEvent, frozen=True, kw_only=True):
    """The tool begins to run."""

    kind: ClassVar[str] = "tool.started"


class ToolProgress(ExecutionEvent, frozen=True, kw_only=True):
    """The tool reported how far it has come, or sent a part of its result (`partial_json`, JSON bytes)."""

    kind: ClassVar[str] = "tool.progress"
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    partial_json: bytes | None = None

    @property
    def partial(self) -> Any:
        """The part of the result, decoded; None when this is a report."""
        return None if self.partial_json is None else msgspec.json.decode(self.partial_json)


class ToolCompleted(ExecutionEvent, frozen=True, kw_only=True):
    """The tool ended, one way or another."""

    kind: ClassVar[str] = "tool.completed"
    duration_ms: float
    waited_ms: float
    ok: bool


class ExecutionCompleted(ExecutionEvent, frozen=True, kw_only=True):
    """Always the last event; carries the result."""

    kind: ClassVar[str] = "execution.completed"
    result: ExecutionResult
