"""An idempotency store in an SQLite file: retries that survive a crash. Needs the extra ``sqlite``.

``_store`` is the store. Its methods are jobs for ``.._writer``, which groups them into transactions of ``_database``. In a transaction,
``_entries`` reads and writes rows (``.._rows``) of the tables that ``_schema`` defines. ``_liveness_locks`` show which stores are alive.
``_checkpoints`` are the positions of graphs. ``_records`` are the audit trail; ``.._sink`` adds to it through the writer.
"""

from ..._model.extras import missing_extra

try:
    from .._rows import DamagedEntryError
    from .._sink import RecordSink
    from .._writer import StoreClosedError, UnexpectedError
    from ._errors import (
        CannotOpenError,
        CorruptFileError,
        DeviceError,
        DiskFullError,
        FileLockedError,
        FileReplacedError,
        NewerFileError,
        ReadOnlyFileError,
    )
    from ._limits import SqliteLimits
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
    "DamagedEntryError",
    "DeviceError",
    "DiskFullError",
    "FileLockedError",
    "FileReplacedError",
    "NewerFileError",
    "ReadOnlyFileError",
    "RecordSink",
    "SqliteLimits",
    "SqliteStore",
    "StoreClosedError",
    "UnexpectedError",
    "from_settings",
]
