"""Whose share a call counts towards: that of its principal, else of its session; anonymous callers have one in common."""

from __future__ import annotations

from .._model.context import AgentContext


def share_of(context: AgentContext) -> tuple[str, str]:
    """The key of a caller's share."""
    if context.principal is not None:
        return ("principal", context.principal)
    if context.session is not None:
        return ("session", context.session)
    return ("anonymous", "")
