"""Bounded shields for clean-up. No other module delays cancellation.

In a cancelled scope trio raises at every later ``await``, so a ``finally`` block is cancelled at its first one. `run_with_grace`
gives a tool one bounded grace for its clean-up. `grace` does the same for code outside the task of a tool.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

import trio

from .._model.error_boundary import Fault, close
from .._model.task_cancel import in_grace
from .trio_internals import (
    IS_KNOWN,
    abandon_nurseries,
    child_nurseries,
    is_cancelled,
    is_cancelled_inside,
    make_shield,
    start_deadline,
)

GRACE_SECONDS = 1.0
"""Time for clean-up after a cancel: enough to close a file or roll back a transaction, without a long delay for the caller."""

MOST_SWALLOWED = 100
"""Limit for cancels that one tool may swallow. Clean-up swallows a few; a loop that catches every exception exceeds the limit."""

T = TypeVar("T")


class UncooperativeTool(BaseException):
    """Exception for a tool that keeps swallowing its cancel. It is no ``Cancelled``, since such a tool catches that."""


def grace(seconds: float = GRACE_SECONDS) -> trio.CancelScope:
    """Return a shield with a time limit, for clean-up that awaits.

    ::

        finally:
            with grace():
                await connection.rollback()

    After `seconds` the block is cancelled like any other.
    """
    return trio.CancelScope(shield=True, relative_deadline=seconds)


@types.coroutine
def _run_in_scope(
    coro: Coroutine[Any, Any, T],
    scope: trio.CancelScope,
    on_cancel: Callable[[], None],
    shelter: trio.CancelScope | None = None,
) -> Generator[Any, Any, T]:
    """Run a tool in this task; once it is cancelled, shield its clean-up for `GRACE_SECONDS`.

    After the first ``Cancelled``, a scope around the tool becomes a shield, so that clean-up may await. Its deadline is the end of
    the grace, when it is cancelled for good. From then on `scope` no longer catches a ``Cancelled`` from the tool: the caller of
    this function catches it.

    The cancel stays in force inside a nursery of the tool, and inside a cancelled scope of the tool. These swallow a ``Cancelled``
    if they detect no cancel further out, and the tool would continue as usual. Clean-up inside them uses `grace`. Clean-up around
    them is shielded from its first or second ``await`` on.

    A tool that repeatedly swallows its cancel gets `UncooperativeTool` at every ``await``. A tool that also catches this exception
    continues, and its caller waits.

    Args:
        coro: The tool.
        scope: The scope of the execution, whose cancel stops the tool. The caller has entered it, and since then at most `shelter`.
        on_cancel: Called once when the cancel is detected, before the tool's clean-up runs.
        shelter: The scope that becomes the shield; `scope` where None.

    Raises:
        GeneratorExit: The coroutine that awaits this is being closed, and `coro` has been closed.
        Fault: The tool raised ``GeneratorExit``.
        BaseException: Any other exception of the tool.
    """
    task = trio.lowlevel.current_task()
    nurseries = len(child_nurseries(task))
    tracker: CancelTracker | None = None
    is_closing = False
    hidden = 0
    try:
        trap = coro.send(None)
        start_deadline(scope)
        while True:
            try:
                message = yield trap
            except GeneratorExit:
                is_closing = True
                close(coro)
                raise
            except BaseException as refusal:  # noqa: BLE001 - trio refuses to wait for the value
                trap = coro.throw(refusal)
                continue
            if tracker is None:
                if not is_cancelled(scope, shelter):
                    already_open = len(child_nurseries(task)) if shelter is not None else 0
                    trap = coro.send(message)
                    # On plain trio, a cancelled scope inside the tool hides the cancel until the tool leaves that scope. A tool
                    # that never leaves it counts as cancelled.
                    hidden = hidden + 1 if _cancel_in(message) else 0
                    if shelter is not None and (hidden > MOST_SWALLOWED or is_cancelled(scope, shelter)):
                        on_cancel()
                        tracker = CancelTracker(task, shelter, nurseries, _cancel_in(message), already_open)
                        tracker.after(coro)
                    continue
                on_cancel()
                tracker = CancelTracker(task, scope if shelter is None else shelter, nurseries)
            trap = coro.send(tracker.before(message))
            tracker.after(coro)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except (UncooperativeTool, BaseExceptionGroup) as error:  # leaves as the cancel that it stands for
        if tracker is None or tracker.cancelled is None or not _is_ejection(error):
            raise
        raise tracker.cancelled from None
    except GeneratorExit as error:
        if is_closing:
            raise
        raise Fault(error) from error
    finally:
        if not is_closing:
            if len(child_nurseries(task)) > nurseries:
                abandon_nurseries(task, nurseries)
            if tracker is not None:
                tracker.ends()
        tracker = None  # the traceback of its Cancelled refers to this frame


@types.coroutine
def _run_in_second_scope(
    coro: Coroutine[Any, Any, T], scope: trio.CancelScope, on_cancel: Callable[[], None]
) -> Generator[Any, Any, T]:
    """Variant for plain trio, which cannot turn a cancelled scope into a shield: a second, inner scope becomes the shield."""
    error: BaseException | None = None
    result: Any = None
    with trio.CancelScope() as shelter:  # noqa: ASYNC100 - the tool awaits in it
        try:
            result = yield from cast("Generator[Any, Any, T]", _run_in_scope(coro, scope, on_cancel, shelter))
        except GeneratorExit:
            raise
        except BaseException as raised:  # noqa: BLE001 - raised again: `shelter` must not swallow its own cancel
            error = raised
    if error is None:
        return cast("T", result)
    try:
        raise error
    finally:
        error = None  # its traceback refers to this frame


class _RunWithGrace(Protocol):
    def __call__(
        self, coro: Coroutine[Any, Any, T], scope: trio.CancelScope, on_cancel: Callable[[], None]
    ) -> Awaitable[T]: ...


run_with_grace: _RunWithGrace = _run_in_scope if IS_KNOWN else _run_in_second_scope
"""See `_run_in_scope`."""


class CancelTracker:
    """State of a cancelled tool: decides at each step whether to shield or eject it.

    Attributes:
        cancelled: The most recently delivered ``Cancelled``.
    """

    def __init__(
        self,
        task: trio.lowlevel.Task,
        shelter: trio.CancelScope,
        nurseries: int,
        cancelled: trio.Cancelled | None = None,
        already_open: int = 0,
    ) -> None:
        self.cancelled = cancelled
        self._task = task
        self._shelter = shelter
        """The scope that becomes the shield."""
        self._nurseries = nurseries
        """Number of open nurseries of the task outside the tool."""
        self._open = already_open
        self._is_delivered = cancelled is not None
        self._is_sheltered = False
        self._swallowed = 0
        self._was_in_grace = False

    def before(self, message: Any) -> Any:
        """Return the message that resumes the tool, in place of trio's `message`."""
        delivered = _cancel_in(message)
        if delivered is None or (self._is_sheltered and not is_cancelled(self._shelter, self._shelter)):
            self._open = len(self._task.child_nurseries)
            return message
        self.cancelled = delivered
        self._swallowed += 1
        if self._swallowed > MOST_SWALLOWED:
            message = type(message)(UncooperativeTool("the tool goes on although it was cancelled"))
        # Clean-up begins when a Cancelled is delivered, not when the scope is cancelled: the tool may have been woken earlier
        # for another reason.
        self._is_delivered = True
        self._open = len(self._task.child_nurseries)
        self._shelter_if_possible()
        return message

    def after(self, coro: Any) -> None:
        """Update the state after the tool has run to its next ``await``."""
        # A tool that waits for its nursery is not woken by a Cancelled; it raises one when it leaves the nursery.
        self._is_delivered = self._is_delivered or len(self._task.child_nurseries) < self._open
        if not self._is_sheltered and not _is_raising_cancel(coro):
            self._shelter_if_possible()

    def _shelter_if_possible(self) -> None:
        if (
            self._is_delivered
            and not self._is_sheltered
            and len(self._task.child_nurseries) == self._nurseries
            and not is_cancelled_inside(self._shelter)
        ):
            self._is_sheltered = True
            self._was_in_grace = in_grace.get()
            in_grace.set(True)
            make_shield(self._shelter, GRACE_SECONDS)

    def ends(self) -> None:
        """Restore the context of the task after the tool has ended."""
        if self._is_sheltered:
            in_grace.set(self._was_in_grace)  # no token: the task may continue with another copy of its context


def _cancel_in(message: Any) -> trio.Cancelled | None:
    """Return the ``Cancelled`` in a message of trio to a coroutine; None if there is none."""
    delivered = getattr(message, "error", None)
    return delivered if isinstance(delivered, trio.Cancelled) else None


def _is_ejection(error: BaseException) -> bool:
    """True for `UncooperativeTool`, and for groups of only `UncooperativeTool` and ``Cancelled``."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_ejection, group.exceptions))
    return isinstance(error, UncooperativeTool | trio.Cancelled)


def _is_raising_cancel(coro: Any) -> bool:
    """True if the coroutine is suspended in ``checkpoint_if_cancelled``, which has found the cancel and requires its delivery.

    Also true if an async generator hides the suspended frame.
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
