"""A file of bearer tokens: their hashes, and the callers that they stand for."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from .._model.context import AgentContext
from .._model.errors import ConfigurationError
from .._model.protocols import Credentials
from .hashed_secrets import digest_of
from .watched_file import WatchedFile

PREFIX = "carmy_"
"""How a token begins, so that scanners for secrets can recognise one."""

_Text = Annotated[str, Meta(min_length=1)]
_Time = Annotated[dt.datetime, Meta(tz=True)]


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One token.

    Attributes:
        id: Its name, for `carmy token revoke`; no secret.
        hash: Its SHA-256, in lower-case hex.
        principal: The caller.
        permissions: The caller's.
        created: When it was made.
        expires: From when on it is refused; None for never.
    """

    id: _Text
    hash: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    principal: _Text
    permissions: tuple[_Text, ...] = ()
    created: _Time
    expires: _Time | None = None

    def is_expired(self, now: float) -> bool:
        """True once it is refused."""
        return self.expires is not None and now >= self.expires.timestamp()


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[TokenEntry, ...] = ()


class _Grant(NamedTuple):
    entry: TokenEntry
    context: AgentContext


def read_tokens(document: bytes) -> tuple[TokenEntry, ...]:
    """The tokens of a document.

    Raises:
        ConfigurationError: It is malformed, or two tokens have the same id or the same hash.
    """
    try:
        tokens = msgspec.json.decode(document, type=_Document).tokens
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"is not a file of tokens ({error}); `carmy token new` writes one") from None
    for names in ([token.id for token in tokens], [token.hash for token in tokens]):
        if len(set(names)) < len(names):
            raise ConfigurationError("two tokens have the same id or the same hash")
    return tokens


def _grants(document: bytes) -> dict[bytes, _Grant]:
    return {
        bytes.fromhex(entry.hash): _Grant(
            entry, AgentContext(principal=entry.principal, permissions=frozenset(entry.permissions))
        )
        for entry in read_tokens(document)
    }


class TokensFile:
    """Authenticates callers by the tokens of a file, which is read again when it changes.

    Args:
        path: The file.
        clock: Seconds since the epoch.

    Raises:
        ConfigurationError: The file cannot be used now.
    """

    __slots__ = ("_clock", "_file")

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self._file = WatchedFile(path, _grants, "auth.tokens_file")
        self._clock = clock
        self._file.read()

    def __call__(self, credentials: Credentials, /) -> AgentContext | None:
        """Return the context of the presented token; None if it is unknown, revoked or expired.

        Raises:
            AgentError: ``AUTHENTICATION_UNAVAILABLE``: the file cannot be used.
        """
        if credentials.bearer is None:
            return None
        # A lookup by hash: the time it takes depends on the hash of what is presented, which reveals nothing about other tokens.
        found = self._file.current().get(digest_of(credentials.bearer))
        return None if found is None or found.entry.is_expired(self._clock()) else found.context

    def __repr__(self) -> str:
        return f"<TokensFile: {self._file.path}>"


def new_token(
    principal: str, permissions: Sequence[str], *, now: float, seconds: float | None
) -> tuple[str, TokenEntry]:
    """A random token, and its entry.

    Args:
        principal: The caller.
        permissions: The caller's.
        now: Seconds since the epoch.
        seconds: How long it is accepted; None for ever.
    """
    name = secrets.token_hex(4)
    token = f"{PREFIX}{name}_{secrets.token_urlsafe(32)}"
    created = dt.datetime.fromtimestamp(int(now), dt.UTC)
    entry = TokenEntry(
        id=name,
        hash=digest_of(token).hex(),
        principal=principal,
        permissions=tuple(dict.fromkeys(permissions)),
        created=created,
        expires=None if seconds is None else created + dt.timedelta(seconds=seconds),
    )
    return token, entry


def list_tokens(path: Path) -> tuple[TokenEntry, ...]:
    """The tokens of a file; none if there is no file.

    Raises:
        ConfigurationError: It is malformed.
        OSError: It cannot be read.
    """
    try:
        return read_tokens(path.read_bytes())
    except FileNotFoundError:
        return ()
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def edit_tokens(path: Path, edit: Callable[[tuple[TokenEntry, ...]], Sequence[TokenEntry]]) -> None:
    """Replace the tokens of a file in one step. Edits of several processes follow one another.

    The file keeps its owner and its mode; a new one has mode 0600.

    Args:
        path: The file; of a link, the file behind it is replaced.
        edit: Returns the new tokens for the present ones. What it raises is raised, and the file stays as it is.

    Raises:
        ConfigurationError: The file is malformed.
        OSError: It cannot be read or written.
    """
    path = Path(os.path.realpath(path))
    with _locked(path.parent):
        tokens = tuple(edit(list_tokens(path)))
        document = msgspec.json.format(msgspec.json.encode(_Document(tokens)), indent=1) + b"\n"
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(document)
                file.flush()
                with contextlib.suppress(FileNotFoundError):
                    before = path.stat()
                    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                    os.fchmod(file.fileno(), before.st_mode & 0o777)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
