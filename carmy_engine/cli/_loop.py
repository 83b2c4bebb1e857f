"""The event loop of a command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from .._model.error_boundary import flatten_exceptions
from .._model.errors import CarmyError

T = TypeVar("T")


def run_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run the loop; an error that nurseries have wrapped in groups, and that explains itself, comes out alone."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        found = list(flatten_exceptions(group))
        for leaf in found:
            if isinstance(leaf, KeyboardInterrupt):
                raise leaf from None
        if found and all(isinstance(leaf, OSError | CarmyError) for leaf in found):
            raise found[0] from None
        raise
