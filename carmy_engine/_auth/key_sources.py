"""Where the keys of an issuer come from: the program, a file, or a URL."""

from __future__ import annotations

import ipaddress
import logging
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import trio

from .._model.error_boundary import reason_of
from .._model.errors import AgentError, ConfigurationError
from .watched_file import WatchedFile

if TYPE_CHECKING:
    from .jose import VerificationKey  # of the extra `auth`

Keys = Sequence["VerificationKey"]
Parse = Callable[[bytes], Keys]

REFRESH_SECONDS = 300.0
"""Age of fetched keys at which they are fetched again: so long does a key that its issuer has withdrawn remain valid."""

RETRY_SECONDS = 10.0
"""Least time between two fetches. Tokens with unknown keys, which strangers can send, cause no more."""

KEEP_SECONDS = 86_400.0
"""Age at which keys are dropped that could not be fetched again."""

FETCH_SECONDS = 5.0
"""For each step of one fetch: connecting, and each read. `AUTHENTICATION_SECONDS` of a transport limits the whole."""

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Of the document with the keys. Issuers publish a few kilobytes."""

log = logging.getLogger("carmy.engine")


class KeySource(Protocol):
    """The keys of an issuer."""

    def at_once(self, *, is_known: Callable[[Keys], bool]) -> Keys | None:
        """The keys without waiting; None if they have to be fetched.

        Args:
            is_known: Whether keys include the one that the token names.

        Raises:
            AgentError: ``AUTHENTICATION_UNAVAILABLE``.
        """
        ...

    async def fetch(self) -> Keys:
        """The keys, fetched again.

        Raises:
            AgentError: ``AUTHENTICATION_UNAVAILABLE``.
        """
        ...


class GivenKeys:
    """Keys that the program gives."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def at_once(self, *, is_known: Callable[[Keys], bool]) -> Keys:
        """See `KeySource`."""
        return self._keys

    async def fetch(self) -> Keys:
        """See `KeySource`."""
        return self._keys


class FileKeys:
    """Keys in a file, read again when it changes.

    Raises:
        ConfigurationError: The file cannot be used now.
    """

    def __init__(self, path: str | os.PathLike[str], parse: Parse) -> None:
        self._file = WatchedFile(path, parse, "jwks")
        self._file.read()

    def at_once(self, *, is_known: Callable[[Keys], bool]) -> Keys:
        """See `KeySource`."""
        return self._file.current()

    async def fetch(self) -> Keys:
        """See `KeySource`."""
        return self._file.current()


class UrlKeys:
    """Keys at a URL, fetched when the first token arrives, when they are old, and when a token names an unknown one.

    Args:
        url: ``https``; ``http`` only on this machine. Redirects are not followed.
        parse: Returns the keys of a document.
        clock: Seconds of a clock that never goes back.

    Raises:
        ConfigurationError: It is no such URL.
    """

    def __init__(self, url: str, parse: Parse, clock: Callable[[], float] = time.monotonic) -> None:
        check_url(url)
        self._url = url
        self._parse = parse
        self._clock = clock
        self._keys: Keys | None = None
        self._fetched = 0.0
        self._tried: float | None = None
        self._fetching = trio.Lock()

    def at_once(self, *, is_known: Callable[[Keys], bool]) -> Keys | None:
        """See `KeySource`."""
        now = self._clock()
        if self._keys is not None and now >= self._fetched + KEEP_SECONDS:
            self._keys = None
        may_fetch = self._tried is None or now >= self._tried + RETRY_SECONDS
        if self._keys is None:
            if may_fetch or self._fetching.locked():
                return None
            raise _unavailable(self._tried, now)
        if is_known(self._keys):
            is_fresh = now < self._fetched + REFRESH_SECONDS
            return self._keys if is_fresh or not may_fetch or self._fetching.locked() else None
        return None if may_fetch or self._fetching.locked() else self._keys

    async def fetch(self) -> Keys:
        """See `KeySource`. Callers that arrive meanwhile wait for the same fetch."""
        tried = self._tried
        async with self._fetching:
            if self._tried == tried:
                # Before the fetch: one that is cancelled by a client that leaves counts as well.
                self._tried = self._clock()
                try:
                    document = await trio.to_thread.run_sync(_download, self._url, abandon_on_cancel=True)
                    self._keys = self._parse(document)
                    self._fetched = self._clock()
                except (OSError, ValueError, ConfigurationError) as error:
                    log.warning("the keys of tokens could not be fetched from %s: %s", self._url, reason_of(error))
        if self._keys is None:
            raise _unavailable(self._tried, self._clock())
        return self._keys


def _unavailable(tried: float | None, now: float) -> AgentError:
    wait = RETRY_SECONDS if tried is None else max(1.0, tried + RETRY_SECONDS - now)
    return AgentError.standard(
        "AUTHENTICATION_UNAVAILABLE", "the keys that verify tokens cannot be fetched", retry_after=round(wait)
    )


def check_url(url: str) -> None:
    """Refuse a URL whose document others could change.

    Raises:
        ConfigurationError: It is neither ``https`` nor on this machine, or it contains a password.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.username is not None or parts.password is not None or not host:
        raise ConfigurationError("jwks: the URL of the keys has a host, and no user and password")
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)):
        return
    raise ConfigurationError(
        "jwks: the URL of the keys must be https: a changed document could add keys that sign tokens"
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the configured URL alone is trusted."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """See the class; the answer then counts as an error."""
        return


def _download(url: str) -> bytes:
    """The document at a URL. In a worker thread.

    Raises:
        OSError: It could not be read; `urllib.error.URLError` among them.
        ValueError: It is too long.
    """
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - checked by `check_url`
    try:
        with opener.open(request, timeout=FETCH_SECONDS) as answer:
            document: bytes = answer.read(MAX_DOCUMENT_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"the answer is {error.code}") from None
    if len(document) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")
    return document


def key_source(jwks: str | os.PathLike[str], parse: Parse) -> KeySource:
    """The source of a URL, or of a file.

    Raises:
        ConfigurationError: The URL cannot be trusted, or the file cannot be used.
    """
    text = os.fspath(jwks)
    return UrlKeys(text, parse) if "://" in text else FileKeys(Path(text), parse)
