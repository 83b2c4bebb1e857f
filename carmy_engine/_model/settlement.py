"""Return values of a tool's ``reconcile`` function: the outcome of an interrupted attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from .context import AgentContext
from .errors import AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """The attempt took effect.

    Attributes:
        value: The output of the tool, checked like a return value. The retry gets it.
    """

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed, finally.

    Attributes:
        error: The error for the retry.
    """

    error: AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class NotStarted:
    """The attempt had no effect and will have none: the retry runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome is not known yet: the retry gets ``EXECUTION_UNCERTAIN``, and the next one calls ``reconcile`` again."""


Settlement: TypeAlias = Completed | Failed | NotStarted | Unknown

Reconcile: TypeAlias = Callable[[AgentContext, dict[str, Any]], Awaitable[Settlement]]
"""``async def reconcile(ctx, arguments)``. The context is the retry's, with the execution id of the interrupted attempt;
the arguments are the JSON values of the request."""

MethodReconcile: TypeAlias = Callable[[Any, AgentContext, dict[str, Any]], Awaitable[Settlement]]
"""The same as a method of a class of tools, called on the tool's object."""
