"""Bounded shields: the only places where cancellation is held off, and never for long.

A scope that is cancelled stays cancelled: trio raises at every later ``await``, so a ``finally`` block that awaits is
cut off at its first one. `guide` gives a tool one bounded grace for that, whoever cancelled it; `grace` is the same for
code that does not run in a tool's own task.
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
    coro: Coroutine[Any, Any, T], scope: trio.CancelScope, on_cancel: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Run `coro` in this task; once it has been told to stop, shelter it for `GRACE_SECONDS`.

    The first ``Cancelled`` goes through. After it, at the first ``await`` outside the tool's own nurseries, `scope` becomes
    a shield with the grace as its deadline, so that clean-up may await; when the grace is over it is cancelled again, for
    good. A ``Cancelled`` that was let through is then no longer caught by `scope`: the caller of this function catches it.

    As long as a nursery of the tool is open, the cancel stays in force: a nursery swallows the ``Cancelled`` of its
    children if it cannot see that the cancel comes from further out, and the tool would go on as if nothing had happened.
    Clean-up inside a nursery uses `grace`.

    Args:
        coro: The tool.
        scope: The scope that is cancelled when the tool has to stop; the caller has entered it, and no other one since.
        on_cancel: Called once, when the cancellation is noticed, before the tool's clean-up runs.
    """
    noticed = told = sheltered = False
    task = trio.lowlevel.current_task()
    before = len(task.child_nurseries)
    try:
        trap = coro.send(None)
        while True:
            message = yield trap
            if sheltered or not _is_cancelled(scope):
                trap = coro.send(message)
                continue
            if not noticed:
                noticed = True
                on_cancel()
            # Once a Cancelled is on its way into the tool, it knows, and what it awaits from now on is clean-up. The cancel
            # alone does not count: it may have come after the tool was woken for another reason.
            told = told or isinstance(getattr(message, "error", None), trio.Cancelled)
            open_now = len(task.child_nurseries)
            trap = coro.send(message)
            # A tool that waits for its nursery is not woken by a Cancelled, but raises one when it leaves it.
            told = told or len(task.child_nurseries) < open_now
            if told and len(task.child_nurseries) == before:
                sheltered = True
                _shelter(scope)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        coro.close()


# trio has no public way to ask whether a cancel from further out has reached a scope, nor to let code inside a cancelled
# scope await again. A second scope inside would do for the latter, at twice the price, on every call. These two lines know
# how trio keeps its books (0.30 to 0.35); tests/engine holds them to what `guide` promises.


def _is_cancelled(scope: trio.CancelScope) -> bool:
    status = scope._cancel_status  # noqa: SLF001
    return status is not None and status.effectively_cancelled


def _shelter(scope: trio.CancelScope) -> None:
    scope._cancel_called = False  # noqa: SLF001
    scope.deadline = trio.current_time() + GRACE_SECONDS
    scope.shield = True
