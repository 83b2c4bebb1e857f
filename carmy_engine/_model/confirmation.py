"""Confirmations that a person gives outside the call: the question, its answer and its one use."""

from __future__ import annotations

import enum
import math
import time

import msgspec

from .effect import Effect


class ConfirmationState(enum.StrEnum):
    """The states of a confirmation."""

    PENDING = "pending"
    """No person has answered."""
    APPROVED = "approved"
    """The same request may run once."""
    DENIED = "denied"
    """The same request is refused."""
    USED = "used"
    """The request has run. Only its retries, which replay its answer, still refer to it."""


class ConfirmationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refused call that a person may approve.

    Attributes:
        confirmation_id: Its id. Not guessable.
        owner: The caller that may use it: the principal, else the session, else the transport of an anonymous caller.
        fingerprint: SHA-256 of the request: tool, arguments and metadata.
        state: See `ConfirmationState`.
        tool: The tool's name.
        effect: Its effect.
        arguments: The arguments as JSON, to be shown to the person.
        principal: The caller.
        session: The caller's session.
        transport: The transport of the call.
        asked_at: Unix seconds of the refusal.
        expires_at: Unix seconds; from then on there is no such confirmation.
        answered_at: Unix seconds of the answer.
        answered_by: The answering principal; ``host`` for the program itself, ``operator`` for the command over the store.
        request_id: Of the call that has used it.
    """

    confirmation_id: str
    owner: str
    fingerprint: bytes
    state: ConfirmationState
    tool: str
    effect: Effect
    arguments: bytes
    principal: str | None
    session: str | None
    transport: str
    asked_at: float
    expires_at: float
    answered_at: float | None = None
    answered_by: str | None = None
    request_id: str | None = None

    @property
    def is_live(self) -> bool:
        """It is not used, so the same request gets no other confirmation."""
        return self.state is not ConfirmationState.USED


def confirmation_body(entry: ConfirmationEntry) -> bytes:
    """A confirmation as JSON for the host's page and the command: without the fields that are the store's, with the seconds left."""
    fields = {name: getattr(entry, name) for name in _SHOWN if getattr(entry, name) is not None}
    left = max(0, math.ceil(entry.expires_at - time.time()))
    return msgspec.json.encode({**fields, "expires_in": left, "arguments": msgspec.Raw(entry.arguments)})


_SHOWN = (
    "confirmation_id",
    "state",
    "tool",
    "effect",
    "principal",
    "session",
    "transport",
    "asked_at",
    "expires_at",
    "answered_at",
    "answered_by",
)
