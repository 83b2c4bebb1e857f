"""The sink of the store: audit records that are written in its transactions."""

from __future__ import annotations

from ..._model.record import ExecutionRecord
from ._records import pack_record
from ._writer import Writer


class SqliteSink:
    """Hands records to the store's writer, and never waits for it.

    They are written in the next transaction, whatever it is for, a few hundredths of a second later if there is none. If the
    file cannot be written they wait, up to a bound (`MAX_QUEUED_RECORDS`); then the newest are dropped, counted, and the log says so once.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def dropped(self) -> int:
        """Records that found no room."""
        return self._writer.dropped

    def record(self, record: ExecutionRecord) -> None:
        """Take one record; see `carmy_engine.abc.Sink`."""
        self._writer.queue_record(pack_record(record))
