"""Causes of a cancellation: a closed set, recorded before the cancel takes effect."""

from __future__ import annotations

import enum


class Cause(enum.StrEnum):
    """The cause of a cancellation."""

    DEADLINE = "deadline"
    """The execution's own deadline passed."""
    CALLER = "caller"
    """The caller cancelled it, by id or through its own cancel scope."""
    DISCONNECT = "disconnect"
    """The connection of the call was closed."""
    SHUTDOWN = "shutdown"
    """The engine is closing."""
    OPERATOR = "operator"
    """An operator of the engine cancelled it."""
