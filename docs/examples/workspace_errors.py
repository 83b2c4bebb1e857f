"""What agents are told when a path or a file is not what they thought. No message tells where the workspace is."""

from __future__ import annotations

import contextlib
import errno
import stat
from collections.abc import Iterator

from carmy_engine import AgentError, ErrorCategory


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn the errors of the operating system into errors for agents, which name the path as the caller knows it."""
    try:
        yield
    except OSError as error:
        raise _explain(error, path) from None


def _explain(error: OSError, path: str) -> AgentError:
    if error.errno == errno.ENOENT or error.errno == errno.ENOTDIR:
        return AgentError(
            "FILE_NOT_FOUND",
            f"there is no {path!r}",
            ErrorCategory.NOT_FOUND,
            recoverable=True,
            suggested_action="Look at what there is with list_files.",
        )
    if error.errno == errno.ELOOP:
        return outside(path, "a symbolic link has appeared in it")
    if error.errno == errno.EISDIR:
        return not_a_file(path, stat.S_IFDIR)
    if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
        return invalid(path, "the system does not accept it")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AgentError("NOT_ALLOWED", f"the system does not allow this with {path!r}", ErrorCategory.PERMISSION)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
        return AgentError("NO_SPACE", f"no room for {path!r}", ErrorCategory.CAPACITY, retryable=True)
    return AgentError("FILE_ERROR", f"{path!r}: {error.strerror}", ErrorCategory.INTERNAL)


def outside(path: str, why: str) -> AgentError:
    """A path that leads out, or would if it were followed."""
    return AgentError(
        "PATH_OUTSIDE_WORKSPACE",
        f"{path!r} is not in the workspace: {why}",
        ErrorCategory.PERMISSION,
        recoverable=True,
        suggested_action="Give a path from the root of the workspace, such as 'docs/README.md'.",
    )


def invalid(path: str, why: str) -> AgentError:
    """A path that cannot be one."""
    return AgentError(
        "INVALID_PATH", f"{path[:200]!r} is not a path: {why}", ErrorCategory.VALIDATION, recoverable=True
    )


def exists(path: str) -> AgentError:
    """A file that may not be replaced."""
    return AgentError(
        "FILE_EXISTS",
        f"there is a file {path!r} already",
        ErrorCategory.CONFLICT,
        recoverable=True,
        suggested_action="Set overwrite, or expected_sha256 to the hash that read_file gave.",
    )


def not_a_file(path: str, mode: int) -> AgentError:
    """Something else where a file is needed; `mode` says what."""
    if stat.S_ISDIR(mode):
        return AgentError("IS_A_DIRECTORY", f"{path!r} is a directory", ErrorCategory.VALIDATION, recoverable=True)
    return AgentError("NOT_A_FILE", f"{path!r} is not a regular file", ErrorCategory.VALIDATION, recoverable=True)
