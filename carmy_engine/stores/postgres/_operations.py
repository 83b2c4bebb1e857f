"""What callers do to entries, as values: the transaction takes all operations of a kind in one statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from ..._model.cause import Cause
from ..._model.reservation import Reservation
from .._rows import NewEntry, PackedOutcome

if TYPE_CHECKING:
    from ._transaction import Transaction

T = TypeVar("T")


class Reserve(msgspec.Struct, frozen=True):
    """Insert a running entry unless its key is taken; the result is the existing entry, or None."""

    new: NewEntry
    execution_id: str

    def __call__(self, transaction: Transaction) -> Reservation | None:
        """Do this one alone."""
        (found,) = transaction.reserve([self])
        if isinstance(found, Exception):
            raise found
        return found


class Complete(msgspec.Struct, frozen=True):
    """Record an outcome; the result is whether the execution held the entry."""

    key: bytes
    execution_id: str
    outcome: PackedOutcome
    owned: bool
    """This store reserved the entry, so its lease decides."""

    def __call__(self, transaction: Transaction) -> bool:
        """Do this one alone."""
        return transaction.complete([self])[0]


class Release(msgspec.Struct, frozen=True):
    """Free a key; the result is whether the execution held the entry."""

    key: bytes
    execution_id: str
    owned: bool

    def __call__(self, transaction: Transaction) -> bool:
        """Do this one alone."""
        return transaction.release([self])[0]


class Interrupt(msgspec.Struct, frozen=True):
    """Mark an entry as interrupted; the result is whether the execution held it, running."""

    key: bytes
    execution_id: str
    cause: Cause | None
    finished_at: float
    owned: bool

    def __call__(self, transaction: Transaction) -> bool:
        """Do this one alone."""
        return transaction.interrupt([self])[0]


class Read(msgspec.Struct, Generic[T], frozen=True):
    """Only read: repeating it has no effect."""

    find: Callable[[Transaction], T]

    def __call__(self, transaction: Transaction) -> T:
        """Do it."""
        return self.find(transaction)
