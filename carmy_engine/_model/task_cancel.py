"""The cancel of the current task, as far as trio's public interface shows it."""

from __future__ import annotations

import math
from contextvars import ContextVar

import trio

in_grace: ContextVar[bool] = ContextVar("carmy_in_grace", default=False)
"""True while the task runs the clean-up of a cancelled tool, whose scope then counts as not cancelled (`run_with_grace`)."""


def is_task_cancelled() -> bool:
    """True if a scope of this task is cancelled, so that a ``Cancelled`` may belong to it."""
    return trio.current_effective_deadline() == -math.inf or in_grace.get()
