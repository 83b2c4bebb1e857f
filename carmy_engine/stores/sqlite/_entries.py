"""What can be done to entries inside a transaction. Runs in the writer's thread and never waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import msgspec

from ..._model.cause import Cause
from ..._model.protocols import StoreFull
from ..._model.reservation import Reservation, ReservationState
from .._audit_rows import Row, pack_record, record_of_dead
from .._rows import COLUMNS, ENTRY_BYTES, NewEntry, PackedOutcome, checksum_of, unpack
from .._writer import Job
from ._checkpoints import Checkpoints
from ._confirmations import Confirmations
from ._connection import Connection
from ._errors import translate
from ._limits import SqliteLimits
from ._liveness_locks import LivenessLocks
from ._records import Records

GIVE_WAY_AT_ONCE = 64
"""Most completed entries of repeatable tools that go at once when there is no room, and no more than a thousandth of all."""

MAX_PASSES = 16
"""Of that in one transaction: outputs may be large, and a thousand entries may go in a few milliseconds."""

_FIND = f"SELECT {COLUMNS} FROM entries WHERE key = ?"  # noqa: S608 - a constant
_LIST = f"""
    SELECT {COLUMNS} FROM entries WHERE state <> 'completed' AND (?2 IS NULL OR tool = ?2)
        AND (?3 IS NULL OR state = ?3)
    ORDER BY started_at DESC LIMIT ?1
"""  # noqa: S608 - a constant
_LIST_COMPLETED = f"""
    SELECT {COLUMNS} FROM entries WHERE state = ?3 AND (?2 IS NULL OR tool = ?2) ORDER BY started_at DESC LIMIT ?1
"""  # noqa: S608 - a constant
_OF_OWNER = f"SELECT {COLUMNS} FROM entries WHERE owner = ?"  # noqa: S608 - a constant
_OF_EXECUTION = f"SELECT {COLUMNS} FROM entries WHERE execution_id = ?"  # noqa: S608 - a constant
_ADD = """
    INSERT INTO entries (
        key, principal, session, scope, request_id, fingerprint, execution_id, tool, started_at, state, owner, bytes, repeatable
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?) ON CONFLICT (key) DO NOTHING
"""
_COMPLETE = """
    UPDATE entries SET state = 'completed', owner = NULL, cause = NULL, data = ?, error = ?, checksum = ?, finished_at = ?,
        bytes = bytes + ?
    WHERE key = ? AND execution_id = ? AND state <> 'completed'
"""
_INTERRUPT = """
    UPDATE entries SET state = 'interrupted', owner = NULL, cause = ?, finished_at = ?
    WHERE key = ? AND execution_id = ? AND state = 'running'
"""
_RELEASE = "DELETE FROM entries WHERE key = ? AND execution_id = ? AND state <> 'completed'"
_DISOWN = """
    UPDATE entries SET state = 'interrupted', owner = NULL, finished_at = ? WHERE owner = ?
"""
_SWEEP = """
    DELETE FROM entries WHERE id IN (
        SELECT id FROM entries WHERE state = 'completed' AND finished_at <= ? ORDER BY finished_at LIMIT ?
    )
"""


_GIVE_WAY = """
    DELETE FROM entries WHERE id IN (
        SELECT id FROM entries WHERE state = 'completed' AND repeatable = 1 ORDER BY finished_at LIMIT ?
    )
"""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a store keeps, and for how long.

    Attributes:
        max_entries: Identities at one time.
        max_bytes: Of entries and their outputs at one time.
        retention: Seconds that a completed entry is kept, from its completion.
        audit_retention: Seconds that an audit record is kept, from its call's arrival.
        clock: Unix seconds.
        limits: All other limits.
    """

    max_entries: int
    max_bytes: int
    retention: float
    audit_retention: float
    clock: Callable[[], float]
    limits: SqliteLimits


