"""A file that lists accepted credentials, read again whenever it changes."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from .._model.errors import AgentError, ConfigurationError

T = TypeVar("T")

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of the file: some ten thousand tokens, or more keys than any issuer has."""

RETRY_SECONDS = 5
"""Advice to callers while the file cannot be used."""

log = logging.getLogger("carmy.engine")

_Stamp = tuple[int, ...] | None


class WatchedFile(Generic[T]):
    """The parsed content of a file.

    A change is detected by the file's identity, size and times. While the file is missing, unsafe or malformed, nothing is returned:
    a change that was meant to withdraw an access must not leave it in place.

    Args:
        path: The file; ``~`` is expanded.
        parse: Returns its content, or raises `ConfigurationError` for one that is malformed.
        setting: The name of the setting or parameter, for messages.
    """

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[bytes], T], setting: str) -> None:
        self.path = Path(path).expanduser().absolute()
        self._parse = parse
        self._setting = setting
        self._stamp: _Stamp = None
        self._content: T | ConfigurationError | None = None

    def read(self) -> T:
        """The content now.

        Raises:
            ConfigurationError: The file cannot be read, others may write to it, or it is malformed.
        """
        stamp = self._stamp_now()
        if self._content is None or stamp != self._stamp:
            self._stamp = stamp
            try:
                self._content = self._parse(self._read())
            except ConfigurationError as error:
                self._content = ConfigurationError(f"{self._setting}: {self.path}: {error}")
        if isinstance(self._content, ConfigurationError):
            raise self._content.with_traceback(None)
        return self._content

    def current(self) -> T:
        """`read`, for callers over a network. A file that has become unusable is logged once for each change.

        Raises:
            AgentError: ``AUTHENTICATION_UNAVAILABLE``: the file cannot be used.
        """
        known = self._content
        try:
            return self.read()
        except ConfigurationError as error:
            if error is not known:
                log.error("no credentials are accepted until this is corrected: %s", error)
            raise AgentError.standard(
                "AUTHENTICATION_UNAVAILABLE", "the credentials cannot be checked", retry_after=RETRY_SECONDS
            ) from None

    def _stamp_now(self) -> _Stamp:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (0, os.geteuid()):
                    raise ConfigurationError(
                        "other users may write to it, and so grant themselves access:"
                        " it must belong to the server's user or to root, with mode 0600 or 0644"
                    )
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(
                f"cannot be read ({error.strerror}); is the path right, and may the server read it?"
            ) from None
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"has more than {MAX_FILE_BYTES} bytes")
        return content
