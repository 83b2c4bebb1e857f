"""Audit records as rows of a database."""

from __future__ import annotations

import msgspec

from .._model.record import ExecutionRecord
from .._model.reservation import Reservation
from .._model.result import ExecutionStatus

_encode = msgspec.json.Encoder().encode

Row = tuple[float, str, str, str | None, bytes]
"""The columns for filters, and the record as JSON."""


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for audit records; see `carmy_engine.abc.AuditStore.records`."""

    tool: str | None
    status: ExecutionStatus | None
    principal: str | None
    since: float | None
    until: float | None
    limit: int


class Page(msgspec.Struct, frozen=True):
    """A part of the records that fit a query.

    Attributes:
        records: Newest first.
        before: Where the next page begins; None when there is no more.
    """

    records: list[ExecutionRecord]
    before: int | None


def pack_record(record: ExecutionRecord) -> Row:
    """A record as a row.

    Raises:
        UnicodeEncodeError: A part is not valid Unicode.
    """
    return (record.started_at, record.tool, record.status.value, record.principal, _encode(record))


def record_of_dead(entry: Reservation) -> ExecutionRecord:
    """The record of an execution whose process has died."""
    identity = entry.identity
    return ExecutionRecord(
        execution_id=entry.execution_id,
        request_id=identity.request_id,
        principal=identity.principal,
        session=identity.session,
        transport=identity.scope,
        tool=entry.tool,
        effect=None,
        status=ExecutionStatus.CANCELLED,
        error_code="EXECUTION_UNCERTAIN",
        cause=None,
        duration_ms=0.0,
        waited_ms=0.0,
        started_at=entry.started_at,
        replayed=False,
    )
