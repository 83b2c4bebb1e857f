"""Sinks of audit records."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence

from .._model.error_boundary import is_ctrl_c, log_fault
from .._model.host_objects import close_coroutine
from .._model.protocols import Sink
from .._model.record import ExecutionRecord


class MemorySink:
    """Keeps the newest records in memory, and drops older ones.

    Args:
        limit: Number of records.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._records: deque[ExecutionRecord] = deque(maxlen=limit)

    def record(self, record: ExecutionRecord) -> None:
        """Keep one record."""
        self._records.append(record)

    def newest(self, limit: int | None = None) -> list[ExecutionRecord]:
        """The records, newest first."""
        return list(reversed(self._records))[:limit]


class Sinks:
    """All sinks of an engine, in the order in which they were added.

    Attributes:
        failures: How often a sink raised. The answer of an execution does not depend on its sinks.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: list[tuple[Sink, Callable[[ExecutionRecord], object]]] = [(sink, sink.record) for sink in sinks]
        self.failures = 0

    def record(self, record: ExecutionRecord) -> None:
        """Pass a record to every sink."""
        for sink, take in self._sinks:
            try:
                answer = take(record)
            except BaseException as error:  # noqa: BLE001 - the boundary, without the price of a call
                self._fail(sink, record, error)
            else:
                if answer is not None:
                    self._fail(sink, record, _unawaited(answer))

    def _fail(self, sink: Sink, record: ExecutionRecord, error: BaseException | None) -> None:
        """Count and log a failure of a sink. The caller of a committed effect still gets its answer.

        Raises:
            KeyboardInterrupt: It is a Ctrl-C.
        """
        if error is None:
            return
        if is_ctrl_c(error):
            raise error
        self.failures += 1
        log_fault(f"the sink {type(sink).__name__}, given the record of {record.execution_id},", error)


def _unawaited(answer: object) -> TypeError | None:
    """Error of a sink that returned an awaitable and so took no record; None for any other answer."""
    if not inspect.isawaitable(answer):
        return None
    name = type(answer).__name__  # pyright: ignore[reportUnknownArgumentType]  # a class of which nothing is known
    close_coroutine(answer)
    return TypeError(f"record returned a {name}, which nothing awaits; it must be a plain function")
