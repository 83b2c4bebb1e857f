"""The seams of the engine: what it asks of others, and what it offers to transports.

Implementations need not inherit from these; having the methods is enough. What a store is handed, and hands back, is here as well.
"""

from ._model.protocols import (
    Authenticator,
    Confirm,
    Credentials,
    Executor,
    IdempotencyStore,
    Identity,
    Outcome,
    Policy,
    Reservation,
    ReservationState,
    Sink,
    StoreError,
    StoreFull,
    Tool,
)

__all__ = [
    "Authenticator",
    "Confirm",
    "Credentials",
    "Executor",
    "IdempotencyStore",
    "Identity",
    "Outcome",
    "Policy",
    "Reservation",
    "ReservationState",
    "Sink",
    "StoreError",
    "StoreFull",
    "Tool",
]
