"""Guards for two faults of trio's nurseries, with which one tool ends the process.

- trio puts the ``repr`` of a child's exception into the reason of a cancel. If ``__repr__`` raises, `trio.run` ends with
  ``TrioInternalError``. Exceptions repeat their arguments there, such as a row of a database session that was closed.
- A nursery that is left in another task wakes the task that had entered it, whatever that task waits for by then. An async
  generator with a nursery, left by ``break``, is closed in such a task.

Known for trio 0.31 to 0.35; other versions are left alone.
"""

from __future__ import annotations

import trio
from outcome import Error, Outcome, Value
from trio._core import _run

from .._model.error_boundary import Fault, call_foreign
from .._model.errors import AgentError
from .cancel_scope import IS_KNOWN

_child_finished = trio.Nursery._child_finished  # noqa: SLF001 - as everything here, see above
_nested_child_finished = trio.Nursery._nested_child_finished  # noqa: SLF001


def install() -> None:
    """Replace two methods of `trio.Nursery`, once. They behave as before where they do not end the process."""
    if IS_KNOWN and hasattr(_run, "CancelReason"):
        trio.Nursery._child_finished = _guarded_child_finished  # type: ignore[method-assign]  # noqa: SLF001 - see above
        trio.Nursery._nested_child_finished = _guarded_nested_child_finished  # type: ignore[method-assign]  # noqa: SLF001 - see above


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
    cancel_reason = _run.CancelReason(source="nursery", source_task=repr(task), reason=reason)
    nursery._add_exc(error, cancel_reason)  # noqa: SLF001 - see above


def _has_repr(error: BaseException) -> bool:
    try:
        call_foreign(repr, error)
    except (AgentError, Fault):
        return False
    return True
