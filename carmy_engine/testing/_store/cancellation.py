"""Operations that are cut off, and those at the same time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from ..._model.cause import Cause
from ..._model.protocols import IdempotencyStore
from ..._model.reservation import Reservation
from .suite import VALUE, Shelf, suite

_MOST_STEPS = 200
"""Awaits of one operation that are cancelled one after the other; no store should need more."""


@suite.check("S-401")
async def cancelled(shelf: Shelf) -> None:
    """An operation that is cancelled, at whichever await, has happened or it has not; the store works on."""
    mine = shelf.reservation()
    running: Reservation = mine
    operations: list[tuple[Callable[[IdempotencyStore], Awaitable[object]], bool]] = [
        (lambda store: store.reserve(mine), False),
        (lambda store: store.complete(mine.identity, "exec_1", VALUE, shelf.now), True),
        (lambda store: store.release(mine.identity, "exec_1"), True),
        (lambda store: store.interrupt(mine.identity, "exec_1", Cause.CALLER, shelf.now), True),
        (lambda store: store.get(mine.identity), True),
    ]
    for operate, reserved in operations:
        async with shelf.open() as store:
            if reserved:
                await store.reserve(mine)
            before = await store.get(mine.identity)
            await operate(store)
            after = await store.get(mine.identity)
        for steps in range(_MOST_STEPS):
            async with shelf.open() as store:
                if reserved:
                    await store.reserve(running)
                cut = await _cancel_after(steps, lambda operate=operate, store=store: operate(store))  # type: ignore[misc] # a closure of its own
                assert await store.get(mine.identity) in (before, after)
                assert await store.reserve(shelf.reservation("other")) is None
                if not cut:
                    assert await store.get(mine.identity) == after
                    break
        else:
            raise AssertionError(f"an operation takes more than {_MOST_STEPS} steps")


@suite.check("S-402")
async def closed_twice(shelf: Shelf) -> None:
    """A store may be closed twice."""
    async with shelf.open() as store:
        await store.aclose()
        await store.aclose()


@suite.check("S-403")
async def many(shelf: Shelf) -> None:
    """Operations on different identities at the same time do not disturb each other."""
    async with shelf.open() as store:

        async def live(number: int) -> None:
            mine = shelf.reservation(f"r{number}", f"exec_{number}")
            for _ in range(5):
                assert await store.reserve(mine) is None
                assert await store.get(mine.identity) == mine
                assert await store.release(mine.identity, f"exec_{number}")
            assert await store.reserve(mine) is None
            assert await store.complete(mine.identity, f"exec_{number}", VALUE, time.time())

        async with trio.open_nursery() as nursery:
            for number in range(shelf.MAX_ENTRIES):
                nursery.start_soon(live, number)


async def _cancel_after(steps: int, operate: Callable[[], Awaitable[object]]) -> bool:
    """Cancel an operation after its task was resumed so often; whether it was cut off."""

    class Canceller(trio.abc.Instrument):
        def __init__(self) -> None:
            self.left = steps

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            if task is watched:
                self.left -= 1
                if self.left < 0:
                    scope.cancel()

    watched = trio.lowlevel.current_task()
    canceller = Canceller()
    with trio.CancelScope() as scope:
        if steps == 0:
            scope.cancel()
        trio.lowlevel.add_instrument(canceller)
        try:
            await operate()
        finally:
            trio.lowlevel.remove_instrument(canceller)
    return scope.cancelled_caught
