"""The history of a thread: its checkpoints, newest first."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from .._model.checkpoint import RunStatus
from .._model.error_info import ErrorInfo
from .._model.protocols import CheckpointStore
from ._position import Doubt, Question, decode
from ._store_calls import store_value

S = TypeVar("S")


class HistoryEntry(msgspec.Struct, Generic[S], frozen=True, kw_only=True, eq=False):
    """One checkpoint of a thread.

    Attributes:
        number: Position in the thread.
        run_id: The run.
        status: Of the run at that time.
        node: The node that had ended; None at the start and the end of a run.
        saved_at: Unix seconds.
        next: The nodes that were next.
        state: The state; before a fan-out that had not ended.
        questions: Those without an answer.
        doubts: The calls with an unknown outcome.
        error: The error that the run ended with.
    """

    number: int
    run_id: str
    status: RunStatus
    node: str | None
    saved_at: float
    next: tuple[str, ...]
    state: S
    questions: tuple[Question, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    error: ErrorInfo | None = None


async def read_history(
    store: CheckpointStore, graph: str, thread_id: str, *, limit: int = 100
) -> list[HistoryEntry[msgspec.Raw]]:
    """The newest checkpoints of a thread in a store, newest first; none for an unknown thread.

    It needs neither the graph nor an engine. States are the JSON that was saved, whatever version of the graph saved it.

    Args:
        store: The store.
        graph: The name of the graph.
        thread_id: The thread.
        limit: At most so many.

    Raises:
        AgentError: ``STORE_ERROR``.
    """
    entries: list[HistoryEntry[msgspec.Raw]] = []
    for checkpoint in await store_value(store.checkpoints, graph, thread_id, limit=limit):
        position = decode(checkpoint.document)
        entries.append(
            HistoryEntry(
                number=checkpoint.number,
                run_id=checkpoint.run_id,
                status=checkpoint.status,
                node=checkpoint.node,
                saved_at=checkpoint.saved_at,
                next=tuple(each.node for each in position.cursor.active() if each.node is not None),
                state=position.cursor.state,
                questions=tuple(position.questions.values()),
                doubts=tuple(position.doubts.values()),
                error=position.error,
            )
        )
    return entries
