"""Who is alive: one byte of a lock file for each open store.

A running entry names the store that reserved it. That store holds a lock on a byte of its own for as long as its process
lives; the kernel drops the lock when the process ends, however it ends. So neither clocks nor process numbers, which are
used again, have a say in who is dead.

The locks are those of open file descriptions (fcntl(2), ``F_OFD_SETLK``): two stores in one process exclude each other, and
closing the file elsewhere in the process does not drop them, as it would with the older kind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from ._errors import CannotOpenError

_FLOCK = "hhqqi"
"""``struct flock`` with 64-bit offsets: type, whence, start, length, pid (0 for this kind)."""

_OPENING = 0
"""The byte that is held while a store opens the database. Owners have the bytes from 1 on."""


class Owners:
    """The lock file beside the database.

    Args:
        path: Of the lock file; made if it is missing, for its owner only.

    Raises:
        OSError: It cannot be opened.
        CannotOpenError: This system has no such locks.
    """

    def __init__(self, path: Path) -> None:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise CannotOpenError(f"{path}: the SQLite store needs the file locks of Linux (F_OFD_SETLK)")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        """Drop every lock. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def claim(self, owner: int) -> bool:
        """Lock an owner's byte until `close`. False when somebody else holds it."""
        return self._set(owner, fcntl.F_WRLCK)

    def is_alive(self, owner: int) -> bool:
        """Whether somebody else holds that owner's byte."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, owner, 1, 0)
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        kind: int = struct.unpack(_FLOCK, answer)[0]
        return kind != fcntl.F_UNLCK

    def start_opening(self) -> bool:
        """Be the only one who opens the database. False when somebody else does right now."""
        return self._set(_OPENING, fcntl.F_WRLCK)

    def end_opening(self) -> None:
        """Let others open it."""
        self._set(_OPENING, fcntl.F_UNLCK)

    def _set(self, byte: int, kind: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True
