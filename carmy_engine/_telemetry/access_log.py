"""The access log: one line for each execution, without arguments, outputs and messages."""

from __future__ import annotations

import copy
import logging
import re
import time

import msgspec

from .._model.record import ExecutionRecord

log = logging.getLogger("carmy.access")

_PLAIN = re.compile(r"[!#-\[\]-~]+")
MAX_TEXT_CHARACTERS = 128
"""Of a name or identity in a line. The name of an unknown tool is a caller's text of any length."""


class AccessLine(msgspec.Struct, frozen=True, gc=False):
    """The data of one line, which is the message of a log record. Formatters for JSON write its fields.

    Attributes:
        transport: The transport of the call.
        tool: The requested name, cut at `MAX_TEXT_CHARACTERS`.
        status: The status of the execution.
        code: The error's code; None when it completed.
        duration_ms: From the reservation to the end, waiting included.
        waited_ms: Of that, the wait for a turn or a thread.
        replayed: The answer was a stored one.
        execution_id: The id in the answer.
        principal: The caller; None if it is anonymous.
    """

    transport: str
    tool: str
    status: str
    code: str | None
    duration_ms: float
    waited_ms: float
    replayed: bool
    execution_id: str
    principal: str | None

    def __str__(self) -> str:
        return (
            f"{self.transport} {_shown(self.tool)} {self.status} {self.code or '-'} {self.duration_ms:.1f}ms"
            f" waited={self.waited_ms:.1f}ms {self.execution_id} {_shown(self.principal)}"
            f"{' replayed' if self.replayed else ''}"
        )


class AccessLog:
    """A sink that logs an `AccessLine` at level info to ``carmy.access`` for each execution.

    Requests that were refused before they were executions have a line of ``carmy.engine``, with the client's address.
    """

    def __init__(self) -> None:
        self._template = logging.LogRecord(log.name, logging.INFO, __file__, 0, None, (), None)

    def record(self, record: ExecutionRecord) -> None:
        """See `carmy_engine.abc.Sink`."""
        if record.settled is not None or not record.tool or not log.isEnabledFor(logging.INFO):
            return
        line = AccessLine(
            record.transport,
            _bounded(record.tool),
            record.status.value,
            record.error_code,
            round(record.duration_ms, 3),
            round(record.waited_ms, 3),
            record.replayed,
            record.execution_id,
            None if record.principal is None else _bounded(record.principal),
        )
        log.handle(self._log_record(line))

    def _log_record(self, line: AccessLine) -> logging.LogRecord:
        """A log record with the line; by the application's factory, if it has one.

        Otherwise a copy: the constructor looks up thread and process, which takes as long as writing the line.
        """
        factory = logging.getLogRecordFactory()
        if factory is not logging.LogRecord:
            return factory(log.name, logging.INFO, __file__, 0, line, (), None)
        made = copy.copy(self._template)
        made.msg = line
        made.created = now = time.time()
        made.msecs = now % 1 * 1000
        made.relativeCreated = self._template.relativeCreated + (now - self._template.created) * 1000
        return made


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + "…"


def _shown(text: str | None) -> str:
    """A text for one column: quoted, with escapes, unless it is plain. No text can look like another line or column."""
    if text is None:
        return "-"
    return text if _PLAIN.fullmatch(text) else ascii(text)
