"""Provided state: a factory of the host for the value of a ``State[T]``, and its place in an order of need."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any


class StateScope(enum.StrEnum):
    """The life of a provided value."""

    APP = "app"
    """One for each engine."""
    EXECUTION = "execution"
    """One for each execution that needs it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Provision:
    """A factory of the host.

    Attributes:
        factory: Takes keyword arguments only; returns the value, a context manager of it, or an awaitable of one of them.
        key: The type under which tools and other factories ask for the value.
        scope: The life of the value.
        needs: The type of the state that each of these parameters gets.
        context: The parameter that gets the `AgentContext`; None for none.
        is_async: The factory runs on the event loop; if False, in a worker thread.
        enters: Enter the value if it is a context manager.
        place: The factory's name and position, for messages.
    """

    factory: Callable[..., Any]
    key: Any
    scope: StateScope
    needs: Mapping[str, Any]
    context: str | None
    is_async: bool
    enters: bool
    place: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScopedState:
    """A provision of one execution, with the arguments that do not depend on the execution.

    Attributes:
        provision: The provision.
        fixed: Arguments that are values of the application.
        chained: Arguments that are values of the same execution, by their types.
    """

    provision: Provision
    fixed: Mapping[str, Any]
    chained: Mapping[str, Any]


def is_manager(value: object) -> bool:
    """True for a plain context manager."""
    return hasattr(type(value), "__enter__")


def is_async_manager(value: object) -> bool:
    """True for an async context manager."""
    return hasattr(type(value), "__aenter__")


def type_name(type_: Any) -> str:
    """The name of a type, for messages."""
    return getattr(type_, "__qualname__", None) or repr(type_)
