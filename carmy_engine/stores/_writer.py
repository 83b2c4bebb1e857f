"""Group commit: callers that arrive while a transaction is written share the next one, and its one sync.

A transaction is one function in one worker thread, one at a time. It takes the waiting jobs once it holds the write lock, so it
includes callers that arrived while it waited for the lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, cast

import trio

from .._model.protocols import StoreError
from .._model.rate_limited_log import RateLimitedLogger
from ._audit_rows import Row

log = logging.getLogger("carmy.engine")

T = TypeVar("T")

RECORDS_AT_ONCE = 1000
"""Audit records in one transaction."""

AUDIT_DELAY_SECONDS = 0.05
"""Longest wait of a record for the transaction of another job. A crash loses only younger records."""


class StoreClosedError(StoreError):
    """The store was used after it had been closed."""

    reason = "closed"


class UnexpectedError(StoreError):
    """The database reported an error that the store has no other word for."""

    reason = "failed"


class WriterLimits(Protocol):
    """The limits of a store that its writer reads, as they are in the limits of each store."""

    @property
    def max_jobs(self) -> int:
        """Callers in one transaction."""
        ...

    @property
    def max_deferred(self) -> int:
        """Deferred jobs."""
        ...

    @property
    def max_deferred_bytes(self) -> int:
        """Outputs in deferred jobs."""
        ...

    @property
    def max_queued_records(self) -> int:
        """Audit records in the queue."""
        ...


class Transaction(Protocol):
    """A transaction that may write, in the writer's thread."""

    def audit(self, rows: list[Row], /) -> None:
        """Add audit records."""
        ...

    def run(self, jobs: Sequence[Job[Any, object]], /) -> None:
        """Run jobs: each gets its ``value``, or its ``error`` if its own values are at fault.

        Raises:
            Exception: The database failed. The transaction is rolled back.
        """
        ...


W = TypeVar("W", bound=Transaction)
W_co = TypeVar("W_co", bound=Transaction, covariant=True)
W_contra = TypeVar("W_contra", contravariant=True)


class Database(Protocol[W_co]):
    """A database, used by one thread at a time."""

    @property
    def name(self) -> str:
        """Of the database, for the log. It has no password."""
        ...

    def transact(self, work: Callable[[W_co], None], /) -> None:
        """Call `work` in a transaction and commit. It may be called again, if an attempt was rolled back.

        Raises:
            StoreError: Nothing was changed.
        """
        ...

    def close(self) -> None:
        """Interrupt what this store has left running, and release the database. Idempotent.

        Raises:
            StoreError: The running entries could not be interrupted.
        """
        ...


class Job(Generic[W_contra, T]):
    """A unit of work in a transaction.

    Args:
        operate: The work. Called again, in another transaction, if the first one failed.
        undo: Gets the result if the caller has left before it, and returns the work that reverts it, or None.
        must_run: It runs even if its caller leaves or the file fails: then, in the next transaction.
        size: Bytes that it keeps in memory.
    """

    __slots__ = ("error", "left", "must_run", "operate", "size", "taken", "task", "undo", "value")

    def __init__(
        self,
        operate: Callable[[W_contra], T],
        *,
        undo: Callable[[T], Callable[[W_contra], object] | None] | None = None,
        must_run: bool = False,
        size: int = 0,
    ) -> None:
        self.operate = operate
        self.undo = undo
        self.must_run = must_run
        self.size = size
        self.task: trio.lowlevel.Task | None = None
        self.taken = self.left = False
        self.value: T | None = None
        self.error: Exception | None = None


class _Batch:
    """The jobs of one transaction, once they are `taken`; `error` is why there was none."""

    def __init__(self) -> None:
        self.taken = False
        self.deferred: list[Job[Any, object]] = []
        self.jobs: list[Job[Any, object]] = []
        self.records: list[Row] = []
        self.error: StoreError | None = None


