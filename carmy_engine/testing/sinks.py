"""A sink that keeps everything, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from .._model.record import ExecutionRecord


class RecordingSink:
    """Keeps every record, in order.

    Attributes:
        records: Oldest first.
    """

    def __init__(self) -> None:
        self.records: list[ExecutionRecord] = []

    def record(self, record: ExecutionRecord) -> None:
        """Keep one record."""
        self.records.append(record)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[ExecutionRecord]:
        return iter(self.records)

    def of(self, tool: str) -> list[ExecutionRecord]:
        """The records of one tool, oldest first."""
        return [record for record in self.records if record.tool == tool]
