"""Audit records as rows: written in the transactions of the entries, read newest first."""

from __future__ import annotations

import msgspec

from ..._model.record import ExecutionRecord
from .._audit_rows import Page, RecordQuery, Row
from ._connection import Connection
from ._limits import SqliteLimits

_decode = msgspec.json.Decoder(ExecutionRecord).decode


class Records:
    """The audit records, for the length of one transaction.

    Args:
        connection: Inside a transaction that may write.
        limits: How many records are kept, dropped and read.
    """

    def __init__(self, connection: Connection, limits: SqliteLimits) -> None:
        self._connection = connection
        self._limits = limits

    def add(self, rows: list[Row], oldest: float) -> None:
        """Add records, and drop some of those that are too many, or older than `oldest` (Unix seconds)."""
        for row in rows:
            self._connection.run(
                "INSERT INTO records (started_at, tool, status, principal, record) VALUES (?, ?, ?, ?, ?)", row
            )
        self._connection.run(
            "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE started_at < ? ORDER BY started_at LIMIT ?)",
            (oldest, self._limits.max_swept),
        )
        self._connection.run(
            "DELETE FROM records WHERE id IN"
            " (SELECT id FROM records WHERE id <= (SELECT max(id) FROM records) - ? ORDER BY id LIMIT ?)",
            (self._limits.max_records, self._limits.max_swept),
        )

    def find(self, query: RecordQuery, limit: int, before: int | None) -> Page:
        """Look at the newest records before one, at no more than ``max_read_records`` of them."""
        if before is None:
            ((newest,),) = self._connection.rows("SELECT coalesce(max(id), 0) FROM records")
            before = int(newest) + 1
        first = max(0, before - self._limits.max_read_records)
        status = None if query.status is None else query.status.value
        rows = self._connection.rows(
            """
            SELECT id, record FROM records
            WHERE id >= ?1 AND id < ?2 AND (?3 IS NULL OR tool = ?3) AND (?4 IS NULL OR status = ?4)
                AND (?5 IS NULL OR principal = ?5) AND (?6 IS NULL OR started_at >= ?6) AND (?7 IS NULL OR started_at < ?7)
            ORDER BY id DESC LIMIT ?8
            """,
            (first, before, query.tool, status, query.principal, query.since, query.until, limit),
        )
        ((oldest,),) = self._connection.rows("SELECT coalesce(min(id), 0) FROM records")
        return Page([_decode(record) for _, record in rows], first if first > oldest else None)
