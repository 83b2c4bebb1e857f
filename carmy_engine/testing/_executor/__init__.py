"""The checks of the suite for executors, by subject."""

from __future__ import annotations

from . import arguments, cancellation, catalog, concurrency, deadlines, events, idempotency, joins, results
from .suite import suite

__all__ = [
    "arguments",
    "cancellation",
    "catalog",
    "concurrency",
    "deadlines",
    "events",
    "idempotency",
    "joins",
    "results",
    "suite",
]
