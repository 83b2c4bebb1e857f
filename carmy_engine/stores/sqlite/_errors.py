"""Errors of the file. The message is for the log; callers receive only the word `reason`."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from ..._model.protocols import StoreError
from .._writer import UnexpectedError


class FileLockedError(StoreError):
    """Another process held the file for longer than a caller should wait."""

    reason = "locked"


class DiskFullError(StoreError):
    """There is no room on the disk."""

    reason = "disk_full"


class CorruptFileError(StoreError):
    """The file is damaged, or not a file of this store at all."""

    reason = "corrupt"


class ReadOnlyFileError(StoreError):
    """The file or its directory cannot be written."""

    reason = "read_only"


class CannotOpenError(StoreError):
    """The file cannot be opened or created."""

    reason = "cannot_open"


class NewerFileError(StoreError):
    """A later version has written the file."""

    reason = "newer_version"


class FileReplacedError(StoreError):
    """The file was removed or replaced while it was open."""

    reason = "replaced"


class DeviceError(StoreError):
    """Reading or writing the file failed."""

    reason = "io_error"


def translate(error: apsw.Error, path: Path) -> StoreError:
    """What SQLite's error means for the store in `path`."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return FileLockedError(f"{path} is locked: another process has held it for too long ({error})")
        case apsw.FullError():
            return DiskFullError(f"{path}: the disk is full ({error}); make room, and calls will succeed again")
        case apsw.NotADBError():
            return CorruptFileError(f"{path} is not an SQLite file ({error}); give the store a file of its own")
        case apsw.CorruptError():
            return CorruptFileError(
                f"{path} is corrupt ({error}); stop every process that uses it and restore a backup"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return ReadOnlyFileError(f"{path} cannot be written ({error}); its directory must be writable as well")
        case apsw.CantOpenError():
            return CannotOpenError(f"{path} cannot be opened ({error}); its directory must exist and be writable")
        case apsw.IOError():
            return DeviceError(f"{path}: reading or writing failed ({error})")
        case _:
            return UnexpectedError(f"{path}: {type(error).__name__}: {error}")


def translate_os(error: OSError, path: Path) -> StoreError:
    """What the operating system's error means, before SQLite has come into play."""
    text = f"{path}: {error.strerror or error}"
    match error:
        case PermissionError():
            return ReadOnlyFileError(f"{text}; the store needs a directory that it may write to")
        case FileNotFoundError() | NotADirectoryError() | IsADirectoryError():
            return CannotOpenError(f"{text}; the directory must exist, and the path name a file")
        case _:
            return _BY_NUMBER.get(error.errno or 0, CannotOpenError)(text)


_BY_NUMBER: dict[int, type[StoreError]] = {
    errno.ENOSPC: DiskFullError,
    errno.EDQUOT: DiskFullError,
    errno.EROFS: ReadOnlyFileError,
    errno.EIO: DeviceError,
}
