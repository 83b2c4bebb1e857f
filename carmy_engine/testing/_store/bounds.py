"""How much is kept, and for how long."""

from __future__ import annotations

from ..._model.cause import Cause
from ..._model.protocols import StoreFull
from ..._model.reservation import ReservationState
from .suite import ERROR, VALUE, Shelf, suite


@suite.check("S-301")
async def full(shelf: Shelf) -> None:
    """A full store refuses new identities with `StoreFull`, forgets nothing, and still gives and settles what it has."""
    async with shelf.open() as store:
        mine = [shelf.reservation(f"r{number}") for number in range(shelf.MAX_ENTRIES)]
        for entry in mine:
            assert await store.reserve(entry) is None
        await store.complete(mine[0].identity, "exec_1", VALUE, shelf.now)
        await store.interrupt(mine[1].identity, "exec_1", None, shelf.now)
        refused = False
        try:
            await store.reserve(shelf.reservation("new"))
        except StoreFull:
            refused = True
        assert refused
        assert await store.get(shelf.reservation("new").identity) is None
        existing = await store.reserve(mine[0])
        assert existing is not None
        assert existing.outcome == VALUE
        assert await store.complete(mine[2].identity, "exec_1", ERROR, shelf.now)
        assert await store.release(mine[3].identity, "exec_1")
        assert await store.reserve(shelf.reservation("new")) is None


@suite.check("S-302")
async def retention(shelf: Shelf) -> None:
    """A completed entry is kept for the retention, counted from its completion, and is free afterwards."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        shelf.now += 10 * shelf.RETENTION
        assert await store.get(mine.identity) == mine
        await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
        shelf.now += shelf.RETENTION - 1
        entry = await store.get(mine.identity)
        assert entry is not None
        assert entry.outcome == VALUE
        assert await store.reserve(shelf.reservation(execution_id="exec_2")) == entry
        shelf.now += 2
        assert await store.get(mine.identity) is None
        assert await store.reserve(shelf.reservation(execution_id="exec_2")) is None


@suite.check("S-303")
async def never_forgotten(shelf: Shelf) -> None:
    """Running and interrupted entries never age out: they may stand for an effect."""
    async with shelf.open() as store:
        first, second = shelf.reservation("r1"), shelf.reservation("r2")
        await store.reserve(first)
        await store.reserve(second)
        await store.interrupt(second.identity, "exec_1", Cause.SHUTDOWN, shelf.now)
        shelf.now += 1000 * shelf.RETENTION
        assert await store.reserve(shelf.reservation("r1", "exec_2")) == first
        entry = await store.reserve(shelf.reservation("r2", "exec_2"))
        assert entry is not None
        assert entry.state is ReservationState.INTERRUPTED


@suite.check("S-304")
async def room(shelf: Shelf) -> None:
    """Entries past their retention make room for new ones."""
    async with shelf.open() as store:
        for number in range(shelf.MAX_ENTRIES):
            mine = shelf.reservation(f"r{number}")
            await store.reserve(mine)
            await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
        shelf.now += shelf.RETENTION + 1
        for number in range(shelf.MAX_ENTRIES):
            assert await store.reserve(shelf.reservation(f"new{number}")) is None


@suite.check("S-305")
async def out_of_order(shelf: Shelf) -> None:
    """Each entry is kept for the retention from its own completion, also when completions are reported out of order."""
    async with shelf.open() as store:
        late, early = shelf.reservation("late"), shelf.reservation("early")
        await store.reserve(late)
        await store.reserve(early)
        await store.complete(late.identity, "exec_1", VALUE, shelf.now + 50)
        await store.complete(early.identity, "exec_1", VALUE, shelf.now)
        shelf.now += shelf.RETENTION + 1
        assert await store.get(late.identity) is not None
        shelf.now += 50
        assert await store.get(late.identity) is None
        assert await store.get(early.identity) is None
