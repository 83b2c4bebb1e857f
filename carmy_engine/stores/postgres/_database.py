"""The database: its connection, and transactions that are repeated when the server closes it. Runs in the writer's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ._errors import UnreachableError, translate
from ._lease import Lease
from ._schema import check_version, migrate
from ._transaction import Bounds, Transaction

PAUSE_SECONDS = 0.05
"""Between two attempts to reach the server."""

Durability = Literal["full", "normal"]
"""``full``: what was answered survives a crash of the server. ``normal``: a crash may take the last answers with it."""

_AGAIN = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


class Database:
    """A database, and the schema in it that a store has for itself.

    Args:
        url: A ``postgresql://`` URL, or another connection string of libpq.
        schema: The name of the schema.
        durability: Of commits.
        bounds: Of the store.

    Raises:
        psycopg.ProgrammingError: The URL is malformed.
    """

    def __init__(self, url: str, schema: str, durability: Durability, bounds: Bounds) -> None:
        parts = conninfo_to_dict(url)
        self.name = f"postgresql://{parts.get('host', 'localhost')}/{parts.get('dbname', '')} (schema {schema})"
        patience = bounds.limits.patience_secs
        # The server must notice a client that is gone, and the client a server; both within a few seconds.
        own: dict[str, Any] = {
            "connect_timeout": max(2, int(patience)),
            "keepalives_idle": 2,
            "keepalives_interval": 1,
            "keepalives_count": 3,
            "tcp_user_timeout": int(patience * 1000),
            "application_name": "carmy-engine",
        }
        self._conninfo = make_conninfo(url, **{key: value for key, value in own.items() if key not in parts})
        self._schema = schema
        self._durability = durability
        self._patience = patience
        self._connection: Connection[Any] | None = None
        self._is_migrated = False
        self.lease = Lease(self._connect, bounds, self.name)
        self._bounds = bounds

    def transact(self, work: Callable[[Transaction], None]) -> None:
        """Call `work` in a transaction and commit; again, with a new connection, when the server has closed this one.

        A commit whose answer was lost is looked up by its id, so `work` is not repeated after it has taken effect.

        Raises:
            StoreError: Nothing was changed.
        """
        give_up_at = time.monotonic() + self._patience
        xid: str | None = None
        while True:
            try:
                connection = self._opened()
                if xid is not None:
                    if _is_committed(connection, xid):
                        return
                    xid = None
                with connection.transaction():
                    transaction = Transaction(connection, self.lease.owners, self._bounds)
                    work(transaction)
                    xid = transaction.xid
                return
            except _AGAIN as error:
                xid = None
                if time.monotonic() >= give_up_at:
                    raise translate(error, self.name) from error
            except psycopg.Error as error:
                fault = translate(error, self.name)
                self._disconnect()
                if not isinstance(fault, UnreachableError) or time.monotonic() >= give_up_at:
                    raise fault from error
                time.sleep(PAUSE_SECONDS)
            except BaseException:
                self._disconnect()
                raise

    def check(self) -> None:
        """Connect, and read the version of the tables. Changes nothing.

        Raises:
            StoreError: It cannot be used.
        """
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                check_version(connection, self._schema, self.name)
        except psycopg.Error as error:
            raise translate(error, self.name) from error

    def close(self) -> None:
        """Interrupt the running entries of this store, give up the lease and close the connections. Idempotent.

        Raises:
            StoreError: Entries could not be interrupted; others do it once the lease has run out.
        """
        self.lease.stop()
        try:
            if self.lease.owners and self._connection is not None:
                self.transact(Transaction.leave)
        finally:
            self._disconnect()

    def _opened(self) -> Connection[Any]:
        """The connection, with tables and a lease.

        Raises:
            StoreError: The tables are those of a later version.
            psycopg.Error: There is none.
        """
        if self._connection is None:
            self._connection = self._connect()
        if not self._is_migrated:
            migrate(self._connection, self._schema, self.name)
            self._is_migrated = True
        self.lease.register(self._connection)
        return self._connection

    def _connect(self) -> Connection[Any]:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        try:
            milliseconds = str(int(self._patience * 1000))
            settings = {
                "search_path": sql.Identifier(self._schema).as_string(),
                "synchronous_commit": "on" if self._durability == "full" else "off",
                "statement_timeout": milliseconds,
                "lock_timeout": milliseconds,
                # A process that is stopped in a transaction gives up its locks before those that wait for them do.
                "idle_in_transaction_session_timeout": str(int(self._patience * 500)),
            }
            for key, value in settings.items():
                connection.execute("SELECT set_config(%s, %s, false)", (key, value))
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_committed(connection: Connection[Any], xid: str) -> bool:
    """Whether a transaction whose connection broke has taken effect. Waits while it is in progress.

    Raises:
        StoreError: It is in progress for too long.
        psycopg.Error: It cannot be known now.
    """
    for _ in range(100):
        try:
            row = connection.execute("SELECT pg_xact_status(%s::xid8)", (xid,)).fetchone()
        except psycopg.errors.InvalidParameterValue:
            return False  # of the future: the server lost it in a crash
        if row is None or row[0] != "in progress":
            return row is not None and row[0] == "committed"
        time.sleep(PAUSE_SECONDS)
    raise UnreachableError("a transaction whose connection broke is still in progress at the server")
