"""The store: the methods of `IdempotencyStore`, as jobs for the writer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
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
from ._database import Database, Durability
from ._errors import BusyError, LeaseLostError, NewerSchemaError, NotTextError
from ._limits import DEFAULT_LIMITS, PostgresLimits
from ._operations import Complete, Interrupt, Read, Release, Reserve
from ._transaction import Bounds, Transaction

log = logging.getLogger("carmy.engine")

MAX_ENTRIES = 10_000_000
"""Identities remembered. About five gigabytes without outputs."""

MAX_BYTES = 20 * 1024 * 1024 * 1024
"""Of entries and their outputs."""

RETENTION_SECONDS = 7 * 24 * 3600.0
"""How long a completed entry is replayed, counted from its completion."""

AUDIT_SECONDS = 90 * 24 * 3600.0
"""How long audit records are kept."""


class PostgresStore:
    """Keeps entries in PostgreSQL 14 or newer. Stores of many processes, on many machines, may share a schema.

    A running entry belongs to the store that reserved it, under a lease in the time of the server. A process whose lease has expired
    counts as dead: its running entries are *interrupted* for all others from then on, and what it records of them later is refused.
    The store reports the loss (`watch_lease`), and the engine cancels those executions.

    A cancelled caller leaves at once. The store then withdraws its reservation or takes it back. It records an ending
    (`complete`, `release`, `interrupt`) all the same, before any other change.

    Every method may raise a `StoreError`; its `reason` is one of ``unreachable``, ``refused``, ``locked``, ``disk_full``, ``read_only``,
    ``newer_version``, ``lease_lost``, ``not_text``, ``corrupt``, ``closed`` and ``failed``. The server is tried again with every call.

    A full store drops completed entries of tools that may be repeated, the oldest first, and no others. Processes that share it may
    exceed its bounds by one transaction each.

    Args:
        url: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``, or another connection string of libpq.
        schema: Of the tables; made if it is missing.
        durability: ``full``, or ``normal``: a crash of the server may take the last answers with it.
        max_entries: Identities at one time.
        max_bytes: Bytes of entries and their outputs at one time.
        retention: Seconds.
        audit_retention: Seconds that audit records are kept.
        limits: All other limits.
        clock: Unix seconds, for retentions; None for the clock of the server. For tests.

    Attributes:
        sink: Keeps audit records in the same database. An engine with this store uses it by itself.

    Raises:
        ConfigurationError: The URL is malformed.
    """

    takes_back = True

    def __init__(
        self,
        url: str,
        *,
        schema: str = "carmy",
        durability: Durability = "full",
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        retention: float = RETENTION_SECONDS,
        audit_retention: float = AUDIT_SECONDS,
        limits: PostgresLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        bounds = Bounds(
            max_entries=max_entries,
            max_bytes=max_bytes,
            retention=retention,
            audit_retention=audit_retention,
            clock=clock,
            limits=limits,
        )
        try:
            self._database = Database(url, schema, durability, bounds)
        except psycopg.ProgrammingError as error:
            # The text of the library may hold the password.
            raise ConfigurationError(
                "store.url is not a URL of PostgreSQL, such as postgresql://user@host:5432/database"
            ) from error
        self._lease = self._database.lease
        self._writer: Writer[Transaction] = Writer(self._database, limits)
        self.sink = RecordSink(self._writer)

    @property
    def name(self) -> str:
        """The database and the schema, without the password."""
        return self._database.name

    @property
    def transactions(self) -> int:
        """The number of transactions so far; each serves the callers that arrived during the one before."""
        return self._writer.transactions

    def watch_lease(self, lost: Callable[[frozenset[str]], None]) -> None:
        """Call `lost`, in a thread, with executions whose entries are out of reach; see `LeasedStore`."""
        self._lease.on_lost = lost

    async def prepare(self) -> None:
        """Connect, make the tables, and begin the lease. Optional: any other method does it as well.

        A server that cannot be reached now is reported in the log; it is tried again with every call.

        Raises:
            ConfigurationError: A newer version has written the tables, or this store has been closed, with an earlier engine.
        """
        try:
            await self._writer.do(Job(Read(lambda _: None)))
        except NewerSchemaError as error:
            raise ConfigurationError(f"store.url: {error}") from error
        except StoreClosedError as error:
            raise ConfigurationError(
                f"the store {self.name} was closed with the engine that used it; give the next one a store of its own, or a URL"
            ) from error
        except StoreError as error:
            log.error("calls with a request_id will be refused: %s", error)

    async def check(self) -> None:
        """Check that the database can be used. Changes nothing.

        Raises:
            ConfigurationError: It cannot. A server that is busy will do.
        """
        try:
            await trio.to_thread.run_sync(self._database.check)
        except BusyError:
            pass
        except StoreError as error:
            raise ConfigurationError(f"store.url: {error}") from error

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        """See `IdempotencyStore.reserve`."""
        new = pack(reservation)
        if any(isinstance(value, str) and "\0" in value for value in new.values):
            raise NotTextError(
                f"{self.name}: the principal or the session holds U+0000, which PostgreSQL has no text for"
            )
        execution_id = reservation.execution_id
        take_back = Release(new.key, execution_id, owned=True)
        self._lease.hold(execution_id)
        held = False
        try:
            existing = await self._writer.do(
                Job[Transaction, Reservation | None](
                    Reserve(new, execution_id), undo=lambda existing: take_back if existing is None else None
                )
            )
            held = existing is None
        finally:
            if not held:
                self._lease.let_go(execution_id)
        if held and not self._lease.is_valid:
            await self.release(reservation.identity, execution_id)
            raise LeaseLostError(f"{self.name}: the lease ran out before the reservation could be used")
        return existing

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        """See `IdempotencyStore.complete`. An outcome over the limit is kept all the same: it stands for an effect."""
        packed = pack_outcome(outcome, finished_at)
        ending = Complete(key_of(identity), execution_id, packed, self._lease.holds(execution_id))
        return await self._end(execution_id, Job(ending, must_run=True, size=packed.bytes))

    async def release(self, identity: Identity, execution_id: str) -> bool:
        """See `IdempotencyStore.release`."""
        ending = Release(key_of(identity), execution_id, self._lease.holds(execution_id))
        return await self._end(execution_id, Job(ending, must_run=True))

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        """See `IdempotencyStore.interrupt`."""
        ending = Interrupt(key_of(identity), execution_id, cause, finished_at, self._lease.holds(execution_id))
        return await self._end(execution_id, Job(ending, must_run=True))

    async def get(self, identity: Identity) -> Reservation | None:
        """See `IdempotencyStore.get`."""
        key = key_of(identity)
        return await self._writer.do(Job(Read(lambda transaction: transaction.find(key))))

    async def entries(
        self, *, state: ReservationState | None = None, tool: str | None = None, limit: int = 100
    ) -> list[Reservation]:
        """The entries that began last, newest first; see `carmy_engine.abc.ListableStore`."""
        return await self._writer.do(Job(Read(partial(Transaction.newest, state=state, tool=tool, limit=limit))))

    async def find_execution(self, execution_id: str) -> Reservation | None:
        """The entry that an execution holds, or None."""
        return await self._writer.do(Job(Read(partial(Transaction.find_execution, execution_id=execution_id))))

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
        """The newest audit records, newest first; see `carmy_engine.abc.AuditStore`."""
        query = RecordQuery(tool=tool, status=status, principal=principal, since=since, until=until, limit=limit)
        found: list[ExecutionRecord] = []
        before: int | None = None
        while len(found) < query.limit:
            find = partial(_find, query=query, limit=query.limit - len(found), before=before)
            page = await self._writer.do(Job(Read(find)))
            found += page.records
            before = page.before
            if before is None:
                break
        return found

    async def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """See `CheckpointStore.save_checkpoint`."""
        return await self._writer.do(Job(partial(_save, checkpoint=checkpoint)))

    async def latest_checkpoint(self, graph: str, thread_id: str) -> Checkpoint | None:
        """See `CheckpointStore.latest_checkpoint`."""
        found = await self.checkpoints(graph, thread_id, limit=1)
        return found[0] if found else None

    async def checkpoints(self, graph: str, thread_id: str, *, limit: int = 100) -> list[Checkpoint]:
        """See `CheckpointStore.checkpoints`."""
        return await self._writer.do(
            Job(Read(lambda transaction: transaction.checkpoints.newest(graph, thread_id, limit)))
        )

    async def add_confirmation(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """See `ConfirmationStore.add_confirmation`."""
        return await self._writer.do(Job(partial(_add_confirmation, entry=entry)))

    async def replace_confirmation(self, entry: ConfirmationEntry, expected: ConfirmationState, *, now: float) -> bool:
        """See `ConfirmationStore.replace_confirmation`."""
        return await self._writer.do(Job(partial(_replace_confirmation, entry=entry, expected=expected, now=now)))

    async def find_confirmations(self, owner: str, fingerprint: bytes, *, now: float) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.find_confirmations`."""
        return await self._writer.do(
            Job(Read(lambda transaction: transaction.confirmations.find(owner, fingerprint, now)))
        )

    async def get_confirmation(self, confirmation_id: str, *, now: float) -> ConfirmationEntry | None:
        """See `ConfirmationStore.get_confirmation`."""
        return await self._writer.do(Job(Read(lambda transaction: transaction.confirmations.get(confirmation_id, now))))

    async def confirmations(self, *, now: float, limit: int = 100) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.confirmations`."""
        return await self._writer.do(Job(Read(lambda transaction: transaction.confirmations.newest(now, limit))))

    async def aclose(self) -> None:
        """Write what is waiting, interrupt what this store has left running, and close the connections. Idempotent.

        If cancelled, that goes on in a thread.
        """
        await self._writer.aclose()

    async def _end(self, execution_id: str, job: Job[Transaction, bool]) -> bool:
        """Record an ending. The lease decides on it until it is recorded; a second one is up to the state of the entry."""
        changed = await self._writer.do(job)
        self._lease.let_go(execution_id)
        return changed


def from_settings(settings: StoreSettings) -> PostgresStore:
    """The store that a ``postgresql://`` URL names; its parameter ``schema`` is the schema.

    Raises:
        ConfigurationError: The URL is malformed.
    """
    parts = urlsplit(settings.url)
    parameters = dict(parse_qsl(parts.query))
    schema = parameters.pop("schema", "carmy")
    return PostgresStore(
        urlunsplit(parts._replace(query=urlencode(parameters))),
        schema=schema,
        durability=settings.durability,
        max_entries=MAX_ENTRIES if settings.max_entries is None else settings.max_entries,
        max_bytes=MAX_BYTES if settings.max_bytes is None else settings.max_bytes,
        retention=settings.retention_days * 86_400,
        audit_retention=settings.audit_days * 86_400,
        limits=PostgresLimits(lease_secs=settings.lease_secs),
    )


def _find(transaction: Transaction, *, query: RecordQuery, limit: int, before: int | None) -> Page:
    return transaction.records.find(query, limit, before)


def _save(transaction: Transaction, *, checkpoint: Checkpoint) -> bool:
    return transaction.checkpoints.save(checkpoint)


def _add_confirmation(transaction: Transaction, *, entry: ConfirmationEntry) -> ConfirmationEntry | None:
    return transaction.confirmations.add(entry)


def _replace_confirmation(
    transaction: Transaction, *, entry: ConfirmationEntry, expected: ConfirmationState, now: float
) -> bool:
    return transaction.confirmations.replace(entry, expected, now)
