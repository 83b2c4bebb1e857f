"""Bounded shields: the only places where cancellation is held off, and never for long.

A scope that is cancelled stays cancelled: trio raises at every later ``await``, so a ``finally`` block that awaits is
cut off at its first one. `guide` gives a tool one bounded grace for that, whoever cancelled it; `grace` is the same for
code that is not a tool's own task.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import trio

GRACE_SECONDS = 1.0
"""For cleaning up after a cancel: enough to close a file or roll back a transaction, short enough not to hold a caller."""

T = TypeVar("T")


def grace(seconds: float = GRACE_SECONDS) -> trio.CancelScope:
    """A shield with a limit, for clean-up that has to await.

    ::

        finally:
            with grace():
                await connection.rollback()

    After `seconds` the block is cancelled like any other.
    """
    return trio.CancelScope(shield=True, relative_deadline=seconds)


@types.coroutine
def guide(
    coro: Coroutine[Any, Any, T],
    scope: trio.CancelScope,
    shelter: trio.CancelScope,
    on_cancel: Callable[[], None],
) -> Generator[Any, Any, T]:
    """Run `coro` in this task; once it has been told to stop, shelter it for `GRACE_SECONDS`.

    Args:
        coro: The tool.
        scope: The scope that is cancelled when the tool has to stop. Entered by the caller.
        shelter: An ordinary scope entered directly inside `scope`, nothing between them. It becomes a shield after the first
            ``Cancelled`` was delivered, so that clean-up may await, and is cancelled itself when the grace is over.
        on_cancel: Called once, when the cancellation is noticed, before the tool's clean-up runs.
    """
    sheltered = False
    try:
        trap = coro.send(None)
        while True:
            message = yield trap
            # Not cancel_called: a cancel from further out has to count as well, and trio offers no public way to ask.
            # The tool was blocked when the cancel came and has been resumed, so it was told; what it awaits now is
            # clean-up. (A tool that was running meets the cancel at its next await, and then this line.)
            if not sheltered and scope._cancel_status.effectively_cancelled:  # type: ignore[union-attr] # noqa: SLF001
                sheltered = True
                on_cancel()
                shelter.deadline = trio.current_time() + GRACE_SECONDS
                shelter.shield = True
            trap = coro.send(message)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        coro.close()
