"""An idempotency store in an SQLite file: retries that survive a crash. Needs the extra ``sqlite``.

``_store`` is the store; its methods are jobs for ``_writer``, which puts them into transactions of ``_database``, inside which
``_entries`` says what is done to the rows (``_rows``) of a file that looks as ``_schema`` says. ``_owners`` knows who is alive.
"""

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
from ._store import MAX_BYTES, MAX_ENTRIES, RETENTION_SECONDS, SqliteStore, from_settings

__all__ = [
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
    "SqliteStore",
    "StoreClosedError",
    "UnexpectedError",
    "from_settings",
]
