"""What a tool's ``reconcile`` function may answer, when it is asked what became of an attempt that was interrupted."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from .context import AgentContext
from .errors import AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """It has happened.

    Attributes:
        value: What the tool would have returned. It is checked like that, and is what the retry gets.
    """

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """It has failed, for good.

    Attributes:
        error: What the retry gets.
    """

    error: AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class NotStarted:
    """It has not happened, and it will not any more: the retry runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say yet: the retry gets ``EXECUTION_UNCERTAIN``, and the next one asks again."""


Settlement: TypeAlias = Completed | Failed | NotStarted | Unknown

Reconcile: TypeAlias = Callable[[AgentContext, dict[str, Any]], Awaitable[Settlement]]
"""``async def reconcile(ctx, arguments)``. The context is the retry's, with the execution id of the attempt that was interrupted;
the arguments are as they were sent, as JSON values."""

MethodReconcile: TypeAlias = Callable[[Any, AgentContext, dict[str, Any]], Awaitable[Settlement]]
"""The same in the body of a class, beside the methods that are tools: it is called on the object whose tool it is."""
