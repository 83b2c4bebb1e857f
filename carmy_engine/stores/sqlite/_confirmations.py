"""Confirmations as rows, in the transactions of the entries."""

from __future__ import annotations

import msgspec

from ..._model.confirmation import ConfirmationEntry, ConfirmationState
from ..._model.protocols import StoreFull
from ._connection import Connection
from ._errors import CorruptFileError
from ._limits import SqliteLimits

_decode = msgspec.json.Decoder(ConfirmationEntry).decode


class Confirmations:
    """The confirmations, for the length of one transaction.

    Args:
        connection: Inside a transaction that may write.
        limits: How many are kept.
    """

    def __init__(self, connection: Connection, limits: SqliteLimits) -> None:
        self._connection = connection
        self._limits = limits

    def add(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """See `ConfirmationStore.add_confirmation`."""
        for found in self.find(entry.owner, entry.fingerprint, entry.asked_at):
            if found.is_live:
                return found
        run = self._connection.run
        run("DELETE FROM confirmations WHERE expires_at <= ?", (entry.asked_at,))
        pending = self._connection.rows(
            "SELECT number FROM confirmations WHERE owner = ? AND state = 'pending' ORDER BY number", (entry.owner,)
        )
        if len(pending) >= self._limits.max_pending_confirmations:
            run("DELETE FROM confirmations WHERE number = ?", pending[0])
        ((count,),) = self._connection.rows("SELECT count(*) FROM confirmations")
        if count >= self._limits.max_confirmations:
            raise StoreFull
        run(
            "INSERT INTO confirmations (id, owner, fingerprint, state, expires_at, entry) VALUES (?, ?, ?, ?, ?, ?)",
            (
                entry.confirmation_id,
                entry.owner,
                entry.fingerprint,
                entry.state.value,
                entry.expires_at,
                msgspec.json.encode(entry),
            ),
        )
        return None

    def replace(self, entry: ConfirmationEntry, expected: ConfirmationState, now: float) -> bool:
        """See `ConfirmationStore.replace_confirmation`."""
        values = (entry.state.value, entry.expires_at, msgspec.json.encode(entry))
        changed = self._connection.changes(
            "UPDATE confirmations SET state = ?, expires_at = ?, entry = ? WHERE id = ? AND state = ? AND expires_at > ?",
            (*values, entry.confirmation_id, expected.value, now),
        )
        return changed == 1

    def find(self, owner: str, fingerprint: bytes, now: float) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.find_confirmations`."""
        rows = self._connection.rows(
            "SELECT entry FROM confirmations WHERE owner = ? AND fingerprint = ? AND expires_at > ? ORDER BY number DESC",
            (owner, fingerprint, now),
        )
        return [_unpack(entry) for (entry,) in rows]

    def get(self, confirmation_id: str, now: float) -> ConfirmationEntry | None:
        """See `ConfirmationStore.get_confirmation`."""
        row = self._connection.row(
            "SELECT entry FROM confirmations WHERE id = ? AND expires_at > ?", (confirmation_id, now)
        )
        return None if row is None else _unpack(row[0])

    def newest(self, now: float, limit: int) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.confirmations`."""
        rows = self._connection.rows(
            "SELECT entry FROM confirmations WHERE state <> 'used' AND expires_at > ? ORDER BY number DESC LIMIT ?",
            (now, limit),
        )
        return [_unpack(entry) for (entry,) in rows]


def _unpack(entry: bytes) -> ConfirmationEntry:
    try:
        return _decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"a confirmation is damaged: {error}") from error
