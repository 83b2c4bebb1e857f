"""Checkpoints of graphs as rows, in the transactions of the entries."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from ..._model.checkpoint import Checkpoint, RunStatus
from ._limits import PostgresLimits

_COLUMNS = "graph, thread_id, number, run_id, status, node, saved_at, document"
_NEWEST = f"SELECT {_COLUMNS} FROM checkpoints WHERE graph = %s AND thread_id = %s ORDER BY number DESC LIMIT %s"  # noqa: S608 - a constant
_ADD = f"""
    INSERT INTO checkpoints ({_COLUMNS}, ended_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""  # noqa: S608 - a constant
_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT})
_PRUNE = """
    DELETE FROM checkpoints WHERE (graph, thread_id) IN (
        SELECT graph, thread_id FROM checkpoints WHERE ended_at <= %s ORDER BY ended_at LIMIT 20
    )
"""


class Checkpoints:
    """The checkpoints, for the length of one transaction.

    Args:
        connection: In a transaction.
        limits: How many checkpoints of a thread are kept.
    """

    def __init__(self, connection: Connection[Any], limits: PostgresLimits) -> None:
        self._connection = connection
        self._limits = limits

    def save(self, checkpoint: Checkpoint) -> bool:
        """See `CheckpointStore.save_checkpoint`. Processes that save in one thread of a graph do so one after the other."""
        thread = checkpoint.graph, checkpoint.thread_id
        run = self._connection.execute
        run("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", thread)
        row = run("SELECT max(number) FROM checkpoints WHERE graph = %s AND thread_id = %s", thread).fetchone()
        if row is not None and row[0] is not None and row[0] >= checkpoint.number:
            return False
        run(
            "UPDATE checkpoints SET ended_at = NULL WHERE graph = %s AND thread_id = %s AND ended_at IS NOT NULL",
            thread,
        )
        run(
            "DELETE FROM checkpoints WHERE graph = %s AND thread_id = %s AND number <= %s",
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
        return True

    def prune(self, oldest: float) -> None:
        """Drop some threads whose last run ended before `oldest` (Unix seconds)."""
        self._connection.execute(_PRUNE, (oldest,))

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
            for row in self._connection.execute(_NEWEST, (graph, thread_id, limit)).fetchall()
        ]
