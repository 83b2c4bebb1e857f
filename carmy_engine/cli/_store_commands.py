"""Commands that read a store: its entries and its audit records."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
import trio
from cyclopts import Parameter

from .._app import plugins
from .._app.app import App
from .._config.settings import Settings
from .._config.sources import read_deployment
from .._execution.grace import grace
from .._model.errors import CarmyError, ConfigurationError
from .._model.protocols import (
    AuditStore,
    CheckpointStore,
    ConfirmationStore,
    FileStore,
    IdempotencyStore,
    SearchableStore,
)
from .._model.result import ExecutionStatus
from ..stores.memory import MemoryStore
from ._outcome import SUCCESS, Failure, UsageError
from ._problems import forgets
from ._stdout import claimed_stdout
from ._table import moment, table
from ._target import is_target, load_target

S = TypeVar("S", bound=IdempotencyStore)
T = TypeVar("T")

Target = Annotated[str | None, Parameter(help="file.py, file.py:app or module:app, whose store it is.")]
StoreUrl = Annotated[
    str | None, Parameter(help="The store, such as sqlite:state.db. Default: that of the target, or of carmy.toml.")
]
Tool = Annotated[str | None, Parameter(help="Of this tool only.")]
Status = Annotated[ExecutionStatus | None, Parameter(name_transform=str.lower, help="That ended so only.")]
Principal = Annotated[str | None, Parameter(help="Of this principal only.")]
Since = Annotated[
    str | None, Parameter(help="That came then or later: 2026-01-31, 2026-01-31T14:00, or a time ago: 90m, 12h, 7d.")
]
Until = Annotated[str | None, Parameter(help="That came before then; likewise.")]
Limit = Annotated[int, Parameter(help="At most so many.")]
AsJson = Annotated[bool, Parameter(negative="", help="One JSON object a line, instead of a table.")]

_AGO = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_STORE_CLOSE_SECONDS = 10.0


class StoreCommands:
    """The commands, over the store of one application, or of the one that each command line names."""

    def __init__(self, app: App | None) -> None:
        self._app = app

    @property
    def has_app(self) -> bool:
        """The commands are those of one application, so command lines name no target."""
        return self._app is not None

    def audit(
        self,
        target: Target = None,
        /,
        *,
        store: StoreUrl = None,
        tool: Tool = None,
        status: Status = None,
        principal: Principal = None,
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        json: AsJson = False,
    ) -> int:
        """Print the audit records that the store keeps, newest first."""
        query: dict[str, Any] = {
            "tool": tool,
            "status": status,
            "principal": principal,
            "since": _when("--since", since),
            "until": _when("--until", until),
            "limit": checked_limit(limit),
        }
        with claimed_stdout() as out:
            opened = self.audit_store(target, store)
            records = with_store(opened, lambda store: store.records(**query))
            if json:
                for record in records:
                    out(msgspec.json.encode(record) + b"\n")
            else:
                out(table(_AUDIT, [_audit_row(record) for record in records]))
        return SUCCESS

    def words(self, words: tuple[str, ...], command: str, noun: str) -> tuple[str | None, str]:
        """The target, if there is one, and the id.

        Raises:
            UsageError: There is no id, or there are further words.
        """
        given = list(words)
        target = given.pop(0) if self._app is None and given and is_target(given[0]) else None
        if len(given) != 1 or given[0].startswith("--"):
            raise UsageError(f"{command} needs the id of {noun}")
        return target, given[0]

    def searchable_store(self, target: str | None, url: str | None) -> SearchableStore:
        """The store of a command line, for commands about executions.

        Args:
            target: As on the command line.
            url: The option ``--store``.

        Raises:
            Failure: The store does not support the command, or its file does not exist.
            UsageError: The URL is not valid.
        """
        store, name, _ = self._named_store(target, url)
        if not isinstance(store, SearchableStore):
            raise _unsupported(name, "has no entries")
        return store

    def audit_store(self, target: str | None, url: str | None) -> AuditStore:
        """The same, for commands about audit records."""
        store, name, _ = self._named_store(target, url)
        if not isinstance(store, AuditStore):
            raise _unsupported(name, "keeps no audit records")
        return store

    def confirmation_store(self, target: str | None, url: str | None) -> tuple[Any, float]:
        """The same, for commands about confirmations; and for how long an answer counts, in seconds."""
        store, name, settings = self._named_store(target, url)
        if not isinstance(store, ConfirmationStore) or isinstance(store, MemoryStore):
            raise _unsupported(name, "has no confirmations")
        return store, settings.confirmation_timeout_secs

    def _named_store(self, target: str | None, url: str | None) -> tuple[Any, str, Settings]:
        """The store, its name for messages, and the settings beside it."""
        if url is None and not (self._app is None and target is None):
            app = load_target(self._app, target)
            return *_store_of(app), app.settings
        settings = read_deployment().over(Settings())
        try:
            chosen = settings.store if url is None else msgspec.structs.replace(settings.store, url=url)
        except ConfigurationError as error:
            raise UsageError(f"--store: {error}") from None
        return _existing(plugins.find_store(chosen)()), chosen.url, settings


def checkpoint_store(app: App) -> Any:
    """The store of an application, which keeps the checkpoints of graphs beside its entries.

    Raises:
        Failure: It keeps none that outlive a process, or its file does not exist.
    """
    store, name = _store_of(app)
    if not isinstance(store, CheckpointStore) or forgets(app):
        raise _unsupported(name, "keeps no checkpoints")
    return store


def _store_of(app: App) -> tuple[Any, str]:
    if (given := app.given_store) is not None:
        return _existing(given), type(given).__name__
    settings = app.settings.store
    return _existing(plugins.find_store(settings)()), settings.url


def _unsupported(name: str, lacks: str) -> Failure:
    return Failure(f"the store {name} {lacks} that could be read from here; sqlite:PATH does")


def _existing(store: IdempotencyStore) -> IdempotencyStore:
    """The store, unless its file does not exist: opening it would create an empty one."""
    if isinstance(store, FileStore) and not store.path.exists():
        raise Failure(f"there is no file {store.path}")
    return store


def with_store(store: S, use: Callable[[S], Awaitable[T]]) -> T:
    """Open the store, use it, and close it.

    Raises:
        Failure: The store, or the command, failed.
    """

    async def main() -> T:
        try:
            return await use(store)
        finally:
            with grace(_STORE_CLOSE_SECONDS):
                await store.aclose()

    try:
        return trio.run(main)
    except (CarmyError, Failure):
        raise
    except Exception as error:  # noqa: BLE001 - the boundary around the store; its message is the reason
        raise Failure(str(error) or type(error).__name__) from None


_AUDIT = ("TIME", "TOOL", "STATUS", "CODE", "PRINCIPAL", "TRANSPORT", "MS", "EXECUTION", "REQUEST")


def _audit_row(record: Any) -> tuple[object, ...]:
    how = "replay" if record.replayed else record.settled
    return (
        moment(record.started_at),
        record.tool,
        record.status.value if how is None else f"{record.status.value} ({how})",
        record.error_code,
        record.principal,
        record.transport,
        f"{record.duration_ms:.0f}",
        record.execution_id,
        record.request_id,
    )


def checked_limit(limit: int) -> int:
    """A ``--limit``.

    Raises:
        UsageError: It is out of range.
    """
    if not 1 <= limit <= 1_000_000:
        raise UsageError("--limit must be a whole number, 1 to 1000000")
    return limit


def _when(option: str, text: str | None) -> float | None:
    """The Unix seconds of a date, of a time (local without an offset), or of a time ago."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text)) is not None:
        return time.time() - float(ago["number"]) * _SECONDS[ago["unit"]]
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} must be a date or a time such as 2026-01-31T14:00, or 90m, 12h or 7d for so long ago"
        ) from None
