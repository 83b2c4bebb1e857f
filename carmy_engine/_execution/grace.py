"""Bounded shields: the only places where cancellation is held off, and never for long.

A scope that is cancelled stays cancelled: trio raises at every later ``await``, so a ``finally`` block that awaits is
cut off at its first one. `guide` gives a tool one bounded grace for that, whoever cancelled it; `grace` is the same for
code that does not run in a tool's own task.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

import trio

from .._model.error_boundary import Fault, close
from .._model.task_cancel import in_grace
from .cancel_scope import abandon_nurseries, arm, is_cancelled

GRACE_SECONDS = 1.0
"""For cleaning up after a cancel: enough to close a file or roll back a transaction, short enough not to hold a caller."""

MOST_SWALLOWED = 100
"""Cancels that one tool may swallow. Clean-up meets a handful; more than that is a loop that catches everything."""

T = TypeVar("T")


class Ejected(BaseException):
    """Raised in a tool that goes on swallowing its cancel: it is no ``Cancelled``, which such a tool catches."""


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

    The first ``Cancelled`` goes through. With it, `scope` becomes a shield with the grace as its deadline, so that clean-up may
    await; when the grace is over it is cancelled again, for good. A ``Cancelled`` that was let through is then no longer
    caught by `scope`: the caller of this function catches it.

    The cancel stays in force while the tool is inside a nursery of its own, or inside a scope of its own that is cancelled
    as well: those swallow a ``Cancelled`` if they cannot see that a cancel comes from further out, and the tool would go on
    as if nothing had happened. Clean-up in there uses `grace`; clean-up around it is sheltered from its first ``await`` that
    can be, its second one at the latest.

    A tool that swallows its cancel over and over gets `Ejected` instead, at every ``await``. Nothing helps against one that
    catches even that: it runs on, step by step, and its caller waits.

    Args:
        coro: The tool.
        scope: The scope that is cancelled when the tool has to stop; the caller has entered it, and no other one since.
        on_cancel: Called once, when the cancellation is noticed, before the tool's clean-up runs.

    Raises:
        GeneratorExit: The coroutine that awaits this is being closed, and so has been `coro`.
        Fault: The tool raised ``GeneratorExit``.
        BaseException: Anything else that the tool raises.
    """
    task = trio.lowlevel.current_task()
    nurseries = len(task._child_nurseries)  # noqa: SLF001 - as below; the public one makes a list
    farewell: _Farewell | None = None
    is_closing = False
    try:
        trap = coro.send(None)
        arm(scope)
        while True:
            try:
                message = yield trap
            except GeneratorExit:
                is_closing = True
                close(coro)
                raise
            except BaseException as refusal:  # noqa: BLE001 - trio's, which does not know what was awaited
                trap = coro.throw(refusal)
                continue
            if farewell is None:
                if not is_cancelled(scope):
                    trap = coro.send(message)
                    continue
                on_cancel()
                farewell = _Farewell(task, scope, nurseries)
            trap = coro.send(farewell.before(message))
            farewell.after(coro)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except (Ejected, BaseExceptionGroup) as error:  # an ejection leaves as the cancel that it stands for
        if farewell is None or farewell.cancelled is None or not _is_ejection(error):
            raise
        raise farewell.cancelled from None
    except GeneratorExit as error:
        if is_closing:
            raise
        raise Fault(error) from error
    finally:
        if not is_closing:
            if len(task._child_nurseries) > nurseries:  # noqa: SLF001
                abandon_nurseries(task, nurseries)
            if farewell is not None:
                farewell.ends()
        farewell = None  # the traceback of its Cancelled refers to this frame


class _Farewell:
    """The steps of a tool from the first sign of its cancel on: when to shelter it, and when to eject it.

    Attributes:
        cancelled: The ``Cancelled`` that was delivered last.
    """

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, nurseries: int) -> None:
        self.cancelled: BaseException | None = None
        self._task = task
        self._scope = scope
        self._nurseries = nurseries
        """Those of the task that are not the tool's."""
        self._open = 0
        self._told = False
        self._sheltered = False
        self._swallowed = 0
        self._was_in_grace = False

    def before(self, message: Any) -> Any:
        """What to resume the tool with, which trio wants to resume with `message`."""
        delivered = getattr(message, "error", None)
        if not isinstance(delivered, trio.Cancelled) or not is_cancelled(self._scope):
            self._open = len(self._task.child_nurseries)
            return message
        self.cancelled = delivered
        self._swallowed += 1
        if self._swallowed > MOST_SWALLOWED:
            message = type(message)(Ejected("the tool goes on although it was cancelled"))
        # With a Cancelled on its way, the tool knows: what it awaits from now on is clean-up. The cancel alone does not
        # count, since it may have come after the tool was woken for another reason.
        self._told = True
        self._open = len(self._task.child_nurseries)
        self._shelter_if_possible()
        return message

    def after(self, coro: Any) -> None:
        """The tool has run, and awaits the next thing."""
        # One that waits for its nursery is not woken by a Cancelled, but raises one when it leaves it.
        self._told = self._told or len(self._task.child_nurseries) < self._open
        if not self._sheltered and not _is_asking(coro):
            self._shelter_if_possible()

    def _shelter_if_possible(self) -> None:
        if (
            self._told
            and not self._sheltered
            and len(self._task.child_nurseries) == self._nurseries
            and not _is_inside_cancelled(self._task, self._scope)
        ):
            self._sheltered = True
            self._was_in_grace = in_grace.get()
            in_grace.set(True)
            _shelter(self._scope)

    def ends(self) -> None:
        """The tool has ended."""
        if self._sheltered:
            in_grace.set(self._was_in_grace)  # no token: the task may go on with another copy of its context


# trio has no public way to ask whether a cancel from further out has reached a scope, nor to let code inside a cancelled
# scope await again. A second scope inside would do for the latter, at twice the price, on every call. These functions know
# how trio keeps its books (0.30 to 0.35); tests/engine holds them to what `guide` promises.


def _is_ejection(error: BaseException) -> bool:
    """Whether there is nothing in it but `Ejected`, and what was cancelled along with it."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_ejection, group.exceptions))
    return isinstance(error, Ejected | trio.Cancelled)


def _is_inside_cancelled(task: trio.lowlevel.Task, scope: trio.CancelScope) -> bool:
    """Whether a scope between the task and `scope` is cancelled itself. Trio's own checkpoints open such scopes as well."""
    own = scope._cancel_status  # noqa: SLF001
    status: Any = task._cancel_status  # noqa: SLF001
    while status is not None and status is not own:
        if status._scope.cancel_called:  # noqa: SLF001
            return True
        status = status._parent  # noqa: SLF001
    return False


def _is_asking(coro: Any) -> bool:
    """Whether it is suspended in ``checkpoint_if_cancelled``, which has seen the cancel and relies on its being raised.

    Also true when that cannot be seen, because an async generator is in between.
    """
    while coro is not None:
        if getattr(coro, "cr_code", None) is trio.lowlevel.checkpoint_if_cancelled.__code__:
            return True
        if hasattr(coro, "cr_await"):
            coro = coro.cr_await
        elif hasattr(coro, "gi_yieldfrom"):
            coro = coro.gi_yieldfrom
        else:
            return True
    return False


def _shelter(scope: trio.CancelScope) -> None:
    scope._cancel_called = False  # noqa: SLF001
    scope.deadline = trio.current_time() + GRACE_SECONDS
    scope.shield = True
