"""An idempotency store in PostgreSQL, for processes on several machines. Needs the extra ``postgres``.

``_store`` is the store. Its methods are jobs for ``.._writer``, which groups them into transactions of ``_database``. A ``_transaction``
runs all ``_operations`` of a kind in one statement, on the tables that ``_schema`` defines. ``_lease`` shows which stores are alive, and
its id is the fencing token of their entries. ``_records`` are the audit trail, ``_checkpoints`` the positions of graphs.
"""

from ..._model.extras import missing_extra

try:
    from .._rows import DamagedEntryError
    from .._sink import RecordSink
    from .._writer import StoreClosedError, UnexpectedError
    from ._errors import (
        BusyError,
        DiskFullError,
        LeaseLostError,
        NewerSchemaError,
        NotTextError,
        ReadOnlyError,
        RefusedError,
        UnreachableError,
    )
    from ._limits import PostgresLimits
    from ._store import AUDIT_SECONDS, MAX_BYTES, MAX_ENTRIES, RETENTION_SECONDS, PostgresStore, from_settings
except ModuleNotFoundError as missing:
    raise missing_extra("the store in PostgreSQL", "postgres", missing) from None

__all__ = [
    "AUDIT_SECONDS",
    "MAX_BYTES",
    "MAX_ENTRIES",
    "RETENTION_SECONDS",
    "BusyError",
    "DamagedEntryError",
    "DiskFullError",
    "LeaseLostError",
    "NewerSchemaError",
    "NotTextError",
    "PostgresLimits",
    "PostgresStore",
    "ReadOnlyError",
    "RecordSink",
    "RefusedError",
    "StoreClosedError",
    "UnexpectedError",
    "UnreachableError",
    "from_settings",
]
