"""Private parts of trio: only this module uses them, and only with tested versions of trio.

Three things need them:

- `LazyDeadlineScope`: trio's public scope costs four times as much on every call.
- The grace of a cancelled tool: trio has no public way to await again in a cancelled scope. On plain trio the tool runs in a second
  scope, which becomes the shield (`_execution.grace`).
- `install_nursery_guards`: guards for two faults of trio's nurseries that let one tool end the process. On plain trio the faults
  remain.
"""

# ruff: noqa: SLF001 - private parts of trio are the point

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any

import trio
from outcome import Error, Outcome, Value

from .._model.error_boundary import Fault, call_foreign
from .._model.errors import AgentError

PLAIN_TRIO = "CARMY_PLAIN_TRIO"
"""Environment variable: if it is not empty, this module uses only trio's public interface."""

KNOWN_MINORS = range(30, 36)
"""Minor versions of trio 0.x. ``pyproject.toml`` allows no later ones."""

_SCOPE = {
    *(
        "_cancel_status",
        "_has_been_entered",
        "_registered_deadline",
        "_cancel_called",
        "_cancel_reason",
        "cancelled_caught",
    ),
    *("_relative_deadline", "_deadline", "_shield"),
}
_STATUS = {"_scope", "effectively_cancelled", "_parent", "_children", "_tasks", "abandoned_by_misnesting"}


def _slots(cls: Any) -> set[str]:
    return {*cls.__slots__} - {"__weakref__"}


def _find_internals() -> ModuleType | None:
    """Return trio's main module; None for an untested version or unexpected internals."""
    version = re.match(r"0\.(\d+)\.", trio.__version__)
    if os.environ.get(PLAIN_TRIO) or version is None or int(version[1]) not in KNOWN_MINORS:
        return None
    try:
        from trio._core import _run  # noqa: PLC0415 - behind the check of the version

        found = (
            _slots(trio.CancelScope) == _SCOPE
            and _slots(_run.CancelStatus) == _STATUS
            and {"_cancel_status", "_child_nurseries"} <= _slots(trio.lowlevel.Task)
            and all(hasattr(trio.Nursery, name) for name in ("_child_finished", "_nested_child_finished", "_add_exc"))
            and hasattr(_run, "CancelReason")
        )
    except (ImportError, AttributeError):
        return None
    return _run if found else None


_run: Any = _find_internals()
IS_KNOWN = _run is not None


# --- the scope of an execution

# Most tools answer without waiting. Until its task is suspended, a scope cannot be cancelled from outside, and its deadline cannot
# pass. So the deadline is registered only when the task is about to block: the two registrations are most of what a scope costs.


class LazyDeadlineScope:
    """A `trio.CancelScope` that registers its deadline only when the task is about to block.

    ::

        with LazyDeadlineScope(deadline) as scope:
            ...  # does not block
            start_deadline(scope)
            ...  # may block

    Args:
        deadline: On trio's clock. `trio.current_effective_deadline` includes it from the beginning.
        is_known: Use trio's internals.

    Attributes:
        scope: The scope. It may be cancelled before it is entered.
    """

    __slots__ = ("_is_known", "scope")

    def __init__(self, deadline: float = math.inf, *, is_known: bool = IS_KNOWN) -> None:
        self._is_known = is_known
        if not is_known:
            self.scope = trio.CancelScope(deadline=deadline)
            return
        # The constructor's assignments without its checks, which take half of its time.
        self.scope = scope = _new_scope(trio.CancelScope)
        scope._cancel_status = None
        scope._has_been_entered = False
        scope._registered_deadline = math.inf
        scope._cancel_called = False
        scope._cancel_reason = None
        scope.cancelled_caught = False
        scope._relative_deadline = math.inf
        scope._deadline = deadline
        scope._shield = False

    @trio.lowlevel.enable_ki_protection
    def __enter__(self) -> trio.CancelScope:
        scope = self.scope
        if not self._is_known:
            return scope.__enter__()
        scope._has_been_entered = True
        task = trio.lowlevel.current_task()
        outer = task._cancel_status
        scope._cancel_status = status = _run.CancelStatus(scope)
        status._parent = outer
        outer._children.add(status)
        outer._tasks.remove(task)
        status._tasks.add(task)
        task._cancel_status = status
        if outer.effectively_cancelled or scope._cancel_called:
            status.recalculate()
        return scope

    @trio.lowlevel.enable_ki_protection
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        scope = self.scope
        if error is None and self._is_known and scope._registered_deadline == math.inf:
            status = scope._cancel_status
            task = trio.lowlevel.current_task()
            # Otherwise the scopes are nested incorrectly, and trio raises its error.
            if (
                status is not None
                and task._cancel_status is status
                and not status._children
                and len(status._tasks) == 1
            ):
                outer = status._parent
                if outer is not None:
                    outer._children.remove(status)
                    outer._tasks.add(task)
                    task._cancel_status = outer
                    scope._cancel_status = None
                    return False
        return scope.__exit__(kind, error, tb)


