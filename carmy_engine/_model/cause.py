"""Why an execution was cancelled: a closed set, recorded before the cancel takes effect."""

from __future__ import annotations

import enum


class Cause(enum.StrEnum):
    """The reason behind every cancellation the engine knows of."""

    DEADLINE = "deadline"
    """The execution's own deadline passed."""
    CALLER = "caller"
    """The caller asked for it, by id or by leaving its own cancel scope."""
    DISCONNECT = "disconnect"
    """The connection that carried the call went away."""
    SHUTDOWN = "shutdown"
    """The engine is closing."""
    OPERATOR = "operator"
    """A person with authority over the engine asked for it."""
