"""A transaction: what can be done to entries, records and checkpoints. Runs in the writer's thread and may block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import Connection

from ..._model.protocols import StoreFull
from ..._model.reservation import Reservation, ReservationState
from .._audit_rows import Row, pack_record, record_of_dead
from .._rows import COLUMNS, ENTRY_BYTES, DamagedEntryError, checksum_of, unpack
from .._writer import Job, UnexpectedError
from ._checkpoints import Checkpoints
from ._confirmations import Confirmations
from ._errors import NotTextError
from ._limits import PostgresLimits
from ._operations import Complete, Interrupt, Read, Release, Reserve
from ._records import Records

MAX_PASSES = 16
"""Passes in which a reservation makes room, or meets entries that go meanwhile."""

_BEGIN = """
    SELECT CASE WHEN %s THEN pg_current_xact_id()::text END, extract(epoch FROM clock_timestamp())::float8,
        (SELECT coalesce(sum(entries), 0)::bigint FROM totals), (SELECT coalesce(sum(bytes), 0)::bigint FROM totals)
"""
_RESERVE = """
    INSERT INTO entries (
        key, principal, session, scope, request_id, fingerprint, execution_id, tool, started_at, state, owner, bytes, repeatable
    )
    SELECT key, principal, session, scope, request_id, fingerprint, execution_id, tool, started_at, 'running', %s, bytes, repeatable
    FROM unnest(
        %s::bytea[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::text[], %s::float8[], %s::bigint[],
        %s::boolean[]
    ) AS new (
        key, principal, session, scope, request_id, fingerprint, execution_id, tool, started_at, bytes, repeatable
    )
    ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING key, execution_id, bytes
"""
_HELD = "e.key = v.key AND e.execution_id = v.execution_id AND CASE WHEN v.owned THEN e.owner = ANY(%s) ELSE "
_COMPLETE = f"""
    UPDATE entries AS e SET state = 'completed', owner = NULL, cause = NULL, data = v.data, error = v.error, checksum = v.checksum,
        finished_at = v.finished_at, bytes = e.bytes + v.bytes
    FROM unnest(
        %s::int[], %s::bytea[], %s::text[], %s::boolean[], %s::bytea[], %s::bytea[], %s::bytea[], %s::float8[], %s::bigint[]
    ) AS v (n, key, execution_id, owned, data, error, checksum, finished_at, bytes)
    WHERE {_HELD} e.state <> 'completed' END
    RETURNING v.n, v.bytes
"""  # noqa: S608 - constants
_RELEASE = f"""
    DELETE FROM entries AS e
    USING unnest(%s::int[], %s::bytea[], %s::text[], %s::boolean[]) AS v (n, key, execution_id, owned)
    WHERE {_HELD} e.state <> 'completed' END
    RETURNING v.n, e.bytes
"""  # noqa: S608 - constants
_INTERRUPT = f"""
    UPDATE entries AS e SET state = 'interrupted', owner = NULL, cause = v.cause, finished_at = v.finished_at
    FROM unnest(%s::int[], %s::bytea[], %s::text[], %s::boolean[], %s::text[], %s::float8[])
        AS v (n, key, execution_id, owned, cause, finished_at)
    WHERE {_HELD} true END AND e.state = 'running'
    RETURNING v.n
"""  # noqa: S608 - constants
_FIND = f"SELECT {COLUMNS}, key FROM entries WHERE key = ANY(%s)"  # noqa: S608 - a constant
_LIST = f"""
    SELECT {COLUMNS} FROM entries
    WHERE CASE WHEN %(state)s::text IS NULL THEN state <> 'completed' ELSE state = %(state)s END
        AND (%(tool)s::text IS NULL OR tool = %(tool)s)
    ORDER BY started_at DESC LIMIT %(limit)s
"""  # noqa: S608 - a constant
_OF_EXECUTION = f"SELECT {COLUMNS} FROM entries WHERE execution_id = %s"  # noqa: S608 - a constant
_DEAD = "SELECT id FROM owners WHERE expires_at <= clock_timestamp() AND id <> ALL(%s) ORDER BY id"
_IS_DEAD = """
    SELECT o FROM unnest(%s::bigint[]) AS o
    WHERE NOT EXISTS (SELECT 1 FROM owners WHERE id = o AND expires_at > clock_timestamp()) ORDER BY o
"""
_BURY = "DELETE FROM owners WHERE id = ANY(%s) AND expires_at <= clock_timestamp()"
_DISOWN = f"""
    UPDATE entries SET state = 'interrupted', owner = NULL, finished_at = %s
    WHERE owner = ANY(%s) AND NOT EXISTS (SELECT 1 FROM owners WHERE id = entries.owner AND expires_at > clock_timestamp())
    RETURNING {COLUMNS}
"""  # noqa: S608 - a constant
_FOLD = """
    WITH gone AS (DELETE FROM totals WHERE owner = ANY(%s) RETURNING entries, bytes)
    UPDATE totals SET entries = totals.entries + sums.entries, bytes = totals.bytes + sums.bytes
    FROM (SELECT coalesce(sum(entries), 0) AS entries, coalesce(sum(bytes), 0) AS bytes FROM gone) AS sums
    WHERE owner = 0
"""
_COUNT = """
    INSERT INTO totals VALUES (%s, %s, %s)
    ON CONFLICT (owner) DO UPDATE SET entries = totals.entries + EXCLUDED.entries, bytes = totals.bytes + EXCLUDED.bytes
"""
_SWEEP = """
    DELETE FROM entries WHERE key IN (
        SELECT key FROM entries WHERE state = 'completed' AND finished_at <= %s ORDER BY finished_at LIMIT %s FOR UPDATE SKIP LOCKED
    ) RETURNING bytes
"""
_GIVE_WAY = """
    DELETE FROM entries WHERE key IN (
        SELECT key FROM entries WHERE state = 'completed' AND repeatable ORDER BY finished_at LIMIT %s FOR UPDATE SKIP LOCKED
    ) RETURNING bytes
"""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a store keeps, and for how long.

    Attributes:
        max_entries: Identities at one time.
        max_bytes: Of entries and their outputs at one time.
        retention: Seconds that a completed entry is kept, from its completion.
        audit_retention: Seconds that an audit record is kept, from its call's arrival.
        clock: Unix seconds; None for the clock of the server.
        limits: All other limits.
    """

    max_entries: int
    max_bytes: int
    retention: float
    audit_retention: float
    clock: Callable[[], float] | None
    limits: PostgresLimits


class Transaction:
    """One transaction.

    Args:
        connection: In a transaction.
        owners: The ids of this store whose entries are still its own; the last one is for new entries.
        bounds: Of the store.

    Attributes:
        xid: The transaction's id at the server, once it has written.
        records: The audit records, in the same transaction.
        checkpoints: The checkpoints of graphs, in the same transaction.
        confirmations: The confirmations, in the same transaction.
    """

    def __init__(self, connection: Connection[Any], owners: Sequence[int], bounds: Bounds) -> None:
        self.xid: str | None = None
        self.records = Records(connection, bounds.limits)
        self.checkpoints = Checkpoints(connection, bounds.limits)
        self.confirmations = Confirmations(connection, bounds.limits)
        self._connection = connection
        self._owners = list(owners)
        self._bounds = bounds
        self._now: float | None = None
        self._room_entries = self._room_bytes = 0
        self._added_entries = self._added_bytes = 0

    def audit(self, rows: list[Row]) -> None:
        """Add audit records."""
        self._begin(writes=True)
        self.records.add(rows)

    def run(self, jobs: Sequence[Job[Transaction, object]]) -> None:
        """Run jobs: endings first, then reservations, then all others. A fault of the database fails the transaction.

        Raises:
            psycopg.Error: The database failed.
        """
        kinds: dict[type, list[Job[Transaction, object]]] = {}
        for job in jobs:
            job.error = None
            kinds.setdefault(type(job.operate), []).append(job)
        if kinds:
            self._begin(writes=kinds.keys() != {Read})
        self._run_kind(kinds.pop(Complete, []), self.complete)
        self._run_kind(kinds.pop(Interrupt, []), self.interrupt)
        self._run_kind(kinds.pop(Release, []), self.release)
        self._run_kind(kinds.pop(Reserve, []), self.reserve)
        for others in kinds.values():
            for job in others:
                try:
                    job.value = job.operate(self)
                except psycopg.Error as error:
                    if error.sqlstate is not None or not isinstance(error, psycopg.DataError):
                        raise
                    # The library has refused a text before it was sent, so the transaction goes on.
                    job.error = NotTextError(f"PostgreSQL cannot hold a text of the request: {error}")
                except Exception as error:  # noqa: BLE001 - given to the caller of this job
                    job.error = error
        if self._added_entries or self._added_bytes:
            self._connection.execute(_COUNT, (self._owners[-1], self._added_entries, self._added_bytes))
            self._added_entries = self._added_bytes = 0

    def _run_kind(self, jobs: list[Job[Transaction, object]], do: Callable[[Any], Sequence[object]]) -> None:
        if not jobs:
            return
        for job, result in zip(jobs, do([job.operate for job in jobs]), strict=True):
            if isinstance(result, Exception):
                job.error = result
            else:
                job.value = result

    @property
    def now(self) -> float:
        """Unix seconds, of the server unless the store has a clock."""
        self._begin(writes=False)
        assert self._now is not None
        return self._now

    def complete(self, endings: Sequence[Complete]) -> list[bool]:
        """See `IdempotencyStore.complete`."""
        outcomes = [each.outcome for each in endings]
        values = (
            [each.data for each in outcomes],
            [each.error for each in outcomes],
            [checksum_of(each.execution_id, each.outcome.data, each.outcome.error) for each in endings],
            [each.finished_at for each in outcomes],
            [each.bytes for each in outcomes],
        )
        rows = self._connection.execute(_COMPLETE, (*_heads(endings), *values, self._owners)).fetchall()
        self._added_bytes += sum(size for _, size in rows)
        return _which(endings, [n for n, _ in rows])

    def release(self, endings: Sequence[Release]) -> list[bool]:
        """See `IdempotencyStore.release`."""
        rows = self._connection.execute(_RELEASE, (*_heads(endings), self._owners)).fetchall()
        self._count_removed([size for _, size in rows])
        return _which(endings, [n for n, _ in rows])

    def interrupt(self, endings: Sequence[Interrupt]) -> list[bool]:
        """See `IdempotencyStore.interrupt`."""
        causes = [None if each.cause is None else each.cause.value for each in endings]
        values = (*_heads(endings), causes, [each.finished_at for each in endings], self._owners)
        return _which(endings, [n for (n,) in self._connection.execute(_INTERRUPT, values).fetchall()])

    def reserve(self, operations: Sequence[Reserve]) -> list[Reservation | Exception | None]:
        """See `IdempotencyStore.reserve`. An entry that cannot be reserved gets the exception in its place."""
        results: list[Reservation | Exception | None] = [
            UnexpectedError("the entry came and went while it was reserved") for _ in operations
        ]
        open_ones = list(range(len(operations)))
        for _ in range(MAX_PASSES):
            if self._has_room(len(open_ones)):
                added = self._insert([operations[n] for n in open_ones])
                for n in open_ones:
                    if operations[n].execution_id in added:
                        results[n] = None
                open_ones = [n for n in open_ones if results[n] is not None]
                found = self._find([operations[n].new.key for n in open_ones])
            else:
                found = self._find([operations[n].new.key for n in open_ones])
                for n in open_ones:
                    if operations[n].new.key not in found:
                        results[n] = self._reserve_last(operations[n])
            for n in open_ones:
                results[n] = found.get(operations[n].new.key, results[n])
            open_ones = [n for n in open_ones if isinstance(results[n], UnexpectedError)]
            if not open_ones:
                break
        return results

    def _reserve_last(self, operation: Reserve) -> Reservation | Exception | None:
        """Reserve an entry that has none, in a store that is full or nearly so."""
        if not self._has_room(1) and not self._make_room():
            return StoreFull()
        if self._insert([operation]):
            return None
        return self._find([operation.new.key]).get(operation.new.key, UnexpectedError("the entry came and went"))

    def find(self, key: bytes) -> Reservation | None:
        """The current entry of a key: none past its retention, and an interrupted one whose owner is dead.

        Raises:
            DamagedEntryError: It is not what was written.
        """
        found = self._find([key]).get(key)
        if isinstance(found, DamagedEntryError):
            raise found
        return found

    def _find(self, keys: list[bytes]) -> dict[bytes, Reservation | DamagedEntryError]:
        """The current entries of keys, and the error for each that is damaged."""
        found: dict[bytes, Reservation | DamagedEntryError] = {}
        for _ in range(2 if keys else 0):
            owners: set[int] = set()
            for *row, key in self._connection.execute(_FIND, (keys,)).fetchall():
                try:
                    found[key], owner = unpack(tuple(row))
                except DamagedEntryError as error:
                    found[key], owner = error, None
                if owner is not None and owner not in self._owners:
                    owners.add(owner)
            dead = [owner for (owner,) in self._connection.execute(_IS_DEAD, (list(owners),))] if owners else []
            if not dead:
                break
            self._bury(dead)
        old = [key for key, entry in found.items() if isinstance(entry, Reservation) and self._is_old(entry)]
        if old:
            self._remove("DELETE FROM entries WHERE key = ANY(%s) AND state = 'completed' RETURNING bytes", (old,))
        return {key: entry for key, entry in found.items() if key not in old}

    def newest(self, state: ReservationState | None, tool: str | None, limit: int) -> list[Reservation]:
        """The newest entries, newest first; without a state, those that are not completed."""
        self.interrupt_dead_owners()
        values = {"state": None if state is None else state.value, "tool": tool, "limit": limit}
        return [unpack(row)[0] for row in self._connection.execute(_LIST, values).fetchall()]

    def find_execution(self, execution_id: str) -> Reservation | None:
        """The entry that an execution holds."""
        self.interrupt_dead_owners()
        row = self._connection.execute(_OF_EXECUTION, (execution_id,)).fetchone()
        return None if row is None else unpack(row)[0]

    def interrupt_dead_owners(self) -> None:
        """Interrupt the running entries of owners whose lease has expired."""
        dead = [owner for (owner,) in self._connection.execute(_DEAD, (self._owners,)).fetchall()]
        if dead:
            self._bury(dead)

    def leave(self) -> None:
        """Interrupt the running entries of this store, and delete its owners."""
        self._connection.execute("DELETE FROM owners WHERE id = ANY(%s)", (self._owners,))
        self._connection.execute(_DISOWN, (self.now, self._owners))
        self._connection.execute(_FOLD, (self._owners,))

    def tidy(self) -> None:
        """Interrupt what dead owners have left, and drop what is past its retention."""
        limits = self._bounds.limits
        self._begin(writes=True)
        self.interrupt_dead_owners()
        self._remove(_SWEEP, (self.now - self._bounds.retention, limits.max_swept))
        self.records.prune(self.now - self._bounds.audit_retention)
        self.checkpoints.prune(self.now - self._bounds.retention)
        self.run(())

    def _begin(self, *, writes: bool) -> None:
        """Read the time and the room, before the first statement; get an id from the server, before the first write."""
        if self._now is not None and (self.xid is not None or not writes):
            return
        row = self._connection.execute(_BEGIN, (writes,)).fetchone()
        assert row is not None
        self.xid, now, entries, size = row
        self._now = now if self._bounds.clock is None else self._bounds.clock()
        self._room_entries = self._bounds.max_entries - entries
        self._room_bytes = self._bounds.max_bytes - size

    def _is_old(self, entry: Reservation) -> bool:
        if entry.state is not ReservationState.COMPLETED:
            return False
        assert entry.finished_at is not None
        return entry.finished_at + self._bounds.retention <= self.now

    def _insert(self, operations: Sequence[Reserve]) -> set[str]:
        """Insert the entries whose keys are free; the execution ids of those."""
        columns = zip(*(each.new.values for each in operations), strict=True)
        *texts, started_at = (list(column) for column in columns)
        values = (
            self._owners[-1],
            [each.new.key for each in operations],
            *texts,
            started_at,
            [each.new.bytes for each in operations],
            [each.new.repeatable for each in operations],
        )
        rows = self._connection.execute(_RESERVE, values).fetchall()
        self._added_entries += len(rows)
        self._added_bytes += sum(size for _, _, size in rows)
        return {execution_id for _, execution_id, _ in rows}

    def _has_room(self, number: int) -> bool:
        return (
            self._room_entries - self._added_entries >= number
            and self._room_bytes - self._added_bytes >= number * ENTRY_BYTES
        )

    def _make_room(self) -> bool:
        """Drop what is past its retention, then completed entries of tools that may be repeated, the oldest first."""
        limit = self._bounds.limits.max_swept
        if self._remove(_SWEEP, (self.now - self._bounds.retention, limit)) and self._has_room(1):
            return True
        few = max(1, min(64, self._bounds.max_entries // 1000))
        for _ in range(MAX_PASSES):
            if not self._remove(_GIVE_WAY, (few,)):
                return False
            if self._has_room(1):
                return True
        return False

    def _remove(self, statement: LiteralString, values: tuple[object, ...]) -> int:
        """Run a statement that deletes entries; their number."""
        sizes = [size for (size,) in self._connection.execute(statement, values).fetchall()]
        self._count_removed(sizes)
        return len(sizes)

    def _count_removed(self, sizes: list[int]) -> None:
        self._added_entries -= len(sizes)
        self._added_bytes -= sum(sizes)

    def _bury(self, owners: list[int]) -> None:
        """Delete owners whose lease has expired, interrupt their entries, and add the records that their processes could not write."""
        self._connection.execute(_BURY, (owners,))
        left = [unpack(row)[0] for row in self._connection.execute(_DISOWN, (self.now, owners)).fetchall()]
        self._connection.execute(_FOLD, (owners,))
        if left:
            self.records.add([pack_record(record_of_dead(entry)) for entry in left])


def _heads(endings: Sequence[Complete | Release | Interrupt]) -> tuple[list[Any], ...]:
    return (
        list(range(len(endings))),
        [each.key for each in endings],
        [each.execution_id for each in endings],
        [each.owned for each in endings],
    )


def _which(endings: Sequence[object], changed: list[int]) -> list[bool]:
    hit = set(changed)
    return [n in hit for n in range(len(endings))]
