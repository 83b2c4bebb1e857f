"""The tables of the file, and the migrations of older files. Forward only."""

from __future__ import annotations

from pathlib import Path

from ._connection import Connection
from ._errors import CorruptFileError, FileLockedError, NewerFileError
from ._liveness_locks import LivenessLocks

APPLICATION_ID = 0x63726D79
"""``crmy`` in the header of the file; it distinguishes the file from those of other programs."""

MIGRATIONS = (
    """
    -- One row for each open store. It lives as long as its byte of the file is locked; see _liveness_locks.py. Ids are never used twice.
    CREATE TABLE owners (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        pid INTEGER NOT NULL,
        opened_at REAL NOT NULL
    ) STRICT;

    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,  -- SHA-256 of the identity, in which absent and empty parts differ
        principal TEXT,
        session TEXT,
        scope TEXT NOT NULL,
        request_id TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        execution_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'interrupted', 'completed')),
        owner INTEGER,             -- of a running entry; NULL otherwise
        started_at REAL NOT NULL,
        finished_at REAL,
        cause TEXT,
        data BLOB,
        error BLOB,
        bytes INTEGER NOT NULL,
        CHECK ((state = 'running') = (owner IS NOT NULL)),
        CHECK ((state = 'running') = (finished_at IS NULL))
    ) STRICT;

    CREATE INDEX entries_by_owner ON entries (owner) WHERE owner IS NOT NULL;
    CREATE INDEX entries_by_age ON entries (finished_at) WHERE state = 'completed';
    CREATE INDEX entries_in_doubt ON entries (started_at) WHERE state <> 'completed';

    -- What the bounds are checked against, kept by the file itself so that no writer can forget it.
    CREATE TABLE totals (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        entries INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) STRICT;
    INSERT INTO totals VALUES (1, 0, 0);
    CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
        UPDATE totals SET entries = entries + 1, bytes = bytes + NEW.bytes;
    END;
    CREATE TRIGGER entry_removed AFTER DELETE ON entries BEGIN
        UPDATE totals SET entries = entries - 1, bytes = bytes - OLD.bytes;
    END;
    CREATE TRIGGER entry_changed AFTER UPDATE OF bytes ON entries BEGIN
        UPDATE totals SET bytes = bytes + NEW.bytes - OLD.bytes;
    END;
    """,
    """
    -- The audit trail, in the order of the executions' ends. The columns are what it is filtered by.
    CREATE TABLE records (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        started_at REAL NOT NULL,
        tool TEXT NOT NULL,
        status TEXT NOT NULL,
        principal TEXT,
        record BLOB NOT NULL  -- as JSON
    ) STRICT;
    CREATE INDEX records_by_time ON records (started_at);
    """,
    """
    -- The checksum is of a completed entry's answer, and NULL where an earlier version has recorded it.
    ALTER TABLE entries ADD COLUMN checksum BLOB;
    -- Of a tool that may be repeated: its answer gives way when the store is full.
    ALTER TABLE entries ADD COLUMN repeatable INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX entries_that_give_way ON entries (finished_at) WHERE state = 'completed' AND repeatable = 1;
    """,
    """
    -- The positions of runs of graphs. `ended_at` is set in the last checkpoint of a thread whose last run has ended.
    CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY,
        graph TEXT NOT NULL,
        thread_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        status TEXT NOT NULL,
        node TEXT,
        saved_at REAL NOT NULL,
        document BLOB NOT NULL,
        ended_at REAL,
        UNIQUE (graph, thread_id, number)
    ) STRICT;
    CREATE INDEX checkpoints_by_end ON checkpoints (ended_at) WHERE ended_at IS NOT NULL;
    """,
    """
    -- Refused calls that a person may approve. The columns are what they are found by.
    CREATE TABLE confirmations (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        state TEXT NOT NULL,
        expires_at REAL NOT NULL,
        entry BLOB NOT NULL  -- as JSON
    ) STRICT;
    CREATE INDEX confirmations_by_request ON confirmations (owner, fingerprint);
    CREATE INDEX confirmations_by_expiry ON confirmations (expires_at);
    """,
)
"""Each leads from one version to the next; the version of a file is how many it has had. Never change one, add one."""


LOCKED_IN_FILE = 3
"""The first version whose owners hold their locks in the database itself. Earlier ones had a lock file beside it."""


def check_version(connection: Connection, path: Path) -> int:
    """The file's version; 0 for an empty file. Changes nothing.

    Raises:
        NewerFileError: A later version of this store has written it.
        CorruptFileError: It belongs to another program.
        apsw.Error: It cannot be read.
    """
    ((application,),) = connection.rows("PRAGMA application_id")
    ((version,),) = connection.rows("PRAGMA user_version")
    ((tables,),) = connection.rows("SELECT count(*) FROM sqlite_schema")
    if application != APPLICATION_ID and (tables or version or application):
        raise CorruptFileError(f"{path} is an SQLite file of another program; give the store a file of its own")
    if version > len(MIGRATIONS):
        raise NewerFileError(
            f"{path} was written by a newer version of carmy-engine (its version is {version}, this one reads up to"
            f" {len(MIGRATIONS)}); use that version, or another file"
        )
    return int(version)


def migrate(connection: Connection, path: Path) -> None:
    """Bring the file to the newest version, in one transaction.

    Raises:
        NewerFileError: See `check_version`.
        CorruptFileError: See `check_version`.
        apsw.Error: It could not be done; the file is as it was.
    """
    connection.run("BEGIN IMMEDIATE")
    try:
        version = check_version(connection, path)
        for script in MIGRATIONS[version:]:
            connection.run(script)
        if version < len(MIGRATIONS):
            connection.run(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.run(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.run("COMMIT")
    finally:
        if connection.in_transaction:
            connection.run("ROLLBACK")


def retire_lock_file(connection: Connection, path: Path) -> None:
    """Delete the lock file of an earlier version, which no process may be using.

    Raises:
        FileLockedError: A process of an earlier version has the database open.
        OSError: The lock file cannot be used.
        apsw.Error: The database cannot be read.
    """
    lock_file = path.with_name(path.name + "-owners")
    try:
        locks = LivenessLocks(lock_file, first_byte=0)
    except FileNotFoundError:
        return
    try:
        owners = [owner for (owner,) in connection.rows("SELECT id FROM owners")]
        if not locks.start_opening() or any(map(locks.is_alive, owners)):
            raise FileLockedError(f"{path} is in use by a process of an earlier version of carmy-engine; stop it first")
        lock_file.unlink(missing_ok=True)
    finally:
        locks.close()