_new_scope: Callable[[type[trio.CancelScope]], Any] = object.__new__


def start_deadline(scope: trio.CancelScope) -> None:
    """Register the deadline of a scope. Call it before anything that may block; further calls change nothing."""
    scope.deadline = scope.deadline  # trio registers it when it is set


# --- the grace of a cancelled tool


def is_cancelled(scope: trio.CancelScope, shelter: trio.CancelScope | None = None) -> bool:
    """True if a scope of this task is cancelled, by itself or from further out.

    Args:
        scope: The scope.
        shelter: The scope inside it that becomes the shield; None if the task has entered no scope since.
    """
    if IS_KNOWN:
        status = scope._cancel_status
        return status is not None and status.effectively_cancelled
    if scope.cancel_called:
        return True
    if trio.current_effective_deadline() != -math.inf:
        return False
    return shelter is None or not is_cancelled_inside(shelter)


def is_cancelled_inside(scope: trio.CancelScope) -> bool:
    """True if a scope that this task has entered inside `scope` is cancelled itself. Trio's own checkpoints open such scopes, too."""
    if IS_KNOWN:
        status: Any = trio.lowlevel.current_task()._cancel_status
        while status is not None and status is not scope._cancel_status:
            if status._scope.cancel_called:
                return True
            status = status._parent
        return False
    was_shield = scope.shield
    scope.shield = True  # hides what is cancelled further out
    try:
        return trio.current_effective_deadline() == -math.inf
    finally:
        scope.shield = was_shield


def make_shield(scope: trio.CancelScope, seconds: float) -> None:
    """Turn a scope, which may be cancelled, into a shield that lasts `seconds`."""
    if IS_KNOWN:
        scope._cancel_called = False
    scope.deadline = trio.current_time() + seconds
    scope.shield = True


child_nurseries: Callable[[trio.lowlevel.Task], Sequence[trio.Nursery]]
child_nurseries = operator.attrgetter(
    "_child_nurseries" if IS_KNOWN else "child_nurseries"
)  # the public one makes a list
"""Return the open nurseries of a task."""


def abandon_nurseries(task: trio.lowlevel.Task, keep: int) -> None:
    """Close the nurseries that a task has left open, except the first `keep` ones, and cancel the tasks in them.

    trio does the same when the task ends, and replaces the outcome of the task by an error. On plain trio it still does.
    """
    for nursery in task.child_nurseries[keep:]:
        nursery.cancel_scope.cancel()
        if IS_KNOWN:
            nursery._closed = True
    if IS_KNOWN:
        del task._child_nurseries[keep:]


# --- guards for nurseries

# - trio puts the ``repr`` of a child's exception into the reason of a cancel. If ``__repr__`` raises, `trio.run` ends with
#   ``TrioInternalError``. Exceptions repeat their arguments there, such as a row of a database session that was closed.
# - A nursery that is left in another task wakes the task that had entered it, whatever that task waits for by then. An async
#   generator with a nursery, left by ``break``, is closed in such a task.

if IS_KNOWN:
    _child_finished = trio.Nursery._child_finished
    _nested_child_finished = trio.Nursery._nested_child_finished


def install_nursery_guards() -> None:
    """Replace two methods of `trio.Nursery`, once. They differ only in the cases that would end the process."""
    if IS_KNOWN:
        trio.Nursery._child_finished = _guarded_child_finished  # type: ignore[method-assign]  # the guard
        trio.Nursery._nested_child_finished = _guarded_nested_child_finished  # type: ignore[method-assign]  # the guard


def _guarded_child_finished(self: trio.Nursery, task: trio.lowlevel.Task, outcome: Outcome[object]) -> None:
    if isinstance(outcome, Error) and hasattr(self, "_pending_excs") and not _has_repr(outcome.error):
        _add(self, task, outcome.error)
        outcome = Value(None)
    _child_finished(self, task, outcome)


async def _guarded_nested_child_finished(
    self: trio.Nursery, nested_child_exc: BaseException | None
) -> BaseException | None:
    if trio.lowlevel.current_task() is not self._parent_task:
        self.cancel_scope.cancel("left in another task")
        raise RuntimeError("a nursery was left in another task than the one that had entered it") from nested_child_exc
    if nested_child_exc is not None and not _has_repr(nested_child_exc):
        _add(self, self._parent_task, nested_child_exc)
        nested_child_exc = None
    return await _nested_child_finished(self, nested_child_exc)


def _add(nursery: trio.Nursery, task: trio.lowlevel.Task, error: BaseException) -> None:
    reason = f"exception {type(error).__name__}, which has no repr"
    nursery._add_exc(error, _run.CancelReason(source="nursery", source_task=repr(task), reason=reason))


def _has_repr(error: BaseException) -> bool:
    try:
        call_foreign(repr, error)
    except (AgentError, Fault):
        return False
    return True
