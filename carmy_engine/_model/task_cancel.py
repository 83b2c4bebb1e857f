"""The cancel of the current task, as far as trio's public interface shows it."""

from __future__ import annotations

import math
from contextvars import ContextVar

import trio

in_grace: ContextVar[bool] = ContextVar("carmy_in_grace", default=False)
"""The task runs the clean-up of a tool that was cancelled. Its scope counts as not cancelled meanwhile (`run_with_grace`)."""


def is_task_cancelled() -> bool:
    """Whether a scope of this task is cancelled, so that a ``Cancelled`` in it may be the one of that scope."""
    return trio.current_effective_deadline() == -math.inf or in_grace.get()
