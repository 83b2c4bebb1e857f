"""Checkpoints of graphs as rows, in the transactions of the entries."""

from __future__ import annotations

from ..._model.checkpoint import Checkpoint, RunStatus
from ._connection import Connection
from ._limits import SqliteLimits

THREADS_AT_ONCE = 20
"""Ended threads past their retention that one transaction drops, each with up to ``max_checkpoints`` rows."""

_COLUMNS = "graph, thread_id, number, run_id, status, node, saved_at, document"
_NEWEST = f"SELECT {_COLUMNS} FROM checkpoints WHERE graph = ? AND thread_id = ? ORDER BY number DESC LIMIT ?"  # noqa: S608 - a constant
_ADD = f"INSERT INTO checkpoints ({_COLUMNS}, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant
_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT})


class Checkpoints:
    """The checkpoints, for the length of one transaction.

    Args:
        connection: Inside a transaction that may write.
        limits: How many checkpoints of a thread are kept.
        oldest: Unix seconds: threads whose last run ended before are dropped.
    """

    def __init__(self, connection: Connection, limits: SqliteLimits, oldest: float) -> None:
        self._connection = connection
        self._limits = limits
        self._oldest = oldest

    def save(self, checkpoint: Checkpoint) -> bool:
        """See `CheckpointStore.save_checkpoint`."""
        thread = checkpoint.graph, checkpoint.thread_id
        run = self._connection.run
        row = self._connection.row("SELECT max(number) FROM checkpoints WHERE graph = ? AND thread_id = ?", (*thread,))
        if row is not None and row[0] is not None and row[0] >= checkpoint.number:
            return False
        run(
            "UPDATE checkpoints SET ended_at = NULL WHERE graph = ? AND thread_id = ? AND ended_at IS NOT NULL",
            (*thread,),
        )
        run(
            "DELETE FROM checkpoints WHERE graph = ? AND thread_id = ? AND number <= ?",
            (*thread, checkpoint.number - self._limits.max_checkpoints),
        )
        run(
            _ADD,
            (
                *thread,
                checkpoint.number,
                checkpoint.run_id,
                checkpoint.status.value,
                checkpoint.node,
                checkpoint.saved_at,
                checkpoint.document,
                checkpoint.saved_at if checkpoint.status in _ENDED else None,
            ),
        )
        for graph, thread_id in self._connection.rows(
            "SELECT graph, thread_id FROM checkpoints WHERE ended_at <= ? LIMIT ?", (self._oldest, THREADS_AT_ONCE)
        ):
            if (graph, thread_id) != thread:
                run("DELETE FROM checkpoints WHERE graph = ? AND thread_id = ?", (graph, thread_id))
        return True

    def newest(self, graph: str, thread_id: str, limit: int) -> list[Checkpoint]:
        """See `CheckpointStore.checkpoints`."""
        return [
            Checkpoint(
                graph=row[0],
                thread_id=row[1],
                number=row[2],
                run_id=row[3],
                status=RunStatus(row[4]),
                node=row[5],
                saved_at=row[6],
                document=row[7],
            )
            for row in self._connection.rows(_NEWEST, (graph, thread_id, limit))
        ]
