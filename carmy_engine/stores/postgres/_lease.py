"""The lease of a store: a row at the server that a thread renews. Other processes take over what an expired lease has left."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection

from ..._model.protocols import StoreError
from ..._model.rate_limited_log import RateLimitedLogger
from ._limits import PostgresLimits
from ._transaction import Bounds, Transaction

log = logging.getLogger("carmy.engine")

_REGISTER = """
    INSERT INTO owners (name, expires_at) VALUES (%s, clock_timestamp() + make_interval(secs => %s)) RETURNING id
"""
_RENEW = "UPDATE owners SET expires_at = clock_timestamp() + make_interval(secs => %s) WHERE id = %s"


class Lease:
    """The lease, renewed by a thread of its own at a third of its length, so that a busy event loop does not lose it.

    Its id is the fencing token of the entries that are reserved under it. When another process has taken over, or the server was not
    reached for the length of the lease, the id is given up: a new one is registered, and the entries of the old one are out of reach.

    Args:
        connect: Opens a connection.
        bounds: Of the store.
        name: Of the database, for the log.
    """

    def __init__(self, connect: Callable[[], Connection[Any]], bounds: Bounds, name: str) -> None:
        self._connect = connect
        self._bounds = bounds
        self._limits: PostgresLimits = bounds.limits
        self._name = name
        self._lock = threading.Lock()  # guards the three below
        self._id: int | None = None
        self._expires = 0.0
        self._held: dict[str, None] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = RateLimitedLogger(log)
        self.on_lost: Callable[[frozenset[str]], None] | None = None
        """Called in the thread, with the executions whose entries are out of reach from now on."""

    @property
    def owners(self) -> list[int]:
        """The id, if there is one."""
        with self._lock:
            return [] if self._id is None else [self._id]

    def register(self, connection: Connection[Any]) -> None:
        """Begin a lease, unless there is one. Interrupts what dead owners have left.

        Raises:
            psycopg.Error: It could not be done.
        """
        if self.owners:
            return
        began = time.monotonic()
        name = f"{socket.gethostname()}:{os.getpid()}"
        with connection.transaction():
            row = connection.execute(_REGISTER, (name, self._limits.lease_secs)).fetchone()
            assert row is not None
            Transaction(connection, [row[0]], self._bounds).interrupt_dead_owners()
        with self._lock:
            self._id = row[0]
            self._expires = began + self._limits.lease_secs
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_all, name="carmy lease", daemon=True)
            self._thread.start()

    def hold(self, execution_id: str) -> None:
        """Note that an execution is about to reserve an entry under this lease."""
        with self._lock:
            self._held[execution_id] = None

    def holds(self, execution_id: str) -> bool:
        """Whether an execution has reserved an entry under this lease, or an earlier one, and not ended."""
        return execution_id in self._held

    def let_go(self, execution_id: str) -> None:
        """Note that an execution has ended. Idempotent."""
        with self._lock:
            self._held.pop(execution_id, None)

    @property
    def is_valid(self) -> bool:
        """Whether the lease lasts, by the clock of this process."""
        return self._id is not None and time.monotonic() < self._expires

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _renew_all(self) -> None:
        """In the thread."""
        connection: Connection[Any] | None = None
        pause = self._limits.lease_secs / 3
        while not self._stop.wait(pause):
            pause = self._limits.lease_secs / 3
            try:
                if connection is None:
                    connection = self._connect()
                self._renew(connection)
            except (psycopg.Error, StoreError) as error:
                self._log.warning("the lease in %s could not be renewed: %s", self._name, " ".join(str(error).split()))
                if connection is not None:
                    connection.close()
                connection = None
                pause = min(1.0, pause)
                if not self.is_valid:
                    self._give_up()
        if connection is not None:
            connection.close()

    def _renew(self, connection: Connection[Any]) -> None:
        began = time.monotonic()
        owners = self.owners
        if owners:
            renewed = connection.execute(_RENEW, (self._limits.lease_secs, owners[0])).rowcount == 1
            if renewed:
                with self._lock:
                    self._expires = began + self._limits.lease_secs
            else:
                self._give_up()
        self.register(connection)
        with (
            contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected),
            connection.transaction(),
        ):
            Transaction(connection, self.owners, self._bounds).tidy()

    def _give_up(self) -> None:
        """The entries of this lease belong to others now."""
        with self._lock:
            if self._id is None:
                return
            self._id = None
            lost = frozenset(self._held)
        self._log.error("%s: the lease ran out; %d running executions have lost their entries", self._name, len(lost))
        if lost and self.on_lost is not None:
            self.on_lost(lost)
