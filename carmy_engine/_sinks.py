"""Where audit records go."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence

from ._error_boundary import Fault, call_foreign, log_fault
from ._host_objects import close_coroutine
from ._model.record import ExecutionRecord
from .abc import Sink
from .errors import AgentError

MEMORY_RECORDS = 1000
"""Records that the memory sink keeps; older ones are dropped."""


class MemorySink:
    """Keeps the newest records in memory.

    Args:
        limit: How many.
    """

    def __init__(self, limit: int = MEMORY_RECORDS) -> None:
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
        self._sinks = tuple(sinks)
        self.failures = 0

    def record(self, record: ExecutionRecord) -> None:
        """Pass a record to every sink."""
        for sink in self._sinks:
            try:
                answer: object = call_foreign(sink.record, record)
                if answer is not None:
                    _refuse_answer(answer)
            except (AgentError, Fault) as error:  # a committed effect must still be answered
                self.failures += 1
                log_fault(f"the sink {type(sink).__name__}, given the record of {record.execution_id},", error)


def _refuse_answer(answer: object) -> None:
    """A sink that has to be awaited has taken nothing.

    Raises:
        Fault: It is one.
    """
    if inspect.isawaitable(answer):
        name = type(answer).__name__  # pyright: ignore[reportUnknownArgumentType]  # a class of which nothing is known
        close_coroutine(answer)
        raise Fault(TypeError(f"record returned a {name}, which nothing awaits; it must be a plain function"))
