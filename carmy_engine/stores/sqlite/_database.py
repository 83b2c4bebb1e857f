"""The database file and its connection. Everything here runs in the writer's thread, and may block."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import apsw

from ..._model.protocols import StoreError
from ._connection import Connection
from ._entries import Bounds, Entries
from ._errors import FileLockedError, FileReplacedError, translate, translate_os
from ._liveness_locks import FileNumber, LivenessLocks, number_of
from ._schema import LOCKED_IN_FILE, check_version, migrate, retire_lock_file

log = logging.getLogger("carmy.engine")

PAUSE_SECONDS = 0.003
"""Longest pause between two attempts to get hold of the file: about as long as a transaction with one sync."""

LEAVING_ATTEMPTS = 50
"""To see a store drop its lock that has left the table of owners: it does so at once, unless its thread has to wait."""

WAL_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut back to when a burst has made it longer."""

Durability = Literal["full", "normal"]
"""``full``: what was answered survives a power cut. ``normal``: it survives the process, not always the power cut."""


class Database:
    """The connection, made when it is first needed, and made anew after an error.

    Attributes:
        path: Of the file. Beside it are ``-wal`` and ``-shm``.
    """

    def __init__(self, path: Path, durability: Durability, bounds: Bounds) -> None:
        self.path = path
        self._durability = durability
        self._bounds = bounds
        self._connection: Connection | None = None
        self._locks: LivenessLocks | None = None
        self._owner = 0
        self._files: _Files | None = None
        self._written_at = 0
        self._give_up_at = 0.0

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def transact(self, work: Callable[[Entries], None]) -> None:
        """Call `work` in a transaction; see `transaction`."""
        with self.transaction() as entries:
            work(entries)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Entries]:
        """A transaction that may write; committed at the end of the block, rolled back if the block raises.

        Raises:
            StoreError: Nothing was changed. After anything but `FileLockedError` the next transaction opens the file anew.
        """
        self._give_up_at = time.monotonic() + self._bounds.limits.patience_secs
        try:
            connection, locks = self._opened()
            connection.run("BEGIN IMMEDIATE")
            try:
                yield Entries(connection, locks, self._owner, self._bounds, self.path)
                connection.run("COMMIT")
                self._written_at = _changed_at(self.path)
            finally:
                if connection.in_transaction:
                    connection.run("ROLLBACK")
        except apsw.Error as error:
            fault = translate(error, self.path)
            if not isinstance(fault, FileLockedError):
                self._disconnect()
            raise fault from error
        except OSError as error:
            self._disconnect()
            raise translate_os(error, self.path) from error
        except StoreError:
            self._disconnect()
            raise

    def close(self) -> None:
        """Interrupt the running entries of this store, and close the file. Idempotent.

        Raises:
            StoreError: Entries could not be interrupted. The file is closed all the same; the next process that opens it does it.
        """
        try:
            if self._connection is not None:
                with self.transaction() as entries:
                    entries.leave()
        finally:
            if self._locks is not None:
                self._locks.release_all()  # before the connection is closed, which may take a while
            self._disconnect()
            if self._locks is not None:
                self._locks.close()
                self._locks = None

    def _opened(self) -> tuple[Connection, LivenessLocks]:
        if self._connection is not None and self._locks is not None:
            self._check_files()
            return self._connection, self._locks
        _create(self.path)
        locks = self._locks
        if locks is None:
            self._locks = locks = LivenessLocks(self.path)
        while not locks.start_opening():
            if not self._pause():
                raise FileLockedError(f"{self.path} is locked: another process has been opening it for too long")
        try:
            if locks.number != number_of(self.path):
                raise self._replaced(locks)
            self._connection = connection = self._connect(locks)
            self._register(connection, locks)
            self._files = _files(self.path)
        except BaseException:
            self._disconnect()
            raise
        finally:
            locks.end_opening()
        return connection, locks

    def _check_files(self) -> None:
        """Check that the files are still those that the connection has open. SQLite would write to deleted ones.

        Raises:
            FileReplacedError: They are not.
        """
        assert self._connection is not None
        assert self._locks is not None
        found = _files(self.path)
        if found == self._files:
            return
        if found.main != self._locks.number:
            raise self._replaced(self._locks)
        # What only a deleted log holds, SQLite writes to the file when it closes the connection. It must not overwrite what
        # another process has written since.
        if _has_begun(found, self.path) or _changed_at(self.path) != self._written_at:
            self._connection.leave_log()
        raise FileReplacedError(
            f"{self.path}-wal or -shm was removed or replaced while it was open; the last answers may be lost with it"
        )

    def _replaced(self, locks: LivenessLocks) -> FileReplacedError:
        """Let go of the locks on a file that has another name now, or none."""
        self._disconnect()
        locks.close()
        self._locks = None
        self._owner = 0  # in another file, this number is another store's
        return FileReplacedError(
            f"{self.path} was removed or replaced while it was open; what it held is not known here any more"
        )

    def _connect(self, locks: LivenessLocks) -> Connection:
        connection = Connection(self.path, self._pause)
        try:
            # Before anything is changed.
            version = check_version(connection, self.path)
            self._check_living(connection if version else None, locks)
            if 0 < version < LOCKED_IN_FILE:
                retire_lock_file(connection, self.path)
            _make_private(self.path)
            connection.run("PRAGMA journal_mode = WAL")
            connection.run(f"PRAGMA synchronous = {self._durability}")
            connection.run(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            migrate(connection, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _register(self, connection: Connection, locks: LivenessLocks) -> None:
        """Insert an owner, unless one is left from before an error, and interrupt the entries of dead owners."""
        claimed = False
        connection.run("BEGIN IMMEDIATE")
        try:
            if connection.row("SELECT 1 FROM owners WHERE id = ?", (self._owner,)) is None:
                locks.release(self._owner)
                values = (os.getpid(), self._bounds.clock())
                self._owner = connection.insert("INSERT INTO owners (pid, opened_at) VALUES (?, ?)", values)
                claimed = locks.claim(self._owner)
                assert claimed, "an owner's id is not used twice, and those alive are known"
            Entries(connection, locks, self._owner, self._bounds, self.path).interrupt_dead_owners()
            connection.run("COMMIT")
        finally:
            if connection.in_transaction:
                connection.run("ROLLBACK")
                if claimed:
                    locks.release(self._owner)

    def _check_living(self, connection: Connection | None, locks: LivenessLocks) -> None:
        """Check that every living store is in the table of owners.

        Args:
            connection: None for a file without tables.
            locks: Of this store.

        Raises:
            FileReplacedError: One is not: the log with its entries is lost.
        """
        for _ in range(LEAVING_ATTEMPTS):
            alive = set(locks.alive())
            if connection is not None:
                alive.difference_update(owner for (owner,) in connection.rows("SELECT id FROM owners"))
            if not alive:
                return
            self._pause()  # a store that closes leaves the table a moment before it drops its lock
        raise FileReplacedError(
            f"{self.path}-wal was removed while another process had it open, and what it held is not known here; that process"
            " notices with its next call, or when it ends"
        )

    def _disconnect(self) -> None:
        connection, self._connection, self._files = self._connection, None, None
        if connection is not None:
            connection.close()

    def _pause(self) -> bool:
        """Wait a moment for others; False when the patience is at its end. Of random length, lest two keep in step."""
        if time.monotonic() >= self._give_up_at:
            return False
        time.sleep(random.uniform(0.0, PAUSE_SECONDS))  # noqa: S311 - no secret
        return True


def check_file(path: Path) -> None:
    """Read the version of the file; where there is no file, check that its directory may be written.

    Raises:
        StoreError: That failed.
    """
    try:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not all(os.access(each, os.W_OK) for each in (path.parent, path) if each.exists()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not path.exists():
            return
        connection = Connection(path, lambda: False)
        try:
            check_version(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error
    except OSError as error:
        raise translate_os(error, path) from error


def _create(path: Path) -> None:
    """Make an empty file that only its owner can read and write, if there is none. SQLite gives those beside it its mode.

    An existing file is not opened for that: closing it would drop the locks that SQLite has on it in this process.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _make_private(path: Path) -> None:
    """Narrow the mode of a file that is known to be ours, and of those beside it."""
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(each.stat().st_mode)
            if mode & 0o077:
                log.warning("%s could be read by others (mode %o); it is private now", each, mode)
                each.chmod(mode & 0o700)


class _Files(NamedTuple):
    """The files of a database that has a connection."""

    main: FileNumber | None
    write_ahead_log: FileNumber | None
    shared_memory: FileNumber | None


def _files(path: Path) -> _Files:
    return _Files(*(number_of(path.with_name(path.name + end)) for end in ("", "-wal", "-shm")))


def _has_begun(found: _Files, path: Path) -> bool:
    """Whether another process has written to the log that has its name now."""
    if found.write_ahead_log is None:
        return False
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
