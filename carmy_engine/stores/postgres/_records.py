"""Audit records as rows: written in the transactions of the entries, read newest first."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import Connection

from ..._model.record import ExecutionRecord
from .._audit_rows import Page, RecordQuery, Row
from ._limits import PostgresLimits

_decode = msgspec.json.Decoder(ExecutionRecord).decode

_ADD = """
    INSERT INTO records (started_at, tool, status, principal, record)
    SELECT * FROM unnest(%s::float8[], %s::text[], %s::text[], %s::text[], %s::bytea[])
"""
_FIND = """
    SELECT id, record FROM records
    WHERE id >= %(first)s AND id < %(before)s AND (%(tool)s::text IS NULL OR tool = %(tool)s)
        AND (%(status)s::text IS NULL OR status = %(status)s) AND (%(principal)s::text IS NULL OR principal = %(principal)s)
        AND (%(since)s::float8 IS NULL OR started_at >= %(since)s) AND (%(until)s::float8 IS NULL OR started_at < %(until)s)
    ORDER BY id DESC LIMIT %(limit)s
"""
_PRUNE = """
    DELETE FROM records WHERE id IN (
        SELECT id FROM records WHERE started_at < %s ORDER BY started_at LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""
_PRUNE_BY_NUMBER = """
    DELETE FROM records WHERE id IN (
        SELECT id FROM records WHERE id <= (SELECT max(id) FROM records) - %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


class Records:
    """The audit records, for the length of one transaction.

    Args:
        connection: In a transaction.
        limits: How many records are kept, dropped and read.
    """

    def __init__(self, connection: Connection[Any], limits: PostgresLimits) -> None:
        self._connection = connection
        self._limits = limits

    def add(self, rows: list[Row]) -> None:
        """Add records. PostgreSQL has no texts with U+0000; the columns get U+FFFD for it, the record keeps it."""
        started, tools, statuses, principals, records = zip(*rows, strict=True)
        values = ([_text(tool) for tool in tools], list(statuses), [_text(each) for each in principals], list(records))
        self._connection.execute(_ADD, (list(started), *values))

    def prune(self, oldest: float) -> None:
        """Drop some of the records that are too many, or older than `oldest` (Unix seconds)."""
        self._connection.execute(_PRUNE, (oldest, self._limits.max_swept))
        self._connection.execute(_PRUNE_BY_NUMBER, (self._limits.max_records, self._limits.max_swept))

    def find(self, query: RecordQuery, limit: int, before: int | None) -> Page:
        """Look at the newest records before one, at no more than ``max_read_records`` of them."""
        row = self._connection.execute("SELECT coalesce(min(id), 0), coalesce(max(id), 0) + 1 FROM records").fetchone()
        assert row is not None
        oldest, end = row
        last: int = end if before is None else before
        first = max(0, last - self._limits.max_read_records)
        values = {
            "first": first,
            "before": last,
            "tool": query.tool,
            "status": None if query.status is None else query.status.value,
            "principal": _text(query.principal),
            "since": query.since,
            "until": query.until,
            "limit": limit,
        }
        rows = self._connection.execute(_FIND, values).fetchall()
        return Page([_decode(record) for _, record in rows], first if first > oldest else None)


def _text(value: str | None) -> str | None:
    return None if value is None else value.replace("\0", "\ufffd")
