"""The store: the methods of `IdempotencyStore`, as jobs for the writer."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path

import trio

from ..._config.settings import StoreSettings
from ..._model.cause import Cause
from ..._model.checkpoint import Checkpoint
from ..._model.confirmation import ConfirmationEntry, ConfirmationState
from ..._model.errors import ConfigurationError
from ..._model.protocols import StoreError
from ..._model.record import ExecutionRecord
from ..._model.reservation import Identity, Reservation, ReservationState
from ..._model.result import ExecutionStatus, Outcome
from .._audit_rows import Page, RecordQuery
from .._rows import key_of, pack, pack_outcome
from .._sink import RecordSink
from .._writer import Job, StoreClosedError, Writer
from ._database import Database, Durability, check_file
from ._entries import Bounds, Entries
from ._errors import CannotOpenError, CorruptFileError, NewerFileError, ReadOnlyFileError
from ._limits import DEFAULT_LIMITS, SqliteLimits

log = logging.getLogger("carmy.engine")

MAX_ENTRIES = 1_000_000
"""Identities remembered. About half a gigabyte without outputs."""

MAX_BYTES = 2 * 1024 * 1024 * 1024
"""Of entries and their outputs: what a small machine's disk can spare."""

RETENTION_SECONDS = 7 * 24 * 3600.0
"""How long a completed entry is replayed, counted from its completion."""


AUDIT_SECONDS = 90 * 24 * 3600.0
"""How long audit records are kept."""


