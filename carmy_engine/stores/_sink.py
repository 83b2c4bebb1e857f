"""The sink of a store in a database: audit records that are written in its transactions."""

from __future__ import annotations

from typing import Any

from .._model.record import ExecutionRecord
from ._audit_rows import pack_record
from ._writer import Writer


class RecordSink:
    """Adds records to the writer's queue, and never waits.

    The next transaction writes them; without other work, one begins a few hundredths of a second later. While the database cannot be
    written, the queue grows up to ``max_queued_records``. Further records are dropped and counted, which is logged once.
    """

    def __init__(self, writer: Writer[Any]) -> None:
        self._writer = writer

    @property
    def dropped(self) -> int:
        """Records that found no room."""
        return self._writer.dropped

    def record(self, record: ExecutionRecord) -> None:
        """Take one record; see `carmy_engine.abc.Sink`."""
        self._writer.queue_record(pack_record(record))
