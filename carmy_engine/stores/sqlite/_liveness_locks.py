"""Liveness locks: one locked byte of the database file for each open store.

A running entry names the store that reserved it. That store holds a lock on a byte of its own while its process lives; the kernel
drops the lock when the process ends, however it ends. So liveness depends neither on clocks nor on process ids, which are reused.

The bytes lie far beyond the end of the file. So the locks cannot be removed while the database stays.

The locks are those of open file descriptions (fcntl(2), ``F_OFD_SETLK``): two stores in one process exclude each other, and
closing the file elsewhere in the process does not drop them, as it would with the older kind. SQLite's locks are of that older
kind, so a descriptor of the database is closed only with the last one of this process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from ._errors import CannotOpenError

_FLOCK = "hhqqi"
"""``struct flock`` with 64-bit offsets: type, whence, start, length, pid (0 for this kind)."""

_OPENING = 0
"""The byte that is held while a store opens the database. Owners have the bytes from 1 on."""

_FIRST_BYTE = 1 << 60
"""Of the locks. A database has at most 2^48 bytes; SQLite's own locks are at 2^30."""

FileNumber = tuple[int, int]
"""Device and inode: two files with the same are one."""

_lock = threading.Lock()  # guards the one below
_descriptors: dict[FileNumber, tuple[set[int], set[int]]] = {}
"""Of each database that this process has open: the descriptors in use, and those that wait to be closed."""


class LivenessLocks:
    """The locks of one store.

    Args:
        path: Of the file.
        first_byte: Of the locks.

    Attributes:
        number: Of the file that is locked, which need not be the one that has its name by now.

    Raises:
        OSError: It cannot be opened.
        CannotOpenError: This system has no such locks.
    """

    def __init__(self, path: Path, first_byte: int = _FIRST_BYTE) -> None:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise CannotOpenError(f"{path}: the SQLite store needs the file locks of Linux (F_OFD_SETLK)")
        self._first_byte = first_byte
        with _lock:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            self.number = _number(os.fstat(self._file))
            used, _ = _descriptors.setdefault(self.number, (set(), set()))
            used.add(self._file)

    def release_all(self) -> None:
        """Drop every lock. Idempotent."""
        if self._file >= 0:
            self._set(self._first_byte, fcntl.F_UNLCK, length=0)  # to the end

    def close(self) -> None:
        """Drop every lock. Idempotent. The database must not be open through a connection of this store any more."""
        self.release_all()
        if self._file < 0:
            return
        with _lock:
            used, left = _descriptors[self.number]
            used.discard(self._file)
            left.add(self._file)
            self._file = -1
            if not used:
                del _descriptors[self.number]
                for file in left:
                    os.close(file)

    def claim(self, owner: int) -> bool:
        """Lock an owner's byte until `close`. False when another store holds it."""
        return self._set(self._first_byte + owner, fcntl.F_WRLCK)

    def release(self, owner: int) -> None:
        """Drop the lock of an owner's byte, if this store holds it."""
        self._set(self._first_byte + owner, fcntl.F_UNLCK)

    def is_alive(self, owner: int) -> bool:
        """Whether another store holds that owner's byte."""
        return self._first_locked(self._first_byte + owner, 1) is not None

    def alive(self) -> Iterator[int]:
        """The owners whose bytes other stores hold."""
        byte = self._first_locked(self._first_byte + _OPENING + 1, 0)
        while byte is not None:
            yield byte - self._first_byte
            byte = self._first_locked(byte + 1, 0)

    def _first_locked(self, first: int, length: int) -> int | None:
        """The first of these bytes that another store holds; a length of 0 stands for all that follow."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, first, length, 0)
        kind, _, start, *_ = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else max(int(start), first)

    def start_opening(self) -> bool:
        """Be the only store that opens the database. False when another one does right now."""
        return self._set(self._first_byte + _OPENING, fcntl.F_WRLCK)

    def end_opening(self) -> None:
        """Let others open it. Does nothing after `close`."""
        if self._file >= 0:
            self._set(self._first_byte + _OPENING, fcntl.F_UNLCK)

    def _set(self, byte: int, kind: int, length: int = 1) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, length, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True


def number_of(path: Path) -> FileNumber | None:
    """The number of the file that has this name now; None when there is none."""
    try:
        return _number(path.stat())
    except FileNotFoundError:
        return None


def _number(status: os.stat_result) -> FileNumber:
    return status.st_dev, status.st_ino
