"""Optional capabilities: checked in a store that has them."""

from __future__ import annotations

from ..._model.cause import Cause
from ..._model.protocols import AuditStore, CheckableStore, ListableStore, PreparableStore, SearchableStore
from ..._model.record import ExecutionRecord
from ..._model.reservation import Reservation, ReservationState
from ..._model.result import ExecutionStatus
from .suite import VALUE, Shelf, suite


def _record(number: int, started_at: float, status: ExecutionStatus) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=f"exec_{number}",
        request_id=None,
        principal="ana",
        session=None,
        transport="test",
        tool=f"tool_{number}",
        effect=None,
        status=status,
        error_code=None,
        cause=None,
        duration_ms=1.0,
        waited_ms=0.0,
        started_at=started_at,
        replayed=False,
    )


@suite.check("S-501")
async def prepare(shelf: Shelf) -> None:
    """A store with `prepare` may be prepared at any time, and loses nothing by it."""
    async with shelf.open() as store:
        if isinstance(store, PreparableStore):
            await store.prepare()
            mine = shelf.reservation()
            await store.reserve(mine)
            await store.prepare()
            assert await store.get(mine.identity) == mine


@suite.check("S-502")
async def check(shelf: Shelf) -> None:
    """A store with `check` accepts a store that can be used, and changes nothing."""
    async with shelf.open() as store:
        if isinstance(store, CheckableStore):
            await store.check()
            mine = shelf.reservation()
            await store.reserve(mine)
            await store.check()
            assert await store.get(mine.identity) == mine


@suite.check("S-503")
async def entries(shelf: Shelf) -> None:
    """A store with `entries` lists entries of a state and a tool, newest first, up to the limit; by default those not completed."""
    async with shelf.open() as store:
        if not isinstance(store, ListableStore):
            return
        mine: list[Reservation] = []
        for number in range(4):
            entry = shelf.reservation(f"r{number}", f"exec_{number}", tool="pay" if number else "ship")
            mine.append(entry)
            await store.reserve(entry)
            shelf.now += 1
        await store.complete(mine[1].identity, "exec_1", VALUE, shelf.now)
        await store.interrupt(mine[2].identity, "exec_2", Cause.DISCONNECT, shelf.now)
        expected = {
            None: ["exec_3", "exec_2", "exec_0"],
            ReservationState.RUNNING: ["exec_3", "exec_0"],
            ReservationState.INTERRUPTED: ["exec_2"],
            ReservationState.COMPLETED: ["exec_1"],
        }
        for state, ids in expected.items():
            found = await store.entries(state=state, limit=100)
            assert [entry.execution_id for entry in found] == ids
        assert await store.entries(state=None, limit=1) == [mine[3]]
        assert await store.entries(state=None, tool="ship", limit=100) == [mine[0]]


@suite.check("S-504")
async def find_execution(shelf: Shelf) -> None:
    """A store with `find_execution` returns the entry that an execution holds, whatever its state, and None for other ids."""
    async with shelf.open() as store:
        if isinstance(store, SearchableStore):
            mine = shelf.reservation()
            await store.reserve(mine)
            assert await store.find_execution("exec_1") == mine
            await store.complete(mine.identity, "exec_1", VALUE, shelf.now)
            assert await store.find_execution("exec_1") == await store.get(mine.identity)
            assert await store.find_execution("exec_2") is None


@suite.check("S-505")
async def records(shelf: Shelf) -> None:
    """A store with `records` returns those that its `sink` has received, newest first, filtered, and up to the limit."""
    async with shelf.open() as store:
        if not isinstance(store, AuditStore):
            return
        assert store.sink is not None
        statuses = [ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.COMPLETED]
        mine = [_record(number, shelf.now + number, status) for number, status in enumerate(statuses)]
        for record in mine:
            store.sink.record(record)
        assert await store.records() == mine[::-1]
        assert await store.records(limit=1) == [mine[2]]
        assert await store.records(tool="tool_1") == [mine[1]]
        assert await store.records(status=ExecutionStatus.COMPLETED) == [mine[2], mine[0]]
        assert await store.records(principal="ben") == []
        assert await store.records(since=shelf.now + 1, until=shelf.now + 2) == [mine[1]]
