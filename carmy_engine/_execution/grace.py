"""Bounded shields: the only places where cancellation is held off, and never for long.

A cancelled scope stays cancelled: trio raises at every later ``await``, so a ``finally`` block that awaits is cut off at its
first one. `run_with_grace` gives a tool one bounded grace for its clean-up, whatever cancelled it. `grace` is the same for code
that does not run in a tool's own task.
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
"""For cleaning up after a cancel: enough to close a file or roll back a transaction, short enough not to hold a caller."""

MOST_SWALLOWED = 100
"""Cancels that one tool may swallow. Clean-up meets a handful; more than that is a loop that catches everything."""

T = TypeVar("T")


class UncooperativeTool(BaseException):
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
def _run_in_scope(
    coro: Coroutine[Any, Any, T],
    scope: trio.CancelScope,
    on_cancel: Callable[[], None],
    shelter: trio.CancelScope | None = None,
) -> Generator[Any, Any, T]:
    """Run a tool in this task; once it is cancelled, shield its clean-up for `GRACE_SECONDS`.

    The first ``Cancelled`` reaches the tool. With it, a scope around the tool becomes a shield with the grace as its deadline, so
    that clean-up may await; at the end of the grace that scope is cancelled, for good. A ``Cancelled`` that leaves the tool is then
    no longer caught by `scope`: the caller of this function catches it.

    The cancel stays in force while the tool is inside a nursery of its own, or inside a scope of its own that is cancelled as
    well: those swallow a ``Cancelled`` if they cannot see that a cancel comes from further out, and the tool would go on as if
    nothing had happened. Clean-up in there uses `grace`. Clean-up around it is shielded from its first ``await`` that can be, its
    second one at the latest.

    A tool that swallows its cancel over and over gets `UncooperativeTool` instead, at every ``await``. A tool that catches even
    that runs on, step by step, and its caller waits.

    Args:
        coro: The tool.
        scope: The scope that is cancelled when the tool has to stop. The caller has entered it, and since then at most `shelter`.
        on_cancel: Called once, when the cancellation is noticed, before the tool's clean-up runs.
        shelter: The scope that becomes the shield; `scope` where None.

    Raises:
        GeneratorExit: The coroutine that awaits this is being closed, and so has been `coro`.
        Fault: The tool raised ``GeneratorExit``.
        BaseException: Anything else that the tool raises.
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
            except BaseException as refusal:  # noqa: BLE001 - trio's, for something that it cannot wait for
                trap = coro.throw(refusal)
                continue
            if tracker is None:
                if not is_cancelled(scope, shelter):
                    already_open = len(child_nurseries(task)) if shelter is not None else 0
                    trap = coro.send(message)
                    # On plain trio, a cancelled scope of the tool's own hides the cancel until the tool leaves it. A tool that
                    # never does counts as cancelled.
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
    """The same on plain trio, whose public interface makes no shield of a cancelled scope: a second one inside becomes it."""
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
    """The steps of a tool from the first sign of its cancel on: when to shield it, and when to eject it.

    Attributes:
        cancelled: The ``Cancelled`` that was delivered last.
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
        """Those of the task that are not the tool's."""
        self._open = already_open
        self._is_delivered = cancelled is not None
        self._is_sheltered = False
        self._swallowed = 0
        self._was_in_grace = False

    def before(self, message: Any) -> Any:
        """What to resume the tool with, which trio wants to resume with `message`."""
        delivered = _cancel_in(message)
        if delivered is None or (self._is_sheltered and not is_cancelled(self._shelter, self._shelter)):
            self._open = len(self._task.child_nurseries)
            return message
        self.cancelled = delivered
        self._swallowed += 1
        if self._swallowed > MOST_SWALLOWED:
            message = type(message)(UncooperativeTool("the tool goes on although it was cancelled"))
        # What the tool awaits after a delivered Cancelled is clean-up. The cancel alone does not count, since it may have come
        # after the tool was woken for another reason.
        self._is_delivered = True
        self._open = len(self._task.child_nurseries)
        self._shelter_if_possible()
        return message

    def after(self, coro: Any) -> None:
        """The tool has run, and awaits the next thing."""
        # One that waits for its nursery is not woken by a Cancelled, but raises one when it leaves it.
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
        """The tool has ended."""
        if self._is_sheltered:
            in_grace.set(self._was_in_grace)  # no token: the task may go on with another copy of its context


def _cancel_in(message: Any) -> trio.Cancelled | None:
    """The ``Cancelled`` that trio delivers by a message to a coroutine."""
    delivered = getattr(message, "error", None)
    return delivered if isinstance(delivered, trio.Cancelled) else None


def _is_ejection(error: BaseException) -> bool:
    """True for `UncooperativeTool` and for groups of nothing but it and what was cancelled along with it."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_ejection, group.exceptions))
    return isinstance(error, UncooperativeTool | trio.Cancelled)


def _is_raising_cancel(coro: Any) -> bool:
    """True if it is suspended in ``checkpoint_if_cancelled``, which has seen the cancel and relies on its being raised.

    Also true if that cannot be seen, because an async generator is in between.
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
