"""Limits of a store in time, bytes and numbers."""

from __future__ import annotations

import msgspec

from ..memory import MAX_CONFIRMATIONS, MAX_PENDING_CONFIRMATIONS


class PostgresLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a `PostgresStore`, beside the number, size and age of its entries.

    Attributes:
        lease_secs: How long entries count as running after the last renewal by their process, which renews at a third of it.
        patience_secs: Longest wait for the server, new connections included. It is less than the engine's own limit for a store.
        max_jobs: Callers in one transaction.
        max_deferred: Deferred jobs: they have no waiting caller, and run first in the next transaction.
        max_deferred_bytes: Outputs in deferred jobs. A job that does not fit is dropped; its entry counts as running until this
            process ends or its lease runs out.
        max_queued_records: Audit records in the queue: some seconds' worth at full speed, and about ten megabytes.
        max_records: Audit records in the database, about half a kilobyte each. Older ones go first.
        max_swept: Old entries, records and threads that are dropped at once: few enough not to delay callers.
        max_read_records: Records that one transaction looks at.
        max_checkpoints: Checkpoints of one thread of a graph, each with the whole state. Older ones go first.
        max_pending_confirmations: Pending confirmations of one owner. Older ones go first.
        max_confirmations: Confirmations in all. More are refused.
    """

    lease_secs: float = 15.0
    patience_secs: float = 5.0
    max_jobs: int = 512
    max_deferred: int = 10_000
    max_deferred_bytes: int = 64 * 1024 * 1024
    max_queued_records: int = 20_000
    max_records: int = 10_000_000
    max_swept: int = 2000
    max_read_records: int = 20_000
    max_checkpoints: int = 1000
    max_pending_confirmations: int = MAX_PENDING_CONFIRMATIONS
    max_confirmations: int = MAX_CONFIRMATIONS


DEFAULT_LIMITS = PostgresLimits()
