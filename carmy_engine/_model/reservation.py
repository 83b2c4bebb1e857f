"""The idempotency entry of one ``request_id``: caller, request and outcome."""

from __future__ import annotations

import enum

import msgspec

from .cause import Cause
from .result import Outcome


class Identity(msgspec.Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """The identity of a request. Equal identities are the same request.

    Attributes:
        principal: The authenticated caller, None for anonymous ones.
        session: The caller's session.
        scope: The transport, for callers with neither principal nor session, so that
            anonymous callers of different transports do not share ids. Empty otherwise.
        request_id: The caller's id.
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
        identity: The identity of the request.
        fingerprint: SHA-256 of tool, arguments and metadata.
        execution_id: The execution that holds or held it.
        state: See `ReservationState`.
        started_at: Unix seconds of the reservation.
        tool: The tool's name, for the operator of an uncertain entry.
        finished_at: Unix seconds of completion or interruption; retention counts from here.
        outcome: The stored answer of a completed entry.
        cause: The cause of an interruption; None if unknown.
        repeatable: The tool may run again, so a full store may drop the completed entry.
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
