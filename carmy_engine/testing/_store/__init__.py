"""The checks of the suite for stores, by subject."""

from __future__ import annotations

from . import bounds, cancellation, capabilities, confirmations, entries
from .suite import MakeStore, Shelf, suite

__all__ = ["MakeStore", "Shelf", "bounds", "cancellation", "capabilities", "confirmations", "entries", "suite"]