class Entries:
    """The entries, for the length of one transaction.

    Args:
        connection: Inside a transaction that may write.
        locks: Of this store; they show which owners are alive.
        owner: The store's own id.
        bounds: Its bounds.
        path: Of the file.

    Attributes:
        records: The audit records, in the same transaction.
        checkpoints: The checkpoints of graphs, in the same transaction.
        confirmations: The confirmations, in the same transaction.
    """

    def __init__(self, connection: Connection, locks: LivenessLocks, owner: int, bounds: Bounds, path: Path) -> None:
        self.records = Records(connection, bounds.limits)
        self.checkpoints = Checkpoints(connection, bounds.limits, bounds.clock() - bounds.retention)
        self.confirmations = Confirmations(connection, bounds.limits)
        self._connection = connection
        self._locks = locks
        self._owner = owner
        self._path = path
        self._bounds = bounds
        self._now = bounds.clock()
        self._room: tuple[int, int] | None = None  # entries and bytes that may be added; None until first counted

    def reserve(self, new: NewEntry) -> Reservation | None:
        """See `IdempotencyStore.reserve`."""
        if self._has_room() and self._add(new):
            return None
        existing = self.find(new.key)
        if existing is not None:
            return existing
        if not self._has_room(again=True) and not self._make_room():
            raise StoreFull
        added = self._add(new)
        assert added, "the key was free a moment ago, in this transaction"
        return None

    def complete(self, key: bytes, execution_id: str, outcome: PackedOutcome) -> bool:
        """See `IdempotencyStore.complete`."""
        values = (
            outcome.data,
            outcome.error,
            checksum_of(execution_id, outcome.data, outcome.error),
            outcome.finished_at,
            outcome.bytes,
        )
        return self._connection.changes(_COMPLETE, (*values, key, execution_id)) == 1

    def release(self, key: bytes, execution_id: str) -> bool:
        """See `IdempotencyStore.release`."""
        return self._connection.changes(_RELEASE, (key, execution_id)) == 1

    def interrupt(self, key: bytes, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        """See `IdempotencyStore.interrupt`."""
        values = (None if cause is None else cause.value, finished_at, key, execution_id)
        return self._connection.changes(_INTERRUPT, values) == 1

    def find(self, key: bytes) -> Reservation | None:
        """The current entry: None if past its retention, interrupted if its owner is dead."""
        row = self._connection.row(_FIND, (key,))
        if row is None:
            return None
        entry, owner = unpack(row)
        if entry.state is ReservationState.COMPLETED:
            assert entry.finished_at is not None
            if entry.finished_at + self._bounds.retention <= self._now:
                self._connection.run("DELETE FROM entries WHERE key = ?", (key,))
                return None
        elif owner is not None and not self._is_alive(owner):
            self._interrupt_owner(owner)
            return self.find(key)
        return entry

    def newest(self, state: ReservationState | None, tool: str | None, limit: int) -> list[Reservation]:
        """The newest entries, newest first; without a state, those that are not completed."""
        self.interrupt_dead_owners()
        # SQLite uses the index of entries in doubt only if the query excludes completed ones literally.
        statement = _LIST_COMPLETED if state is ReservationState.COMPLETED else _LIST
        rows = self._connection.rows(statement, (limit, tool, state))
        return [unpack(row)[0] for row in rows]

    def find_execution(self, execution_id: str) -> Reservation | None:
        """The entry that an execution holds. Looks at all of them."""
        self.interrupt_dead_owners()
        row = self._connection.row(_OF_EXECUTION, (execution_id,))
        return None if row is None else unpack(row)[0]

    def audit(self, rows: list[Row]) -> None:
        """Add audit records, and drop some of those that have been kept for long enough."""
        self.records.add(rows, self._now - self._bounds.audit_retention)

    def run(self, jobs: Sequence[Job[Entries, object]]) -> None:
        """Run jobs, in their order. A fault of its values fails a job; a fault of the file fails the transaction.

        Raises:
            apsw.Error: The file failed.
        """
        for job in jobs:
            job.error = None
            try:
                job.value = job.operate(self)
            except (apsw.ConstraintError, apsw.TooBigError) as error:
                job.error = translate(error, self._path)
                job.error.__cause__ = error
            except apsw.Error:
                raise
            except Exception as error:  # noqa: BLE001 - given to the caller of this job
                job.error = error

    def interrupt_dead_owners(self) -> None:
        """Interrupt the running entries of owners that are no longer alive."""
        for (owner,) in self._connection.rows("SELECT id FROM owners"):
            if not self._is_alive(owner):
                self._interrupt_owner(owner)

    def leave(self) -> None:
        """Interrupt the running entries of this store, and delete its owner."""
        self._disown(self._owner)

    def _is_alive(self, owner: int) -> bool:
        return owner == self._owner or self._locks.is_alive(owner)

    def _interrupt_owner(self, owner: int) -> None:
        """Interrupt the running entries of a dead owner, and add the audit records that its process could not write."""
        left = [unpack(row)[0] for row in self._connection.rows(_OF_OWNER, (owner,))]
        if left:
            self.audit([pack_record(record_of_dead(entry)) for entry in left])
        self._disown(owner)

    def _disown(self, owner: int) -> None:
        self._connection.run(_DISOWN, (self._now, owner))
        self._connection.run("DELETE FROM owners WHERE id = ?", (owner,))

    def _add(self, new: NewEntry) -> bool:
        values = (new.key, *new.values, self._owner, new.bytes, new.repeatable)
        added = self._connection.changes(_ADD, values) == 1
        if added and self._room is not None:
            self._room = (self._room[0] - 1, self._room[1] - new.bytes)
        return added

    def _has_room(self, *, again: bool = False) -> bool:
        """Whether an entry may be added. Asked for the first time, it drops what is past its retention.

        Args:
            again: Count again: entries may have gone in this transaction.
        """
        if self._room is None:
            self._connection.run(_SWEEP, (self._now - self._bounds.retention, self._bounds.limits.max_swept))
        if self._room is None or again:
            ((entries, size),) = self._connection.rows("SELECT entries, bytes FROM totals")
            self._room = (self._bounds.max_entries - entries, self._bounds.max_bytes - size)
        return self._room[0] > 0 and self._room[1] >= ENTRY_BYTES

    def _make_room(self) -> bool:
        """Drop completed entries of tools that may be repeated, the oldest first, until an entry may be added."""
        few = max(1, min(GIVE_WAY_AT_ONCE, self._bounds.max_entries // 1000))
        for _ in range(MAX_PASSES):
            if not self._connection.changes(_GIVE_WAY, (few,)):
                return False
            if self._has_room(again=True):
                return True
        return False
