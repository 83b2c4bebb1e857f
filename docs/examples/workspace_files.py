"""A directory that nothing leads out of: no path, no symbolic link, and no link that appears at the wrong moment.

Checking a path first and opening it afterwards leaves a gap in which somebody can put a link in its place. So nothing is
checked by name here: every component is opened relative to the directory before it, and the kernel is told not to follow
links (``O_NOFOLLOW``). Links are read and followed by hand, ``..`` in their targets goes back along the directories that
are held open, and a step above the root is refused. Whatever is swapped meanwhile, each step starts inside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from workspace_errors import exists, explained, invalid, not_a_file, outside

from carmy_engine import AgentError, ErrorCategory

MAX_DEPTH = 64
"""Directories below the root. Each is held open while a path is followed, and a process may open about a thousand."""

MAX_LINKS = 40
"""Symbolic links in one path, as in the kernel; more is a loop."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO without a writer must not hold us


class Place(NamedTuple):
    """Where something is, or would be: a name in a directory that is held open."""

    directory: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A file or a symbolic link that `Workspace.walk` came by. Use it before asking for the next one.

    Attributes:
        path: From the root, with slashes.
        size: Bytes; 0 for links.
        is_link: It is a symbolic link, which `Workspace.walk` does not follow.
        place: Where it is.
    """

    path: str
    size: int
    is_link: bool
    place: Place


class Workspace:
    """A directory for agents. All paths are relative to it; messages never tell where it is.

    Args:
        root: The directory. It is opened now, and meant from then on, even if it is renamed.

    Raises:
        OSError: There is no such directory.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._root)

    @contextlib.contextmanager
    def place(self, path: str, *, follow: bool = True, make_directories: bool = False) -> Iterator[Place]:
        """Follow a path to its last name, which need not exist.

        Args:
            path: From the root, with slashes.
            follow: If the last name is a symbolic link, go on to what it means.
            make_directories: Create the directories on the way that are missing.

        Raises:
            AgentError: The path leads out, or through something that is not a directory.
        """
        trail = [os.dup(self._root)]
        try:
            with explained(path):
                name = self._follow(trail, path, follow=follow, make_directories=make_directories)
            yield Place(trail[-1], name)
        finally:
            for descriptor in trail:
                os.close(descriptor)

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Open a directory; an empty path is the root.

        Raises:
            AgentError: There is none, or the path leads out.
        """
        with self.place(path) as place:
            with explained(path):
                descriptor = os.open(place.name, _DIRECTORY, dir_fd=place.directory)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of a regular file.

        Raises:
            AgentError: ``FILE_TOO_LARGE`` beyond `limit` bytes; ``NOT_A_FILE``; or the path leads nowhere or out.
        """
        with self.place(path) as place:
            return read_at(place, path, limit)

    def write(
        self,
        path: str,
        content: bytes,
        *,
        overwrite: bool,
        expected_sha256: str | None,
        make_directories: bool,
        check: Callable[[], None],
    ) -> bool:
        """Put a file in place at once: readers see the old content or the new one, never a part.

        Args:
            path: From the root.
            content: All of it.
            overwrite: Replace a file that is there.
            expected_sha256: Replace it only if it is this one, in lower-case hex.
            make_directories: Create the directories on the way that are missing.
            check: Called before the point of no return; what it raises leaves everything as it was.

        Returns:
            True when there was no such file.

        Raises:
            AgentError: ``FILE_EXISTS``, ``FILE_CHANGED``, ``FILE_NOT_FOUND`` ...
        """
        with self.place(path, make_directories=make_directories) as place, explained(path):
            before = _status(place)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise not_a_file(path, before.st_mode)
            if expected_sha256 is not None:
                _check_unchanged(place, path, before, expected_sha256)
            elif before is not None and not overwrite:
                raise exists(path)
            temporary = f".{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o666, dir_fd=place.directory)
            try:
                with open(descriptor, "wb") as file:
                    if before is not None:
                        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
                    file.write(content)
                    file.flush()
                    os.fsync(descriptor)
                check()
                _put(place, temporary, path, replace=before is not None)
            finally:
                with contextlib.suppress(FileNotFoundError):  # it has become the file
                    os.unlink(temporary, dir_fd=place.directory)
            os.fsync(place.directory)
            return before is None

    def delete(self, path: str) -> int:
        """Delete a file, or a symbolic link itself; return its size in bytes.

        Raises:
            AgentError: ``FILE_NOT_FOUND``, ``IS_A_DIRECTORY``, or the path leads out.
        """
        with self.place(path, follow=False) as place, explained(path):
            before = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            if stat.S_ISDIR(before.st_mode):
                raise not_a_file(path, before.st_mode)
            os.unlink(place.name, dir_fd=place.directory)
            return before.st_size

    def walk(self, path: str, *, hidden: bool) -> Generator[Found, None, None]:
        """Every file and link below a directory, in the order of their names. Links are not followed.

        What cannot be read, and names that cannot be shown, are passed over. Close the iterator (`contextlib.closing`)
        when leaving it early: it holds directories open.

        Args:
            path: The directory; empty for the root.
            hidden: Include names that begin with a dot.

        Raises:
            AgentError: There is no such directory, or the path leads out.
        """
        with self.directory(path) as directory:
            yield from _walk(directory, "/".join(_parts(path)), hidden, MAX_DEPTH)

    def _follow(self, trail: list[int], path: str, *, follow: bool, make_directories: bool) -> str:
        """Extend `trail` along the path; return the last name."""
        pending = _parts(path)[::-1]
        links = 0
        while pending:
            name = pending.pop()
            if name == "..":  # of a link; a caller's path has none
                if len(trail) == 1:
                    raise outside(path, "a symbolic link leads out of the workspace")
                os.close(trail.pop())
                continue
            target = _link_target(trail[-1], name) if pending or follow else None
            if target is not None:
                links += 1
                if target.startswith("/"):
                    raise outside(path, "a symbolic link leads out of the workspace")
                if links > MAX_LINKS:
                    raise outside(path, "too many symbolic links")
                pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
            elif not pending:
                return name
            elif len(trail) > MAX_DEPTH:
                raise invalid(path, f"it is more than {MAX_DEPTH} directories deep")
            else:
                trail.append(_enter(trail[-1], name, make=make_directories))
        return "."


