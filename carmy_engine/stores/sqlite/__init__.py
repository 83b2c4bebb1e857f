"""An idempotency store in an SQLite file: retries that survive a crash. Needs the extra ``sqlite``.

``_store`` is the store; its methods are jobs for ``_writer``, which puts them into transactions of ``_database``, inside which
``_entries`` says what is done to the rows (``_rows``) of a file that looks as ``_schema`` says. ``_liveness_locks`` show which stores are alive.
``_records`` are the audit trail, which ``_sink`` hands to the writer.
"""

from ..._model.extras import missing_extra

try:
    from ._errors import (
        CannotOpenError,
        CorruptFileError,
        DeviceError,
        DiskFullError,
        FileLockedError,
        FileReplacedError,
        NewerFileError,
        ReadOnlyFileError,
        StoreClosedError,
        UnexpectedError,
    )
    from ._sink import SqliteSink
    from ._store import AUDIT_SECONDS, MAX_BYTES, MAX_ENTRIES, RETENTION_SECONDS, SqliteStore, from_settings
except ModuleNotFoundError as missing:
    raise missing_extra("the store in SQLite", "sqlite", missing) from None

__all__ = [
    "AUDIT_SECONDS",
    "MAX_BYTES",
    "MAX_ENTRIES",
    "RETENTION_SECONDS",
    "CannotOpenError",
    "CorruptFileError",
    "DeviceError",
    "DiskFullError",
    "FileLockedError",
    "FileReplacedError",
    "NewerFileError",
    "ReadOnlyFileError",
    "SqliteSink",
    "SqliteStore",
    "StoreClosedError",
    "UnexpectedError",
    "from_settings",
]
