"""Limits of a store in time, bytes and numbers."""

from __future__ import annotations

import msgspec

from ..memory import MAX_CONFIRMATIONS, MAX_PENDING_CONFIRMATIONS


class SqliteLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a `SqliteStore`, beside the number, size and age of its entries.

    Attributes:
        patience_secs: Longest wait for other processes that use the file. A transaction takes milliseconds, so more is a fault. It is
            less than the engine's own limit for a store.
        max_jobs: Callers in one transaction: enough to make the sync's share small, few enough for a transaction of some ten
            milliseconds.
        max_deferred: Deferred jobs: they have no waiting caller, and run first in the next transaction.
        max_deferred_bytes: Outputs in deferred jobs. There are many only after a long failure of the file. A job that does not fit
            is dropped; its entry counts as running until this process ends, and as interrupted from then on.
        max_queued_records: Audit records in the queue: some seconds' worth at full speed, and about ten megabytes.
        max_records: Audit records in the file, about half a kilobyte each. Older ones go first.
        max_swept: Old entries, and old records, that one transaction drops: more than it can add, and few enough not to delay callers.
        max_read_records: Records that one transaction looks at: others wait for it meanwhile, some ten milliseconds.
        max_checkpoints: Checkpoints of one thread of a graph, each with the whole state. Older ones go first.
        max_pending_confirmations: Pending confirmations of one owner. The oldest give way.
        max_confirmations: Confirmations in all, each with up to 64 KiB of arguments.
    """

    patience_secs: float = 5.0
    max_jobs: int = 512
    max_deferred: int = 10_000
    max_deferred_bytes: int = 64 * 1024 * 1024
    max_queued_records: int = 20_000
    max_records: int = 2_000_000
    max_swept: int = 2000
    max_read_records: int = 20_000
    max_checkpoints: int = 1000
    max_pending_confirmations: int = MAX_PENDING_CONFIRMATIONS
    max_confirmations: int = MAX_CONFIRMATIONS


DEFAULT_LIMITS = SqliteLimits()