def read_at(place: Place, path: str, limit: int) -> bytes:
    """The bytes of a regular file; see `Workspace.read`."""
    with explained(path), _opened(place, path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise AgentError(
            "FILE_TOO_LARGE",
            f"{path!r} is larger than {limit} bytes",
            ErrorCategory.CAPACITY,
            recoverable=True,
            suggested_action="Look for the part that you need with search_files, or with a command such as sed.",
        )
    return content


@contextlib.contextmanager
def _opened(place: Place, path: str) -> Iterator[io.BufferedReader]:
    descriptor = os.open(place.name, _FILE, dir_fd=place.directory)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise not_a_file(path, mode)
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _walk(directory: int, prefix: str, hidden: bool, depth: int) -> Generator[Found, None, None]:
    try:
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if (entry.name.startswith(".") and not hidden) or not entry.name.isprintable():
            continue
        path = f"{prefix}/{entry.name}" if prefix else entry.name
        place = Place(directory, entry.name)
        try:
            if entry.is_symlink():
                yield Found(path, 0, True, place)
            elif entry.is_file(follow_symlinks=False):
                yield Found(path, entry.stat(follow_symlinks=False).st_size, False, place)
            elif entry.is_dir(follow_symlinks=False) and depth:
                below = os.open(entry.name, _DIRECTORY, dir_fd=directory)
                try:
                    yield from _walk(below, path, hidden, depth - 1)
                finally:
                    os.close(below)
        except OSError:
            continue  # gone meanwhile, or not for us


def _parts(path: str) -> list[str]:
    """The names in a caller's path.

    Raises:
        AgentError: It is absolute, has ``..`` or characters that no path has.
    """
    if path.startswith("/"):
        raise outside(path, "paths are relative to the workspace")
    if "\0" in path:
        raise invalid(path, "it contains a zero byte")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise outside(path, "a path may not contain '..'")
    return parts


def _link_target(directory: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None  # not a link, or nothing at all
        raise


def _enter(directory: int, name: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _status(place: Place) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_unchanged(place: Place, path: str, before: os.stat_result | None, expected: str) -> None:
    actual = None
    if before is not None:
        with _opened(place, path) as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected.lower():
        raise AgentError(
            "FILE_CHANGED",
            f"{path!r} is not the file that was expected",
            ErrorCategory.CONFLICT,
            recoverable=True,
            suggested_action="Read the file again and decide anew.",
            details={"sha256": actual},
        )


def _put(place: Place, temporary: str, path: str, *, replace: bool) -> None:
    if replace:
        os.replace(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        return
    try:
        # Unlike a rename, a link never replaces what somebody else has put there meanwhile.
        os.link(temporary, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory, follow_symlinks=False)
    except FileExistsError:
        raise exists(path) from None
