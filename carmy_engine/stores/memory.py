"""An idempotency store in memory: for one process, gone with it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import msgspec

from .._config.settings import StoreSettings
from .._model.cause import Cause
from .._model.checkpoint import Checkpoint, RunStatus
from .._model.confirmation import ConfirmationEntry, ConfirmationState
from .._model.protocols import StoreFull
from .._model.reservation import Identity, Reservation, ReservationState
from .._model.result import Outcome

MAX_ENTRIES = 100_000
"""Identities remembered."""

MAX_BYTES = 256 * 1024 * 1024
"""Of stored outputs and errors. Entries count at least `_ENTRY_BYTES` each."""

RETENTION_SECONDS = 7 * 24 * 3600.0
"""How long a completed entry is replayed, counted from its completion."""

_ENTRY_BYTES = 512
"""Bytes of an entry beside its output or error."""


MAX_THREADS = 10_000
"""Threads of graphs with checkpoints. Beyond it, the one that ended first gives way."""

MAX_CHECKPOINTS = 100
"""Checkpoints of one thread, each with the whole state; the oldest give way."""


MAX_PENDING_CONFIRMATIONS = 100
"""Pending confirmations of one owner: more than a person reads. The oldest give way, so that one caller costs others nothing."""

MAX_CONFIRMATIONS = 2000
"""Confirmations in all, each with up to 64 KiB of arguments: 128 MiB, if twenty callers set out to fill it."""


class MemoryCheckpoints:
    """Checkpoints of graphs in memory; see `carmy_engine.abc.CheckpointStore`.

    Args:
        max_threads: Threads at one time.
        max_checkpoints: Checkpoints of one thread.
    """

    def __init__(self, *, max_threads: int = MAX_THREADS, max_checkpoints: int = MAX_CHECKPOINTS) -> None:
        self._max_threads = max_threads
        self._max_checkpoints = max_checkpoints
        self._threads: dict[tuple[str, str], deque[Checkpoint]] = {}
        self._ended: dict[tuple[str, str], None] = {}
        """Threads whose last run has ended, in the order of the ends."""

    async def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """See `CheckpointStore.save_checkpoint`."""
        key = checkpoint.graph, checkpoint.thread_id
        thread = self._threads.get(key)
        if thread is None:
            if len(self._threads) >= self._max_threads:
                if not self._ended:
                    raise StoreFull
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._threads[oldest]
            thread = self._threads[key] = deque(maxlen=self._max_checkpoints)
        elif thread[-1].number >= checkpoint.number:
            return False
        thread.append(checkpoint)
        self._ended.pop(key, None)
        if checkpoint.status in _ENDED:
            self._ended[key] = None
        return True

    async def latest_checkpoint(self, graph: str, thread_id: str) -> Checkpoint | None:
        """See `CheckpointStore.latest_checkpoint`."""
        thread = self._threads.get((graph, thread_id))
        return None if thread is None else thread[-1]

    async def checkpoints(self, graph: str, thread_id: str, *, limit: int = 100) -> list[Checkpoint]:
        """See `CheckpointStore.checkpoints`."""
        return list(islice(reversed(self._threads.get((graph, thread_id), ())), limit))


class MemoryConfirmations:
    """Confirmations in memory; see `carmy_engine.abc.ConfirmationStore`.

    Args:
        max_pending: Pending confirmations of one owner.
        max_entries: Confirmations at one time.
    """

    def __init__(self, *, max_pending: int = MAX_PENDING_CONFIRMATIONS, max_entries: int = MAX_CONFIRMATIONS) -> None:
        self._max_pending = max_pending
        self._max_confirmations = max_entries
        self._asked: dict[str, ConfirmationEntry] = {}
        """By id, in the order of the questions."""

    async def add_confirmation(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """See `ConfirmationStore.add_confirmation`."""
        found = await self.find_confirmations(entry.owner, entry.fingerprint, now=entry.asked_at)
        for each in found:
            if each.is_live:
                return each
        expired = [each.confirmation_id for each in self._asked.values() if each.expires_at <= entry.asked_at]
        for confirmation_id in expired:
            del self._asked[confirmation_id]
        pending = [
            each.confirmation_id
            for each in self._asked.values()
            if each.owner == entry.owner and each.state is ConfirmationState.PENDING
        ]
        if len(pending) >= self._max_pending:
            del self._asked[pending[0]]
        if len(self._asked) >= self._max_confirmations:
            raise StoreFull
        self._asked[entry.confirmation_id] = entry
        return None

    async def replace_confirmation(self, entry: ConfirmationEntry, expected: ConfirmationState, *, now: float) -> bool:
        """See `ConfirmationStore.replace_confirmation`."""
        held = await self.get_confirmation(entry.confirmation_id, now=now)
        if held is None or held.state is not expected:
            return False
        self._asked[entry.confirmation_id] = entry
        return True

    async def find_confirmations(self, owner: str, fingerprint: bytes, *, now: float) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.find_confirmations`."""
        return [
            each
            for each in reversed(self._asked.values())
            if each.owner == owner and each.fingerprint == fingerprint and now < each.expires_at
        ]

    async def get_confirmation(self, confirmation_id: str, *, now: float) -> ConfirmationEntry | None:
        """See `ConfirmationStore.get_confirmation`."""
        found = self._asked.get(confirmation_id)
        return found if found is not None and now < found.expires_at else None

    async def confirmations(self, *, now: float, limit: int = 100) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.confirmations`."""
        found = (each for each in reversed(self._asked.values()) if each.is_live and now < each.expires_at)
        return list(islice(found, limit))


_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT})


class MemoryStore(MemoryCheckpoints, MemoryConfirmations):
    """A store in memory. Completed entries age out after the retention; running and interrupted ones never do.

    A full store drops completed entries of tools that may be repeated, the oldest first. It drops no others: an id may stand for
    a committed effect.

    Args:
        max_entries: Identities at one time.
        max_bytes: Bytes of entries and their outputs at one time.
        retention: Seconds.
        clock: Unix seconds; for tests.
    """

    never_waits = True

    def __init__(
        self,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        retention: float = RETENTION_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        MemoryCheckpoints.__init__(self)
        MemoryConfirmations.__init__(self)
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._retention = retention
        self._clock = clock
        self._entries: dict[Identity, Reservation] = {}
        # Completed entries, the oldest completion first: those that may give way, and the others.
        self._repeatable: deque[Reservation] = deque()
        self._lasting: deque[Reservation] = deque()
        self._bytes = 0
        self._next_expiry = float("inf")

    def __len__(self) -> int:
        return len(self._entries)

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        """See `IdempotencyStore.reserve`."""
        self._sweep()
        existing = self._entries.get(reservation.identity)
        if existing is not None:
            return existing
        while len(self._entries) >= self._max_entries or self._bytes + _ENTRY_BYTES > self._max_bytes:
            if not self._repeatable:
                raise StoreFull
            self._drop(self._repeatable.popleft())
        self._entries[reservation.identity] = reservation
        self._bytes += _ENTRY_BYTES
        return None

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        """See `IdempotencyStore.complete`. An outcome over the limit is kept all the same: it stands for an effect."""
        entry = self._held(identity, execution_id)
        if entry is None:
            return False
        completed = self._entries[identity] = msgspec.structs.replace(
            entry, state=ReservationState.COMPLETED, outcome=outcome, finished_at=finished_at, cause=None
        )
        queue = self._repeatable if completed.repeatable else self._lasting
        if not queue:
            self._next_expiry = min(self._next_expiry, finished_at + self._retention)
        queue.append(completed)
        self._bytes += _bytes_of(outcome)
        return True

    async def release(self, identity: Identity, execution_id: str) -> bool:
        """See `IdempotencyStore.release`."""
        if self._held(identity, execution_id) is None:
            return False
        del self._entries[identity]
        self._bytes -= _ENTRY_BYTES
        return True

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        """See `IdempotencyStore.interrupt`."""
        entry = self._held(identity, execution_id)
        if entry is None or entry.state is not ReservationState.RUNNING:
            return False
        self._entries[identity] = msgspec.structs.replace(
            entry, state=ReservationState.INTERRUPTED, cause=cause, finished_at=finished_at
        )
        return True

    async def get(self, identity: Identity) -> Reservation | None:
        """See `IdempotencyStore.get`."""
        self._sweep()
        return self._entries.get(identity)

    async def entries(
        self, *, state: ReservationState | None = None, tool: str | None = None, limit: int = 100
    ) -> list[Reservation]:
        """The entries that began last, newest first.

        Args:
            state: In this state only; None for those that run or are in doubt.
            tool: Of this tool only.
            limit: At most so many.
        """
        self._sweep()
        found = (
            entry
            for entry in reversed(self._entries.values())
            if (entry.state is not ReservationState.COMPLETED if state is None else entry.state is state)
            and (tool is None or entry.tool == tool)
        )
        return list(islice(found, limit))

    async def aclose(self) -> None:
        """Nothing to release."""

    def _held(self, identity: Identity, execution_id: str) -> Reservation | None:
        """The entry, if this execution holds it and it is not completed."""
        entry = self._entries.get(identity)
        if entry is None or entry.execution_id != execution_id or entry.state is ReservationState.COMPLETED:
            return None
        return entry

    def _sweep(self) -> None:
        """Drop completed entries past their retention."""
        now = self._clock()
        if now < self._next_expiry:
            return
        expiries: list[float] = []
        for queue in (self._repeatable, self._lasting):
            while queue:
                assert queue[0].finished_at is not None
                expiry = queue[0].finished_at + self._retention
                if now < expiry:
                    expiries.append(expiry)
                    break
                self._drop(queue.popleft())
        self._next_expiry = min(expiries, default=float("inf"))

    def _drop(self, completed: Reservation) -> None:
        """Forget a completed entry that has left its queue."""
        del self._entries[completed.identity]
        self._bytes -= _ENTRY_BYTES + _bytes_of(completed.outcome)


def from_settings(settings: StoreSettings) -> MemoryStore:
    """The store that ``memory:`` names."""
    return MemoryStore(
        max_entries=MAX_ENTRIES if settings.max_entries is None else settings.max_entries,
        max_bytes=MAX_BYTES if settings.max_bytes is None else settings.max_bytes,
        retention=settings.retention_days * 86_400,
    )


def _bytes_of(outcome: Outcome | None) -> int:
    if outcome is None:
        return 0
    return len(outcome.data_json or b"") + (0 if outcome.error is None else len(msgspec.json.encode(outcome.error)))
