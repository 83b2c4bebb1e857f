"""The scope of an execution is trio's, whichever way it was entered."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from carmy_engine._execution.trio_internals import IS_KNOWN, start_deadline
from carmy_engine.transport import LazyDeadlineScope
from tests.support.plain_trio import needs_internals

BOTH_WAYS = pytest.mark.parametrize(
    "is_known", [pytest.param(True, marks=needs_internals), False], ids=["quick", "plain"]
)


@needs_internals
def test_the_trio_of_the_tests_is_known() -> None:
    """A new minor version of trio has to be looked at, or every call takes a third longer."""
    assert IS_KNOWN


@BOTH_WAYS
async def test_the_deadline_is_seen_at_once(is_known: bool) -> None:
    """What asks for the time that is left gets it before anything has been waited for."""
    before = trio.current_effective_deadline()
    with LazyDeadlineScope(trio.current_time() + 5, is_known=is_known) as scope:
        assert trio.current_effective_deadline() == scope.deadline
    assert trio.current_effective_deadline() == before


@BOTH_WAYS
async def test_the_deadline_counts(is_known: bool, autojump_clock: trio.testing.MockClock) -> None:
    """After `start_deadline`, whatever waits is cut off at the deadline, once."""
    with LazyDeadlineScope(trio.current_time() + 5, is_known=is_known) as scope:
        start_deadline(scope)
        start_deadline(scope)
        await trio.sleep(10)
    assert scope.cancelled_caught
    assert trio.current_time() == scope.deadline
    await trio.sleep(10)


@BOTH_WAYS
async def test_a_deadline_that_has_passed_counts(is_known: bool, autojump_clock: trio.testing.MockClock) -> None:
    """A tool that computed beyond its deadline is cut off where it first waits."""
    with LazyDeadlineScope(trio.current_time() - 1, is_known=is_known) as scope:
        start_deadline(scope)
        await trio.sleep(10)
    assert scope.cancelled_caught


@BOTH_WAYS
async def test_nothing_is_left_behind(is_known: bool, autojump_clock: trio.testing.MockClock) -> None:
    """A scope that was left, armed or not, cancels nothing later, and no task holds on to it."""
    task = trio.lowlevel.current_task()
    own = task._cancel_status
    for armed in (False, True):
        with LazyDeadlineScope(trio.current_time() + 1, is_known=is_known) as scope:
            if armed:
                start_deadline(scope)
        assert task._cancel_status is own
        assert own is not None
        assert not own.children
        assert not scope.cancelled_caught
    assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
    await trio.sleep(10)


@BOTH_WAYS
async def test_cancelled_by_hand(is_known: bool) -> None:
    """A cancel reaches what waits in the scope, and what was cancelled before it waited."""
    with LazyDeadlineScope(math.inf, is_known=is_known) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
    assert scope.cancelled_caught
    with LazyDeadlineScope(math.inf, is_known=is_known) as scope:
        scope.cancel()
    assert not scope.cancelled_caught
    await trio.lowlevel.checkpoint()


@BOTH_WAYS
async def test_cancelled_before_it_is_entered(is_known: bool) -> None:
    """What is entered after its cancel is cut off where it first waits."""
    block = LazyDeadlineScope(is_known=is_known)
    block.scope.cancel()
    with block as scope:
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


@BOTH_WAYS
async def test_a_cancel_from_further_out_goes_through(is_known: bool) -> None:
    """The scope keeps only what it has cancelled itself; errors leave as they are."""
    with trio.CancelScope() as outer:
        outer.cancel()
        with LazyDeadlineScope(math.inf, is_known=is_known) as scope:
            await trio.lowlevel.checkpoint()
    assert outer.cancelled_caught
    assert not scope.cancelled_caught
    with pytest.raises(KeyError), LazyDeadlineScope(math.inf, is_known=is_known):
        raise KeyError


@BOTH_WAYS
async def test_a_cancel_in_the_same_step_is_seen(is_known: bool) -> None:
    """What is cancelled from further out before anything was waited for is cut off where it asks, nested or not."""
    with trio.CancelScope() as outer:
        with LazyDeadlineScope(is_known=is_known), LazyDeadlineScope(is_known=is_known):
            outer.cancel()
            assert trio.current_effective_deadline() == -math.inf
            await trio.lowlevel.checkpoint_if_cancelled()
        pytest.fail("went on")
    assert outer.cancelled_caught


@BOTH_WAYS
async def test_a_shield_holds(is_known: bool) -> None:
    """In a scope that was made a shield, the tasks of its nurseries too are sheltered from a cancel further out."""
    done: list[str] = []

    async def work() -> None:
        await trio.lowlevel.checkpoint()
        done.append("work")

    with trio.CancelScope() as outer:
        with LazyDeadlineScope(is_known=is_known) as scope:
            scope.shield = True
            outer.cancel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work)
        assert done == ["work"]
        await trio.lowlevel.checkpoint()
    assert outer.cancelled_caught


@BOTH_WAYS
async def test_a_task_that_is_started_in_it_moves_out(is_known: bool) -> None:
    """A task that calls ``started`` while it is inside is cancelled with the nursery that took it over."""

    async def work(task_status: trio.TaskStatus[None]) -> None:
        with LazyDeadlineScope(is_known=is_known):
            task_status.started()
            await trio.sleep_forever()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(work)
            nursery.cancel_scope.cancel()
        assert nursery.cancel_scope.cancelled_caught


@BOTH_WAYS
async def test_scopes_that_are_left_out_of_order(is_known: bool) -> None:
    """Trio still reports when an inner scope outlives the block."""
    inner = trio.CancelScope()
    outer = LazyDeadlineScope(math.inf, is_known=is_known)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="corrupted"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    await trio.lowlevel.checkpoint()
