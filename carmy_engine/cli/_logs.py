"""Logging of a command whose application has not configured logging itself."""

from __future__ import annotations

import datetime as dt
import logging

import msgspec

from .._config.settings import LogSettings

ROOT = "carmy"
"""The parent of the project's loggers: ``carmy.engine``, ``carmy.http``, ``carmy.websocket``, ``carmy.stdio``, ``carmy.mcp``."""

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
        handler.setFormatter(logging.Formatter(f"%(asctime)s {number}%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:
            library.setLevel(max(logging.WARNING, root.level))


class _JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

    def __init__(self, process: int | None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()
