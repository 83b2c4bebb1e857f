"""The commands ``token``: make, list and revoke the tokens of a file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from .._app.app import App
from .._auth.token_file import TokenEntry, edit_tokens, list_tokens, new_token
from .._config.settings import Settings
from .._config.sources import read_deployment
from .._model.suggestions import closest_names
from ._notices import say
from ._outcome import SUCCESS, Failure, UsageError
from ._stdout import claimed_stdout
from ._store_commands import AsJson
from ._table import moment, table
from ._target import load_target

Principal = Annotated[str, Parameter(help="The caller that the token stands for.")]
Permission = Annotated[
    list[str] | None, Parameter(name="--permission", negative="", help="A permission of the caller; may be repeated.")
]
Expires = Annotated[str | None, Parameter(help="How long it is accepted: 90m, 12h, 30d. Default: for ever.")]
TokensPath = Annotated[
    str | None, Parameter(name="--file", help="The file. Default: that of the setting auth.tokens_file.")
]
Ids = Annotated[str, Parameter(help="The ids of the tokens, as `token list` prints them.")]

_SPAN = re.compile(r"(?P<number>[1-9][0-9]{0,8})(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_SECONDS = 100 * 365 * 86_400

_HEAD = ("ID", "PRINCIPAL", "PERMISSIONS", "CREATED", "EXPIRES")


class Tokens:
    """The commands ``token new``, ``list`` and ``revoke``, over the settings of one application or of the working directory."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    def new(
        self,
        *,
        principal: Principal,
        permission: Permission = None,
        expires: Expires = None,
        file: TokensPath = None,
    ) -> int:
        """Make a token, and print it once: the file keeps its hash only."""
        if not principal or "" in (permission or ()):
            raise UsageError("--principal and --permission need a name that is not empty")
        seconds = None if expires is None else _seconds(expires)
        with claimed_stdout() as out:
            path = self._path(file)
            token, entry = new_token(principal, permission or [], now=time.time(), seconds=seconds)
            _edit(path, lambda tokens: (*tokens, entry))
            out(f"{token}\n".encode())
        say(f"the token {entry.id} of {principal} is in {path}; it is not shown again")
        return SUCCESS

    def list(self, *, file: TokensPath = None, json: AsJson = False) -> int:
        """List the tokens of the file, without the secrets."""
        with claimed_stdout() as out:
            tokens = _read(self._path(file))
            if json:
                out(b"".join(msgspec.json.encode(token) + b"\n" for token in tokens))
            else:
                out(table(_HEAD, [_row(token, time.time()) for token in tokens]))
        return SUCCESS

    def revoke(self, *ids: Ids, file: TokensPath = None) -> int:
        """Remove tokens from the file. Servers that run refuse them from the next request on."""
        if not ids:
            raise UsageError("token revoke needs the id of a token; `token list` prints them")

        def without(tokens: tuple[TokenEntry, ...]) -> tuple[TokenEntry, ...]:
            known = [token.id for token in tokens]
            for unknown in set(ids).difference(known):
                near = closest_names(unknown, known)
                hint = f"did you mean {near[0]}?" if near else "`token list` prints the ids"
                raise Failure(f"there is no token {unknown}; {hint}")
            return tuple(token for token in tokens if token.id not in ids)

        with claimed_stdout(is_needed=False):
            _edit(self._path(file), without)
        say(f"revoked {', '.join(dict.fromkeys(ids))}")
        return SUCCESS

    def _path(self, given: str | None) -> Path:
        if given is None:
            settings = (
                read_deployment().over(Settings()) if self._app is None else load_target(self._app, None).settings
            )
            given = settings.auth.tokens_file
        if not given:
            raise UsageError("which file? Give --file, or the setting auth.tokens_file")
        return Path(given).expanduser()


_Edit = Callable[[tuple[TokenEntry, ...]], Sequence[TokenEntry]]


def _read(path: Path) -> tuple[TokenEntry, ...]:
    try:
        return list_tokens(path)
    except OSError as error:
        raise Failure(f"{path}: cannot be read ({error.strerror})") from None


def _edit(path: Path, edit: _Edit) -> None:
    try:
        edit_tokens(path, edit)
    except OSError as error:
        raise Failure(f"{path}: cannot be written ({error.strerror})") from None


def _row(token: TokenEntry, now: float) -> tuple[object, ...]:
    expires = None if token.expires is None else moment(token.expires.timestamp())
    state = f"{expires} (expired)" if token.is_expired(now) else expires
    return token.id, token.principal, " ".join(token.permissions), moment(token.created.timestamp()), state


def _seconds(text: str) -> int:
    match = _SPAN.fullmatch(text)
    seconds = 0 if match is None else int(match["number"]) * _SECONDS[match["unit"]]
    if not 0 < seconds <= _MAX_SECONDS:
        raise UsageError("--expires must be a span such as 90m, 12h or 30d, at most 100 years")
    return seconds
