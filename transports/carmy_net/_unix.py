"""Sockets with a file: made for their owner alone, cleared away when their server has died, removed at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

SOCKET_MODE = 0o600
"""Of the file. Who may write it may connect, so it is its owner and nobody else."""


class SocketFile:
    """The file of a socket that this process has bound.

    Args:
        path: Absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Remove it, unless it is gone or another server's meanwhile."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def bind_unix(name: str, backlog: int) -> tuple[socket.socket, SocketFile]:
    """Listen on a path. A file that a server has left which runs no more is replaced.

    Args:
        name: The path of its file; ``~`` is understood.
        backlog: Of connections that nobody has accepted yet.

    Raises:
        OSError: It cannot be had; ``EADDRINUSE`` when a server listens there, or when there is a file of another kind.
    """
    path = Path(name).expanduser().absolute()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    file: SocketFile | None = None
    try:
        _clear_away(path)
        sock.bind(str(path))
        file = SocketFile(path)
        path.chmod(SOCKET_MODE)
        sock.listen(backlog)  # nobody could connect before
    except BaseException:
        sock.close()
        if file is not None:
            file.remove()
        raise
    return sock, file


def check_directory(name: str) -> None:
    """Check that a socket could have its file on a path.

    Raises:
        OSError: The directory does not exist.
    """
    if not Path(name).expanduser().absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _clear_away(path: Path) -> None:
    """Remove what a server has left that ended without doing so."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EADDRINUSE, "there is a file which is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.setblocking(False)
        if visitor.connect_ex(str(path)) != errno.ECONNREFUSED:  # its queue may be full, or its rights not ours
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