class Writer(Generic[W]):
    """Runs the jobs of tasks of one trio run in transactions.

    Attributes:
        transactions: How many there have been.
        dropped: Audit records for which the queue had no room.
    """

    def __init__(self, database: Database[W], limits: WriterLimits) -> None:
        self._database = database
        self._limits = limits
        self._lock = threading.Lock()  # held for moments; guards the two below and what jobs are `taken`
        self._waiting: dict[Job[Any, object], None] = {}  # in the order of their coming; each has a task that waits
        self._deferred: dict[Job[Any, object], None] = {}
        self._deferred_bytes = 0
        self._audit_queue: deque[Row] = deque()
        self._audit_due = self._audit_timed = False
        self._busy = False
        self._closing: trio.Event | None = None
        self.transactions = 0
        self.dropped = 0
        self._dropping = False
        self._log = RateLimitedLogger(log)  # for what each call may cause, while the file cannot be written

    async def do(self, job: Job[W, T]) -> T:
        """Do it in a transaction, and return what it returns once that is committed.

        If cancelled, the caller leaves at once. A job that waits in the queue is withdrawn, and one in a transaction is
        reverted by its `undo`, before any other change; but one that is `must_run` is deferred.

        Raises:
            StoreError: There was no transaction; nothing was changed.
            Exception: What the job raised.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closing is not None:
            raise StoreClosedError("the store was used after it had been closed")
        job.task = trio.lowlevel.current_task()
        one = cast("Job[Any, object]", job)
        with self._lock:
            self._waiting[one] = None
        self._start()
        await trio.lowlevel.wait_task_rescheduled(lambda _: self._leave(one))
        if job.error is not None:
            raise job.error
        return cast("T", job.value)

    def queue_record(self, row: Row) -> None:
        """Queue an audit record. Never waits; a record for which there is no room is dropped and counted."""
        if len(self._audit_queue) >= self._limits.max_queued_records or self._closing is not None:
            self.dropped += 1
            if not self._dropping:
                self._dropping = True
                log.error("%s: audit records are being dropped, because they cannot be written", self._database.name)
            return
        with self._lock:
            self._audit_queue.append(row)
        if len(self._audit_queue) >= RECORDS_AT_ONCE:
            self._audit_due = True
            self._start()
        elif not self._audit_timed:
            self._audit_timed = True
            trio.lowlevel.spawn_system_task(self._time_audit)

    async def _time_audit(self) -> None:
        """Begin a transaction for the queued records, unless one has written them meanwhile."""
        try:
            await trio.sleep(AUDIT_DELAY_SECONDS)
        finally:
            self._audit_timed = False
        self._audit_due = True
        self._start()

    async def aclose(self) -> None:
        """Do what is waiting, then close the file. Idempotent.

        If cancelled, that goes on in the thread.
        """
        if self._closing is None:
            self._closing = trio.Event()
            self._start()
        await self._closing.wait()

    def _leave(self, job: Job[Any, object]) -> trio.lowlevel.Abort:
        """The caller was cancelled."""
        with self._lock:
            job.left = True
            withdrawn = not job.taken
            if withdrawn:
                del self._waiting[job]
        if withdrawn and job.must_run:
            self._defer(job)
        return trio.lowlevel.Abort.SUCCEEDED

    def _defer(self, job: Job[Any, object]) -> None:
        with self._lock:
            if (
                len(self._deferred) >= self._limits.max_deferred
                or self._deferred_bytes + job.size > self._limits.max_deferred_bytes
            ):
                self._log.error(
                    "too much is waiting for %s to be written; an entry stays as it is", self._database.name
                )
                return
            job.task = None
            self._deferred[job] = None
            self._deferred_bytes += job.size

    def _start(self) -> None:
        """Begin the next transaction, unless one is going on: its end will begin the next."""
        if self._busy:
            return
        self._busy = True
        token = trio.lowlevel.current_trio_token()
        if self._waiting or self._deferred or (self._audit_queue and (self._audit_due or self._closing is not None)):
            batch = _Batch()
            trio.lowlevel.start_thread_soon(
                partial(self._transact, batch), lambda _: _tell(token, partial(self._deliver, batch)), "carmy store"
            )
        elif self._closing is not None and not self._closing.is_set():
            trio.lowlevel.start_thread_soon(self._close, lambda _: _tell(token, self._closing_done), "carmy store")
        else:
            self._busy = False

    def _transact(self, batch: _Batch) -> None:
        """In the thread. Never raises: every job has a waiting caller."""
        with self._lock:
            patient = list(self._waiting)
        try:
            self._database.transact(partial(self._run, batch))
        except StoreError as error:
            batch.error = error
        except Exception as error:  # noqa: BLE001 - a bug must not leave callers waiting for ever
            batch.error = UnexpectedError(f"{self._database.name}: {type(error).__name__}: {error}")
            batch.error.__cause__ = error
        if batch.error is not None and not batch.taken:
            # It did not begin. Only callers that waited from its start are refused; later ones stay in the queue.
            self._take(batch, patient)

    def _run(self, batch: _Batch, transaction: W) -> None:
        """The work of one transaction."""
        if not batch.taken:
            self._take(batch)
        if batch.records:
            transaction.audit(batch.records)  # before the jobs: some of them may be to read records
        transaction.run([*batch.deferred, *batch.jobs])

    def _take(self, batch: _Batch, only: list[Job[Any, object]] | None = None) -> None:
        batch.taken = True
        with self._lock:
            batch.deferred = list(self._deferred)
            jobs = (
                islice(self._waiting, self._limits.max_jobs)
                if only is None
                else (job for job in only if job in self._waiting)
            )
            for job in list(jobs):
                del self._waiting[job]
                job.taken = True
                batch.jobs.append(job)
            batch.records = list(islice(self._audit_queue, RECORDS_AT_ONCE))

    def _deliver(self, batch: _Batch) -> None:
        """In the trio thread, when the transaction is over, one way or another."""
        self._busy = False
        self.transactions += batch.error is None
        self._audit_due = False
        if batch.error is None:
            with self._lock:
                for _ in batch.records:
                    self._audit_queue.popleft()
                self._audit_due = len(self._audit_queue) >= RECORDS_AT_ONCE
                self._dropping = False
                for job in batch.deferred:
                    del self._deferred[job]
                    self._deferred_bytes -= job.size
        for job in batch.jobs:
            if batch.error is not None:
                job.error = _again(batch.error)
                if job.must_run:
                    self._defer(_copy(job))
            elif job.left and job.error is None and job.undo is not None:
                undo = job.undo(job.value)
                if undo is not None:
                    self._defer(Job(undo, must_run=True))
            if not job.left:
                assert job.task is not None
                trio.lowlevel.reschedule(job.task)
        # After a failure, deferred jobs alone begin no transaction; the next caller does, and so does the end.
        if batch.error is None or self._waiting:
            self._start()
        elif self._closing is not None:
            self._abandon()
            self._start()

    def _abandon(self) -> None:
        """At the end: the file cannot be written, and there is no later."""
        with self._lock:
            log.error(
                "%s could not be written at the end; %d entries stay as they are, and %d audit records are lost",
                *(self._database.name, len(self._deferred), len(self._audit_queue)),
            )
            self._deferred.clear()
            self._deferred_bytes = 0
            self.dropped += len(self._audit_queue)
            self._audit_queue.clear()

    def _close(self) -> None:
        """In the thread."""
        try:
            self._database.close()
        except StoreError as error:
            log.warning("%s; what this process has left running is settled when it is opened next", error)

    def _closing_done(self) -> None:
        self._busy = False
        assert self._closing is not None
        self._closing.set()


def _copy(job: Job[Any, object]) -> Job[Any, object]:
    return Job(job.operate, must_run=True, size=job.size)


def _again(error: StoreError) -> StoreError:
    """An exception of its own for each caller: raising one object in several tasks would mix their tracebacks."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


def _tell(token: trio.lowlevel.TrioToken, what: Callable[[], object]) -> None:
    """Call it in the trio thread, if there still is one."""
    try:
        token.run_sync_soon(what)
    except trio.RunFinishedError:
        log.debug("a transaction ended after its event loop")
