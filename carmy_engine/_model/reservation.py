"""The idempotency of one ``request_id``: who asked, for what, and what became of it."""

from __future__ import annotations

import enum

import msgspec

from .cause import Cause
from .result import Outcome


class Identity(msgspec.Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """Whose request it is. Equal identities are the same request.

    Attributes:
        principal: The authenticated caller, None for anonymous ones.
        session: The caller's session.
        scope: The transport, for callers with neither principal nor session, so that
            anonymous callers of different transports do not share ids. Empty otherwise.
        request_id: What the caller chose.
    """

    principal: str | None
    session: str | None
    scope: str
    request_id: str


class ReservationState(enum.StrEnum):
    """The states of an entry. An absent entry is free."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"


class Reservation(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One entry of an idempotency store.

    Attributes:
        identity: Whose request it is.
        fingerprint: SHA-256 of what was asked.
        execution_id: The execution that holds or held it.
        state: See `ReservationState`.
        started_at: Unix seconds of the reservation.
        tool: The tool's name, for people who settle uncertain entries.
        finished_at: Unix seconds of completion or interruption; retention counts from here.
        outcome: The stored answer of a completed entry.
        cause: Why an interrupted entry was cut off; None when nobody could say.
        repeatable: The tool may be repeated, so that a store that is full may drop the completed entry.
    """

    identity: Identity
    fingerprint: bytes
    execution_id: str
    state: ReservationState
    started_at: float
    tool: str
    finished_at: float | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    repeatable: bool = False
