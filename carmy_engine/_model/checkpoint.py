"""Checkpoints: the saved positions of the runs of a graph."""

from __future__ import annotations

import enum

import msgspec


class RunStatus(enum.StrEnum):
    """The status of a run."""

    RUNNING = "running"
    """It goes on, or its process has died: `resume` continues it."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    """A node has asked a question: `resume` with an answer continues it."""
    IN_DOUBT = "in_doubt"
    """The outcome of a tool call is not known: once it is settled, `resume` continues the run."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a run after a step.

    Attributes:
        graph: The graph's name.
        thread_id: The thread: the runs of one conversation, order or job.
        number: Position in the thread, from 0, without gaps.
        run_id: The run.
        status: The status of the run.
        node: The path of the node that ended with this step; None at the start and the end of a run.
        saved_at: Unix seconds.
        document: The position, as JSON. Only the graph reads it.
    """

    graph: str
    thread_id: str
    number: int
    run_id: str
    status: RunStatus
    node: str | None
    saved_at: float
    document: bytes
