"""Unix sockets: created for their owner alone, replaced if their server has died, removed at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

SOCKET_MODE = 0o600
"""Mode of the file. Write permission is permission to connect, so only the owner has it."""


class SocketFile:
    """The file of a socket that this process has bound.

    Args:
        path: Its absolute path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Remove the file, unless another server has replaced it."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def bind_unix(name: str, backlog: int) -> tuple[socket.socket, SocketFile]:
    """Listen on a path. The file of a server that has died is replaced.

    Args:
        name: The path; ``~`` is expanded.
        backlog: Connections that the kernel queues.

    Raises:
        OSError: The path cannot be bound; ``EADDRINUSE`` if a server listens there, or if the file is no socket.
    """
    path = Path(name).expanduser().absolute()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    file: SocketFile | None = None
    try:
        _clear_away(path)
        sock.bind(str(path))
        file = SocketFile(path)
        path.chmod(SOCKET_MODE)
        sock.listen(backlog)  # the mode is set before the first client can connect
    except BaseException:
        sock.close()
        if file is not None:
            file.remove()
        raise
    return sock, file


def check_directory(name: str) -> None:
    """Check that a socket could be bound on a path.

    Raises:
        OSError: The directory does not exist.
    """
    if not Path(name).expanduser().absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _clear_away(path: Path) -> None:
    """Remove the file of a server that ended without removing it."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EADDRINUSE, "there is a file which is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        visitor.setblocking(False)
        if visitor.connect_ex(str(path)) != errno.ECONNREFUSED:  # a server with a full queue, or of another user
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
