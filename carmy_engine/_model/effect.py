"""The effect of a tool, and whether a call needs a person's confirmation."""

from __future__ import annotations

import enum


class Effect(enum.StrEnum):
    """The declared effect of a tool. It decides retries, confirmation and caching."""

    NONE = "none"
    """Computes from its arguments alone."""
    READ = "read"
    """Observes state and changes nothing."""
    WRITE = "write"
    """Changes state that this application owns."""
    EXTERNAL_WRITE = "external_write"
    """Changes state elsewhere: sends a mail, charges a card, runs a command."""
    DESTRUCTIVE = "destructive"
    """Destroys something. Always needs the permission ``confirm:<tool>``."""

    @property
    def is_safe(self) -> bool:
        """True when repeating or losing a run leaves nothing behind (none, read)."""
        return self is Effect.NONE or self is Effect.READ


class Confirmation(enum.StrEnum):
    """Whether a call needs the permission ``confirm:<tool>`` in its trusted context."""

    NONE = "none"
    REQUIRED = "required"
