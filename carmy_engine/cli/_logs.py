"""Logging of a command whose application has not configured logging itself."""

from __future__ import annotations

import datetime as dt
import logging
from types import TracebackType

import msgspec

from .._config.settings import LogSettings
from .._model.traceback_log import traceback_text

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

ROOT = "carmy"
"""The parent of the project's loggers: ``carmy.engine``, ``carmy.http``, ``carmy.websocket``, ``carmy.stdio``, ``carmy.mcp``,
``carmy.access``."""

_encode = msgspec.json.Encoder().encode

_LIBRARIES = ("hypercorn", "httpx2", "httpcore2", "mcp", "trio-websocket")
"""Loggers of libraries below the transports. They log each request at info, and payloads at debug."""


def configure_logging(settings: LogSettings, process: int | None = None) -> None:
    """Log to standard error as the settings say, unless a handler is installed already.

    Args:
        settings: The table ``[log]``.
        process: The number of this process, for lines of several processes in one stream; None: it is the only one.
    """
    if logging.getLogger(ROOT).hasHandlers():
        return
    handler = logging.StreamHandler()
    if settings.format == "json":
        handler.setFormatter(_JsonFormatter(process))
    else:
        number = "" if process is None else f"{process} "
        handler.setFormatter(_TextFormatter(f"%(asctime)s {number}%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:
            library.setLevel(max(logging.WARNING, root.level))


class _TextFormatter(logging.Formatter):
    """Lines of text, with bounded tracebacks."""

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the name of the standard library
        """The traceback, which may be one of a library or of the application."""
        return "" if ei[1] is None else traceback_text(ei[1])


class _JsonFormatter(_TextFormatter):
    """One JSON object for each record."""

    def __init__(self, process: int | None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}
        self._second = -1
        self._date = ""

    def format(self, record: logging.LogRecord) -> str:
        head = _encode({"time": self._time(record.created), "level": record.levelname.lower(), "logger": record.name})
        fields: dict[str, object] = {**self._process}
        if isinstance(record.msg, msgspec.Struct):  # such as a line of the access log
            data = _encode(record.msg)
        else:
            data = _encode({"message": record.getMessage()})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        tail = b"," + _encode(fields)[1:] if fields else b"}"
        return (head[:-1] + b"," + data[1:-1] + tail).decode()

    def _time(self, created: float) -> str:
        second = int(created)
        if second != self._second:
            self._second = second
            self._date = dt.datetime.fromtimestamp(second, dt.UTC).isoformat().removesuffix("+00:00")
        return f"{self._date}.{int(created % 1 * 1000):03d}+00:00"
