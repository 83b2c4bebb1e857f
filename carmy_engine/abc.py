"""The seams of the engine: what it asks of others, and what it offers to transports.

Implementations need not inherit from these; having the methods is enough. What a store is handed, and hands back, is here as well.
"""

from ._model.protocols import (
    AuditStore,
    Authenticator,
    CheckableStore,
    Confirm,
    Credentials,
    Executor,
    FileStore,
    IdempotencyStore,
    Identity,
    ListableStore,
    Outcome,
    Policy,
    PreparableStore,
    RecordingStore,
    Reservation,
    ReservationState,
    SearchableStore,
    Sink,
    StoreError,
    StoreFull,
    Tool,
)

__all__ = [
    "AuditStore",
    "Authenticator",
    "CheckableStore",
    "Confirm",
    "Credentials",
    "Executor",
    "FileStore",
    "IdempotencyStore",
    "Identity",
    "ListableStore",
    "Outcome",
    "Policy",
    "PreparableStore",
    "RecordingStore",
    "Reservation",
    "ReservationState",
    "SearchableStore",
    "Sink",
    "StoreError",
    "StoreFull",
    "Tool",
]