class SqliteStore:
    """Keeps entries in an SQLite file. Several stores, in several processes of one machine, may share it.

    Results of `reserve` and `complete` survive the end of the process, and with ``durability="full"`` a power cut. A running
    entry whose process has ended is *interrupted* for all others from then on.

    A cancelled caller leaves at once. The store then withdraws its reservation or takes it back. It records an ending
    (`complete`, `release`, `interrupt`) all the same, before any other change. An ending that could not be written is
    recorded as soon as the file can be written again.

    Every method may raise a `StoreError`; its `reason` is one of ``locked``, ``disk_full``, ``corrupt``, ``read_only``,
    ``cannot_open``, ``newer_version``, ``replaced``, ``io_error``, ``closed`` and ``failed``. The file is opened anew after most of
    them, so that the store works again once the reason is gone.

    A full store drops completed entries of tools that may be repeated, the oldest first, and no others.

    Args:
        path: Of the file; made if it is missing, readable and writable for its owner only. Beside it are files with the
            same name and ``-wal`` and ``-shm``.
        durability: ``full`` or ``normal``; with the latter a power cut may take the last answers with it.
        max_entries: Identities at one time.
        max_bytes: Bytes of entries and their outputs at one time.
        retention: Seconds.
        audit_retention: Seconds that audit records are kept.
        limits: All other limits.
        clock: Unix seconds; for tests.

    Attributes:
        sink: Keeps audit records in the same file. An engine with this store uses it by itself.
    """

    takes_back = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        durability: Durability = "full",
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        retention: float = RETENTION_SECONDS,
        audit_retention: float = AUDIT_SECONDS,
        limits: SqliteLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        bounds = Bounds(
            max_entries=max_entries,
            max_bytes=max_bytes,
            retention=retention,
            audit_retention=audit_retention,
            clock=clock,
            limits=limits,
        )
        # By its real name: the write-ahead log is beside that.
        self.path = Path(os.path.realpath(path))
        """The file, wherever the process goes from here."""
        self._database = Database(self.path, durability, bounds)
        self._writer: Writer[Entries] = Writer(self._database, limits)
        self.sink = RecordSink(self._writer)

    @property
    def transactions(self) -> int:
        """The number of transactions so far; each serves the callers that arrived during the one before."""
        return self._writer.transactions

    async def prepare(self) -> None:
        """Open the file and interrupt what dead processes have left running. Optional: any other method does it as well.

        A file that cannot be used now is reported in the log; it is tried again with every call.

        Raises:
            ConfigurationError: A newer version has written the file, or this store has been closed, with an earlier engine.
        """
        try:
            await self._writer.do(Job(lambda _: None))
        except NewerFileError as error:
            raise ConfigurationError(f"store.url: {error}") from error
        except StoreClosedError as error:
            raise ConfigurationError(
                f"the store {self.path} was closed with the engine that used it; give the next one a store of its own, or a URL"
            ) from error
        except StoreError as error:
            log.error("calls with a request_id will be refused: %s", error)

    async def check(self) -> None:
        """Check that the file can be used, or made where there is none. Changes nothing.

        Raises:
            ConfigurationError: It cannot, and that will not change by itself.
        """
        try:
            await trio.to_thread.run_sync(check_file, self.path)
        except (CannotOpenError, CorruptFileError, NewerFileError, ReadOnlyFileError) as error:
            raise ConfigurationError(f"store.url: {error}") from error
        except StoreError:
            pass  # locked or full, for now

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        """See `IdempotencyStore.reserve`."""
        new = pack(reservation)
        take_back = partial(Entries.release, key=new.key, execution_id=reservation.execution_id)
        return await self._writer.do(
            Job(
                lambda entries: entries.reserve(new),
                undo=lambda existing: take_back if existing is None else None,
            )
        )

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        """See `IdempotencyStore.complete`. An outcome over the limit is kept all the same: it stands for an effect."""
        key, packed = key_of(identity), pack_outcome(outcome, finished_at)
        return await self._writer.do(
            Job(lambda entries: entries.complete(key, execution_id, packed), must_run=True, size=packed.bytes)
        )

    async def release(self, identity: Identity, execution_id: str) -> bool:
        """See `IdempotencyStore.release`."""
        key = key_of(identity)
        return await self._writer.do(Job(lambda entries: entries.release(key, execution_id), must_run=True))

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        """See `IdempotencyStore.interrupt`."""
        key = key_of(identity)
        return await self._writer.do(
            Job(lambda entries: entries.interrupt(key, execution_id, cause, finished_at), must_run=True)
        )

    async def get(self, identity: Identity) -> Reservation | None:
        """See `IdempotencyStore.get`."""
        key = key_of(identity)
        return await self._writer.do(Job(lambda entries: entries.find(key)))

    async def entries(
        self, *, state: ReservationState | None = None, tool: str | None = None, limit: int = 100
    ) -> list[Reservation]:
        """The entries that began last, newest first.

        Args:
            state: In this state only; None for those that run or are in doubt.
            tool: Of this tool only.
            limit: At most so many.
        """
        return await self._writer.do(Job(partial(Entries.newest, state=state, tool=tool, limit=limit)))

    async def find_execution(self, execution_id: str) -> Reservation | None:
        """The entry that an execution holds, or None."""
        return await self._writer.do(Job(partial(Entries.find_execution, execution_id=execution_id)))

    async def records(
        self,
        *,
        tool: str | None = None,
        status: ExecutionStatus | None = None,
        principal: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
    ) -> list[ExecutionRecord]:
        """The newest audit records, newest first (by the end of their executions).

        Args:
            tool: Of this tool only.
            status: That ended so.
            principal: Of this principal only.
            since: Whose call arrived then or later, in Unix seconds.
            until: Whose call arrived before then.
            limit: At most so many.
        """
        query = RecordQuery(tool=tool, status=status, principal=principal, since=since, until=until, limit=limit)
        found: list[ExecutionRecord] = []
        before: int | None = None
        while len(found) < query.limit:
            find = partial(_find, query=query, limit=query.limit - len(found), before=before)
            page = await self._writer.do(Job(find))
            found += page.records
            before = page.before
            if before is None:
                break
        return found

    async def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """See `CheckpointStore.save_checkpoint`."""
        return await self._writer.do(Job(lambda entries: entries.checkpoints.save(checkpoint)))

    async def latest_checkpoint(self, graph: str, thread_id: str) -> Checkpoint | None:
        """See `CheckpointStore.latest_checkpoint`."""
        found = await self.checkpoints(graph, thread_id, limit=1)
        return found[0] if found else None

    async def checkpoints(self, graph: str, thread_id: str, *, limit: int = 100) -> list[Checkpoint]:
        """See `CheckpointStore.checkpoints`."""
        return await self._writer.do(Job(lambda entries: entries.checkpoints.newest(graph, thread_id, limit)))

    async def add_confirmation(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """See `ConfirmationStore.add_confirmation`."""
        return await self._writer.do(Job(lambda entries: entries.confirmations.add(entry)))

    async def replace_confirmation(self, entry: ConfirmationEntry, expected: ConfirmationState, *, now: float) -> bool:
        """See `ConfirmationStore.replace_confirmation`."""
        return await self._writer.do(Job(lambda entries: entries.confirmations.replace(entry, expected, now)))

    async def find_confirmations(self, owner: str, fingerprint: bytes, *, now: float) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.find_confirmations`."""
        return await self._writer.do(Job(lambda entries: entries.confirmations.find(owner, fingerprint, now)))

    async def get_confirmation(self, confirmation_id: str, *, now: float) -> ConfirmationEntry | None:
        """See `ConfirmationStore.get_confirmation`."""
        return await self._writer.do(Job(lambda entries: entries.confirmations.get(confirmation_id, now)))

    async def confirmations(self, *, now: float, limit: int = 100) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.confirmations`."""
        return await self._writer.do(Job(lambda entries: entries.confirmations.newest(now, limit)))

    async def aclose(self) -> None:
        """Write what is waiting, interrupt what this store has left running, and close the file. Idempotent.

        If cancelled, that goes on in a thread.
        """
        await self._writer.aclose()


def from_settings(settings: StoreSettings) -> SqliteStore:
    """The store that ``sqlite:PATH`` names.

    Raises:
        ConfigurationError: There is no path.
    """
    path = settings.url.partition(":")[2]
    if not path or path.startswith(("//", ":")):
        raise ConfigurationError(
            "store.url must be sqlite:PATH, such as sqlite:state.db or sqlite:/var/lib/shop/state.db"
        )
    return SqliteStore(
        Path(path).expanduser(),
        durability=settings.durability,
        max_entries=MAX_ENTRIES if settings.max_entries is None else settings.max_entries,
        max_bytes=MAX_BYTES if settings.max_bytes is None else settings.max_bytes,
        retention=settings.retention_days * 86_400,
        audit_retention=settings.audit_days * 86_400,
    )


def _find(entries: Entries, *, query: RecordQuery, limit: int, before: int | None) -> Page:
    return entries.records.find(query, limit, before)
