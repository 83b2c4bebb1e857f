"""Confirmations as rows, in the transactions of the entries."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import Connection

from ..._model.confirmation import ConfirmationEntry, ConfirmationState
from ..._model.protocols import StoreFull
from .._rows import DamagedEntryError
from ._limits import PostgresLimits

_decode = msgspec.json.Decoder(ConfirmationEntry).decode


class Confirmations:
    """The confirmations, for the length of one transaction.

    Args:
        connection: In a transaction.
        limits: How many are kept.
    """

    def __init__(self, connection: Connection[Any], limits: PostgresLimits) -> None:
        self._connection = connection
        self._limits = limits

    def add(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """See `ConfirmationStore.add_confirmation`. Processes that add for one owner do so one after the other."""
        run = self._connection.execute
        run("SELECT pg_advisory_xact_lock(hashtext('carmy-engine confirmations'), hashtext(%s))", (entry.owner,))
        for found in self.find(entry.owner, entry.fingerprint, entry.asked_at):
            if found.is_live:
                return found
        run("DELETE FROM confirmations WHERE expires_at <= %s", (entry.asked_at,))
        pending = run(
            "SELECT number FROM confirmations WHERE owner = %s AND state = 'pending' ORDER BY number", (entry.owner,)
        ).fetchall()
        if len(pending) >= self._limits.max_pending_confirmations:
            run("DELETE FROM confirmations WHERE number = %s", pending[0])
        count = run("SELECT count(*) FROM confirmations").fetchone()
        if count is None or count[0] >= self._limits.max_confirmations:
            raise StoreFull
        run(
            "INSERT INTO confirmations (id, owner, fingerprint, state, expires_at, entry) VALUES (%s, %s, %s, %s, %s, %s)",
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
        changed = self._connection.execute(
            "UPDATE confirmations SET state = %s, expires_at = %s, entry = %s WHERE id = %s AND state = %s AND expires_at > %s"
            " RETURNING number",
            (*values, entry.confirmation_id, expected.value, now),
        )
        return changed.fetchone() is not None

    def find(self, owner: str, fingerprint: bytes, now: float) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.find_confirmations`."""
        rows = self._connection.execute(
            "SELECT entry FROM confirmations WHERE owner = %s AND fingerprint = %s AND expires_at > %s ORDER BY number DESC",
            (owner, fingerprint, now),
        )
        return [_unpack(entry) for (entry,) in rows.fetchall()]

    def get(self, confirmation_id: str, now: float) -> ConfirmationEntry | None:
        """See `ConfirmationStore.get_confirmation`."""
        row = self._connection.execute(
            "SELECT entry FROM confirmations WHERE id = %s AND expires_at > %s", (confirmation_id, now)
        ).fetchone()
        return None if row is None else _unpack(row[0])

    def newest(self, now: float, limit: int) -> list[ConfirmationEntry]:
        """See `ConfirmationStore.confirmations`."""
        rows = self._connection.execute(
            "SELECT entry FROM confirmations WHERE state <> 'used' AND expires_at > %s ORDER BY number DESC LIMIT %s",
            (now, limit),
        )
        return [_unpack(entry) for (entry,) in rows.fetchall()]


def _unpack(entry: bytes) -> ConfirmationEntry:
    try:
        return _decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedEntryError(f"a confirmation is damaged: {error}") from error
