"""The life of one entry, and the executions that may change it."""

from __future__ import annotations

import msgspec
import trio

from ..._model.cause import Cause
from ..._model.reservation import Reservation, ReservationState
from ..._model.result import Outcome
from .suite import ERROR, VALUE, Shelf, suite


@suite.check("S-101")
async def reserve(shelf: Shelf) -> None:
    """A new identity is reserved, and can then be read as it was written."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        assert await store.get(mine.identity) is None
        assert await store.reserve(mine) is None
        assert await store.get(mine.identity) == mine


@suite.check("S-102")
async def taken(shelf: Shelf) -> None:
    """A taken identity gives the entry that was there, whatever its state, and changes nothing."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        other = shelf.reservation(execution_id="exec_2", fingerprint=b"y" * 32)
        assert await store.reserve(other) == mine
        await store.interrupt(mine.identity, "exec_1", Cause.SHUTDOWN, shelf.now)
        interrupted = await store.reserve(other)
        assert interrupted is not None
        assert interrupted.state is ReservationState.INTERRUPTED
        await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
        completed = await store.reserve(other)
        assert completed is not None
        assert completed.state is ReservationState.COMPLETED
        assert completed.execution_id == "exec_1"
        assert await store.get(mine.identity) == completed


@suite.check("S-103")
async def identities(shelf: Shelf) -> None:
    """Identities differ if principal, session, scope or request_id differ; an absent one is not an empty one."""
    base = shelf.reservation().identity
    others = [
        msgspec.structs.replace(base, principal="bo"),
        msgspec.structs.replace(base, session=None),
        msgspec.structs.replace(base, session=""),
    ]
    async with shelf.open() as store:
        for number, identity in enumerate([base, *others]):
            assert await store.reserve(shelf.reservation(identity=identity, execution_id=f"exec_{number}")) is None
    others = [
        msgspec.structs.replace(base, principal=None, session=None, scope="http"),
        msgspec.structs.replace(base, principal=None, session=None, scope="stdio"),
        msgspec.structs.replace(base, request_id="R1"),
        msgspec.structs.replace(base, request_id="r1 "),
    ]
    async with shelf.open() as store:
        for number, identity in enumerate(others):
            assert await store.reserve(shelf.reservation(identity=identity, execution_id=f"exec_{number}")) is None


@suite.check("S-104")
async def at_once(shelf: Shelf) -> None:
    """Of many reservations of one identity at the same time, exactly one is new; the others see it."""
    async with shelf.open() as store:
        seen: list[Reservation | None] = []

        async def attempt(number: int) -> None:
            seen.append(await store.reserve(shelf.reservation(execution_id=f"exec_{number}")))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(attempt, number)
        assert seen.count(None) == 1
        winner = await store.get(shelf.reservation().identity)
        assert all(entry is None or entry == winner for entry in seen)


@suite.check("S-201")
async def complete(shelf: Shelf) -> None:
    """A completed entry gives back its outcome, byte for byte, and the time of its completion."""
    async with shelf.open() as store:
        for number, outcome in enumerate([VALUE, ERROR, Outcome(execution_id="exec_1")]):
            mine = shelf.reservation(f"r{number}")
            await store.reserve(mine)
            assert await store.complete(mine.identity, "exec_1", outcome, shelf.now + 1)
            entry = await store.get(mine.identity)
            assert entry is not None
            assert entry.state is ReservationState.COMPLETED
            assert entry.outcome == outcome
            assert entry.finished_at == shelf.now + 1
            assert entry.started_at == mine.started_at
            assert entry.fingerprint == mine.fingerprint
            assert entry.tool == mine.tool


@suite.check("S-202")
async def holder(shelf: Shelf) -> None:
    """Only the execution that holds an entry may complete, release or interrupt it; others change nothing."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        assert not await store.complete(mine.identity, "exec_2", VALUE, shelf.now)
        assert not await store.release(mine.identity, "exec_2")
        assert not await store.interrupt(mine.identity, "exec_2", Cause.CALLER, shelf.now)
        assert await store.get(mine.identity) == mine


@suite.check("S-203")
async def absent(shelf: Shelf) -> None:
    """An identity that is free cannot be completed, released or interrupted, and stays free."""
    async with shelf.open() as store:
        identity = shelf.reservation().identity
        assert not await store.complete(identity, "exec_1", VALUE, shelf.now)
        assert not await store.release(identity, "exec_1")
        assert not await store.interrupt(identity, "exec_1", None, shelf.now)
        assert await store.get(identity) is None


@suite.check("S-204")
async def settled(shelf: Shelf) -> None:
    """A completed entry is final: it cannot be completed again, released or interrupted."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
        before = await store.get(mine.identity)
        assert not await store.complete(mine.identity, "exec_1", ERROR, shelf.now + 1)
        assert not await store.release(mine.identity, "exec_1")
        assert not await store.interrupt(mine.identity, "exec_1", Cause.SHUTDOWN, shelf.now)
        assert await store.get(mine.identity) == before


@suite.check("S-205")
async def release(shelf: Shelf) -> None:
    """A released identity is free, for another execution and another request."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        assert await store.release(mine.identity, "exec_1")
        assert await store.get(mine.identity) is None
        other = shelf.reservation(execution_id="exec_2", fingerprint=b"z" * 32)
        assert await store.reserve(other) is None
        assert not await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
        assert await store.get(mine.identity) == other


@suite.check("S-206")
async def interrupt(shelf: Shelf) -> None:
    """An interrupted entry has a time and a cause, stays taken, and is not interrupted twice."""
    async with shelf.open() as store:
        for number, cause in enumerate([Cause.DISCONNECT, None]):
            mine = shelf.reservation(f"r{number}")
            await store.reserve(mine)
            assert await store.interrupt(mine.identity, "exec_1", cause, shelf.now + 2)
            entry = await store.get(mine.identity)
            assert entry is not None
            assert entry.state is ReservationState.INTERRUPTED
            assert entry.cause is cause
            assert entry.finished_at == shelf.now + 2
            assert entry.outcome is None
            assert not await store.interrupt(mine.identity, "exec_1", Cause.OPERATOR, shelf.now + 3)
            assert await store.get(mine.identity) == entry


@suite.check("S-207")
async def resolve(shelf: Shelf) -> None:
    """An interrupted entry can be completed or released in its holder's name, once its outcome is known."""
    async with shelf.open() as store:
        for number in range(2):
            mine = shelf.reservation(f"r{number}")
            await store.reserve(mine)
            await store.interrupt(mine.identity, "exec_1", Cause.DISCONNECT, shelf.now)
        first, second = shelf.reservation("r0").identity, shelf.reservation("r1").identity
        assert await store.complete(first, "exec_1", VALUE, shelf.now + 5)
        entry = await store.get(first)
        assert entry is not None
        assert entry.state is ReservationState.COMPLETED
        assert entry.cause is None
        assert entry.finished_at == shelf.now + 5
        assert await store.release(second, "exec_1")
        assert await store.get(second) is None
