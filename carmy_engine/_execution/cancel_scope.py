"""The cancel scope of an execution: trio's own, entered and left at a quarter of the price while nothing has been waited for."""

from __future__ import annotations

import math
import re
from types import TracebackType

import trio
from trio._core._run import CancelStatus

# Most tools answer without waiting for anything. Until the task is suspended nobody can cancel it from outside and no
# deadline can pass, so its deadline need not be in trio's books, and the two visits there are most of what a scope costs.
# In the tree of scopes it has its place from the beginning, by the shortest way: nothing has to be told of a cancel in there
# unless there has been one already. Both together take a fifth off every such call, and more. That needs to know how those books are
# kept. With a trio that nobody has looked at, the scope is entered as everybody enters one.
_KNOWN = range(30, 36)
"""Minor versions of trio 0.x."""

_version = re.match(r"0\.(\d+)", trio.__version__)
IS_KNOWN = _version is not None and int(_version[1]) in _KNOWN


class QuickScope:
    """Enter a `trio.CancelScope` that has a deadline, which counts from `arm` on.

    ::

        with QuickScope(deadline) as scope:
            ...  # what waits for nothing
            arm(scope)
            ...  # what may wait

    Args:
        deadline: On trio's clock. `trio.current_effective_deadline` knows it at once.
        is_known: Whether to rely on trio's internals.

    Attributes:
        scope: The scope, which may be cancelled before it is entered.
    """

    __slots__ = ("_is_known", "scope")

    def __init__(self, deadline: float = math.inf, *, is_known: bool = IS_KNOWN) -> None:
        self.scope = trio.CancelScope() if is_known else trio.CancelScope(deadline=deadline)
        if is_known:
            self.scope._deadline = deadline  # noqa: SLF001 - see above, here and below
        self._is_known = is_known

    @trio.lowlevel.enable_ki_protection
    def __enter__(self) -> trio.CancelScope:
        scope = self.scope
        if not self._is_known:
            return scope.__enter__()
        scope._has_been_entered = True  # noqa: SLF001
        task = trio.lowlevel.current_task()
        outer = task._cancel_status  # noqa: SLF001
        scope._cancel_status = status = CancelStatus(scope)  # noqa: SLF001
        status._parent = outer  # noqa: SLF001
        outer._children.add(status)  # noqa: SLF001
        outer._tasks.remove(task)  # noqa: SLF001
        status._tasks.add(task)  # noqa: SLF001
        task._cancel_status = status  # noqa: SLF001
        if outer.effectively_cancelled or scope._cancel_called:  # noqa: SLF001
            status.recalculate()
        return scope

    @trio.lowlevel.enable_ki_protection
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        scope = self.scope
        status = scope._cancel_status  # noqa: SLF001
        if error is None and self._is_known and status is not None and scope._registered_deadline == math.inf:  # noqa: SLF001
            task = trio.lowlevel.current_task()
            outer = status._parent  # noqa: SLF001
            is_innermost = task._cancel_status is status and not status._children and len(status._tasks) == 1  # noqa: SLF001
            # If not, scopes are not left in the order in which they were entered, and trio finds words for it.
            if is_innermost and outer is not None:
                outer._children.remove(status)  # noqa: SLF001
                outer._tasks.add(task)  # noqa: SLF001
                task._cancel_status = outer  # noqa: SLF001
                scope._cancel_status = None  # noqa: SLF001
                return False
        return scope.__exit__(kind, error, tb)


def arm(scope: trio.CancelScope) -> None:
    """Let the deadline of a scope count. To be called before whatever may wait; once is enough, and more do no harm."""
    scope.deadline = scope.deadline  # setting it is what makes trio take note


def is_cancelled(scope: trio.CancelScope) -> bool:
    """Whether a scope that has been entered is cancelled, by itself or from further out. trio has no public way to ask that."""
    status = scope._cancel_status  # noqa: SLF001 - see above
    return status is not None and status.effectively_cancelled


def abandon_nurseries(task: trio.lowlevel.Task, keep: int) -> None:
    """Give up the nurseries that a task has left open, but for the first ones; what runs in them is cancelled.

    trio does the same when the task ends, and replaces what the task returns or raises by an error.
    """
    for nursery in task.child_nurseries[keep:]:
        nursery.cancel_scope.cancel()
        nursery._closed = True  # noqa: SLF001
    del task._child_nurseries[keep:]  # noqa: SLF001
