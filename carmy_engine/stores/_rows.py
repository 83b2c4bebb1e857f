"""Entries as rows of a database, and back.

A value that no database can hold is refused here, before it fails the transaction of other callers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from .._model.cause import Cause
from .._model.codec import is_json
from .._model.error_info import ErrorInfo
from .._model.protocols import StoreError
from .._model.reservation import Identity, Reservation, ReservationState
from .._model.result import Outcome

ENTRY_BYTES = 512
"""What an entry costs beside its texts and its output, indexes included."""

COLUMNS = (
    "principal, session, scope, request_id, fingerprint, execution_id, tool, state, owner, started_at, finished_at,"
    " cause, data, error, checksum"
)
"""In the order that `unpack` expects."""

_encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(ErrorInfo).decode


class DamagedEntryError(StoreError):
    """An entry is not what was written."""

    reason = "corrupt"


class NewEntry(msgspec.Struct, frozen=True):
    """A reservation, ready to be inserted.

    Attributes:
        key: See `key_of`.
        values: Of the columns that it has from the start.
        bytes: What it counts against the bound.
        repeatable: Its answer may give way.
    """

    key: bytes
    values: tuple[str | bytes | float | None, ...]
    bytes: int
    repeatable: bool


class PackedOutcome(msgspec.Struct, frozen=True):
    """An outcome, ready to be written.

    Attributes:
        data: The output as JSON.
        error: The error as JSON.
        finished_at: Unix seconds.
    """

    data: bytes | None
    error: bytes | None
    finished_at: float

    @property
    def bytes(self) -> int:
        """What it counts against the bound."""
        return len(self.data or b"") + len(self.error or b"")


def key_of(identity: Identity) -> bytes:
    """A short key. None and an empty text give different ones.

    Raises:
        UnicodeEncodeError: A part is not valid Unicode.
    """
    parts = (identity.principal, identity.session, identity.scope, identity.request_id)
    return hashlib.sha256(_encode(parts)).digest()


def pack(reservation: Reservation) -> NewEntry:
    """A reservation as a row.

    Raises:
        UnicodeEncodeError: A part is not valid Unicode.
    """
    identity = reservation.identity
    texts = (identity.principal, identity.session, identity.scope, identity.request_id)
    names = (reservation.execution_id, reservation.tool)
    return NewEntry(
        key_of(identity),
        (*texts, reservation.fingerprint, *names, reservation.started_at),
        ENTRY_BYTES + sum(len(text.encode()) for text in (*texts, *names) if text is not None),
        reservation.repeatable,
    )


def pack_outcome(outcome: Outcome, finished_at: float) -> PackedOutcome:
    """An outcome as values.

    Raises:
        TypeError: The error's details are not JSON.
        UnicodeEncodeError: They are not valid Unicode.
    """
    return PackedOutcome(outcome.data_json, None if outcome.error is None else _encode(outcome.error), finished_at)


def unpack(row: tuple[Any, ...]) -> tuple[Reservation, int | None]:
    """The entry of a row, and the owner of a running one.

    Raises:
        DamagedEntryError: It is not what was written.
    """
    try:
        return _unpack(row)
    except (ValueError, TypeError) as error:  # those of msgspec among them
        raise DamagedEntryError(f"the entry of the execution {row[5]} is damaged: {error}") from error


def _unpack(row: tuple[Any, ...]) -> tuple[Reservation, int | None]:
    principal, session, scope, request_id, fingerprint, execution_id, tool, *rest = row
    state, owner, started_at, finished_at, cause, data, error, checksum = rest
    outcome = None
    if state == ReservationState.COMPLETED:
        if checksum is None:  # an earlier version has recorded it
            if not is_json(data or b"null"):
                raise ValueError("its answer is not JSON")
        elif checksum != checksum_of(execution_id, data, error):
            raise ValueError("its answer does not fit its checksum")
        outcome = Outcome(
            execution_id=execution_id, data_json=data, error=None if error is None else _decode_error(error)
        )
    entry = Reservation(
        identity=Identity(principal=principal, session=session, scope=scope, request_id=request_id),
        fingerprint=fingerprint,
        execution_id=execution_id,
        state=ReservationState(state),
        started_at=started_at,
        tool=tool,
        finished_at=finished_at,
        outcome=outcome,
        cause=None if cause is None else Cause(cause),
    )
    return entry, owner


def checksum_of(execution_id: str, data: bytes | None, error: bytes | None) -> bytes:
    """What shows later that an answer is still the one of that execution, as it was. Takes a millisecond for a megabyte."""
    digest = hashlib.blake2b(execution_id.encode(), digest_size=16)
    for part in (data, error):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()
