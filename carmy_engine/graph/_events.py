"""The events of a run, in order.

``run.started`` → [``node.started`` → [``tool.started`` … ``tool.completed`` …] → ``node.completed`` → ``checkpoint.saved`` …] →
``run.completed``. The last event is sent exactly once. The events of branches are mixed. Consumers must ignore unknown kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from .._model.checkpoint import RunStatus
from .._model.events import ExecutionEvent

if TYPE_CHECKING:
    from ._result import RunResult


class RunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events of a run.

    Attributes:
        seq: Position in the stream, from 0, without gaps.
        run_id: The run.
    """

    kind: ClassVar[str]
    seq: int
    run_id: str


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """Always the first event. `resumed` is true if the run goes on from a checkpoint."""

    kind: ClassVar[str] = "run.started"
    graph: str
    thread_id: str
    resumed: bool


class NodeStarted(RunEvent, frozen=True, kw_only=True):
    """An attempt at a node starts."""

    kind: ClassVar[str] = "node.started"
    node: str
    attempt: int


class NodeCompleted(RunEvent, frozen=True, kw_only=True):
    """An attempt at a node has ended.

    Attributes:
        ok: It returned a state.
        code: The error code of a failure; None also for a node that has asked or is in doubt.
        retry_in: Seconds before the next attempt; None if there is none.
    """

    kind: ClassVar[str] = "node.completed"
    node: str
    attempt: int
    duration_ms: float
    ok: bool
    code: str | None = None
    retry_in: float | None = None


class NodeToolEvent(RunEvent, frozen=True, kw_only=True):
    """An event ``tool.*`` of a tool that a node has called. A replayed call has none.

    Attributes:
        node: The path of the node.
        event: The event of the execution.
    """

    node: str
    event: ExecutionEvent

    @property
    def kind(self) -> str:  # type: ignore[override] # the kind of the event inside
        """Kind of the event inside, such as ``tool.started``."""
        return self.event.kind


class CheckpointSaved(RunEvent, frozen=True, kw_only=True):
    """A checkpoint was saved."""

    kind: ClassVar[str] = "checkpoint.saved"
    number: int
    status: RunStatus


class RunCompleted(RunEvent, frozen=True, kw_only=True):
    """Always the last event; carries the result."""

    kind: ClassVar[str] = "run.completed"
    result: RunResult[Any]
