"""The tables, and the migrations of older ones. Forward only."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from ._errors import NewerSchemaError

MIGRATIONS = (
    """
    -- One row for each open store: its lease, in the time of this server. The id is its fencing token; ids are never used twice.
    CREATE TABLE owners (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL,
        opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        expires_at timestamptz NOT NULL
    );

    CREATE TABLE entries (
        key bytea PRIMARY KEY,  -- SHA-256 of the identity, in which absent and empty parts differ
        principal text,
        session text,
        scope text NOT NULL,
        request_id text NOT NULL,
        fingerprint bytea NOT NULL,
        execution_id text NOT NULL,
        tool text NOT NULL,
        state text NOT NULL CHECK (state IN ('running', 'interrupted', 'completed')),
        owner bigint,           -- of a running entry; NULL otherwise
        started_at double precision NOT NULL,
        finished_at double precision,
        cause text,
        data bytea,
        error bytea,
        checksum bytea,
        bytes bigint NOT NULL,
        repeatable boolean NOT NULL,
        CHECK ((state = 'running') = (owner IS NOT NULL)),
        CHECK ((state = 'running') = (finished_at IS NULL))
    );
    CREATE INDEX entries_by_owner ON entries (owner) WHERE owner IS NOT NULL;
    CREATE INDEX entries_by_age ON entries (finished_at) WHERE state = 'completed';
    CREATE INDEX entries_in_doubt ON entries (started_at) WHERE state <> 'completed';
    CREATE INDEX entries_by_start ON entries (started_at);
    CREATE INDEX entries_by_execution ON entries (execution_id);
    CREATE INDEX entries_that_give_way ON entries (finished_at) WHERE state = 'completed' AND repeatable;

    -- What the bounds are checked against: a row for each owner, which alone changes it, and row 0 for those that are gone.
    CREATE TABLE totals (
        owner bigint PRIMARY KEY,
        entries bigint NOT NULL,
        bytes bigint NOT NULL
    );
    INSERT INTO totals VALUES (0, 0, 0);

    -- The audit trail. The columns are what it is filtered by.
    CREATE TABLE records (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        started_at double precision NOT NULL,
        tool text NOT NULL,
        status text NOT NULL,
        principal text,
        record bytea NOT NULL  -- as JSON
    );
    CREATE INDEX records_by_time ON records (started_at);

    -- The positions of runs of graphs. `ended_at` is set in the last checkpoint of a thread whose last run has ended.
    CREATE TABLE checkpoints (
        graph text NOT NULL,
        thread_id text NOT NULL,
        number bigint NOT NULL,
        run_id text NOT NULL,
        status text NOT NULL,
        node text,
        saved_at double precision NOT NULL,
        document bytea NOT NULL,
        ended_at double precision,
        PRIMARY KEY (graph, thread_id, number)
    );
    CREATE INDEX checkpoints_by_end ON checkpoints (ended_at) WHERE ended_at IS NOT NULL;

    -- Calls that a person is asked about. The numbers are the order in which they were asked.
    CREATE TABLE confirmations (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text NOT NULL UNIQUE,
        owner text NOT NULL,
        fingerprint bytea NOT NULL,
        state text NOT NULL,
        expires_at double precision NOT NULL,
        entry bytea NOT NULL  -- as JSON
    );
    CREATE INDEX confirmations_by_request ON confirmations (owner, fingerprint);
    CREATE INDEX confirmations_by_expiry ON confirmations (expires_at);
    """,
)
"""Each leads from one version to the next. Never change one, add one."""


def check_version(connection: Connection[Any], schema: str, name: str) -> int:
    """The version of the tables; 0 where there are none. Changes nothing.

    Raises:
        NewerSchemaError: A later version of this store has written them.
        psycopg.Error: They cannot be read.
    """
    table = connection.execute("SELECT to_regclass(%s)", (sql.Identifier(schema, "version").as_string(),)).fetchone()
    if table is None or table[0] is None:
        return 0
    row = connection.execute(sql.SQL("SELECT number FROM {}").format(sql.Identifier(schema, "version"))).fetchone()
    version = 0 if row is None else int(row[0])
    if version > len(MIGRATIONS):
        raise NewerSchemaError(
            f"{name} was written by a newer version of carmy-engine (its version is {version}, this one reads up to"
            f" {len(MIGRATIONS)}); use that version, or another schema"
        )
    return version


def migrate(connection: Connection[Any], schema: str, name: str) -> None:
    """Bring the tables to the newest version, in one transaction. Several processes may do it at once: one does, the others wait.

    Raises:
        NewerSchemaError: See `check_version`.
        psycopg.Error: It could not be done; the tables are as they were.
    """
    if check_version(connection, schema, name) == len(MIGRATIONS):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('carmy-engine'), hashtext(%s))", (schema,))
        version = check_version(connection, schema, name)
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        for script in MIGRATIONS[version:]:
            connection.execute(script)
        if version == 0:
            connection.execute("CREATE TABLE version (number integer NOT NULL)")
            connection.execute("INSERT INTO version VALUES (0)")
        connection.execute("UPDATE version SET number = %s", (len(MIGRATIONS),))
