"""The published suite for idempotency stores.

With pytest, one test for each requirement::

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
    async def test_store(check: StoreCheck) -> None:
        await check.run(open_my_store)
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec
import trio

from .._model.cause import Cause
from .._model.error import ErrorCategory, ErrorInfo
from .._model.reservation import Identity, Reservation, ReservationState
from .._model.result import Outcome
from ..abc import IdempotencyStore, StoreFull
from ._suite import Check, Suite

_MOST_STEPS = 200
"""Awaits of one operation that are cancelled one after the other; no store should need more."""


class MakeStore(Protocol):
    """Opens a new, empty store for the length of a block."""

    def __call__(
        self, *, clock: Callable[[], float], retention: float, max_entries: int
    ) -> AbstractAsyncContextManager[IdempotencyStore]:
        """Open one.

        Args:
            clock: Unix seconds; what retention is measured with.
            retention: Seconds that a completed entry is kept, from its completion.
            max_entries: How many entries it holds before it is full.
        """
        ...


class Shelf:
    """Stores under test, with a clock that only moves when it is told to.

    Attributes:
        now: Unix seconds.
    """

    RETENTION = 100.0
    MAX_ENTRIES = 4

    def __init__(self, make: MakeStore) -> None:
        self._make = make
        self.now = 1_700_000_000.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[IdempotencyStore]:
        """A new store."""
        async with self._make(clock=lambda: self.now, retention=self.RETENTION, max_entries=self.MAX_ENTRIES) as store:
            yield store

    def reservation(self, request_id: str = "r1", execution_id: str = "exec_1", **changes: Any) -> Reservation:
        """A running entry."""
        identity = Identity(principal="ana", session="s1", scope="", request_id=request_id)
        base = Reservation(
            identity=identity,
            fingerprint=b"\x00\xff" * 16,
            execution_id=execution_id,
            state=ReservationState.RUNNING,
            started_at=self.now,
            tool="pay",
        )
        return msgspec.structs.replace(base, **changes)


suite: Suite[Shelf] = Suite()

_VALUE = Outcome(execution_id="exec_1", data_json=b'{"text":"\xc3\xa9","n":1152921504606846977,"f":1.50}')
_ERROR = Outcome(
    execution_id="exec_1",
    error=ErrorInfo(
        code="OUT_OF_STOCK",
        message="none left",
        category=ErrorCategory.CONFLICT,
        recoverable=True,
        retryable=False,
        retry_after=1.5,
        suggested_action="Order less.",
        details={"left": [0, {"of": None}]},
    ),
)


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
        await store.complete(mine.identity, "exec_1", _VALUE, shelf.now)
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
        for number, outcome in enumerate([_VALUE, _ERROR, Outcome(execution_id="exec_1")]):
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
        assert not await store.complete(mine.identity, "exec_2", _VALUE, shelf.now)
        assert not await store.release(mine.identity, "exec_2")
        assert not await store.interrupt(mine.identity, "exec_2", Cause.CALLER, shelf.now)
        assert await store.get(mine.identity) == mine


@suite.check("S-203")
async def absent(shelf: Shelf) -> None:
    """An identity that is free cannot be completed, released or interrupted, and stays free."""
    async with shelf.open() as store:
        identity = shelf.reservation().identity
        assert not await store.complete(identity, "exec_1", _VALUE, shelf.now)
        assert not await store.release(identity, "exec_1")
        assert not await store.interrupt(identity, "exec_1", None, shelf.now)
        assert await store.get(identity) is None


@suite.check("S-204")
async def settled(shelf: Shelf) -> None:
    """A completed entry is final: it cannot be completed again, released or interrupted."""
    async with shelf.open() as store:
        mine = shelf.reservation()
        await store.reserve(mine)
        await store.complete(mine.identity, "exec_1", _VALUE, shelf.now)
        before = await store.get(mine.identity)
        assert not await store.complete(mine.identity, "exec_1", _ERROR, shelf.now + 1)
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
        assert not await store.complete(mine.identity, "exec_1", _VALUE, shelf.now)
        assert await store.get(mine.identity) == other


@suite.check("S-206")
async def interrupt(shelf: Shelf) -> None:
    """An interrupted entry says when and why, stays taken, and is not interrupted twice."""
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
    """Whoever has found out the truth may complete or release an interrupted entry in its holder's name."""
    async with shelf.open() as store:
        for number in range(2):
            mine = shelf.reservation(f"r{number}")
            await store.reserve(mine)
            await store.interrupt(mine.identity, "exec_1", Cause.DISCONNECT, shelf.now)
        first, second = shelf.reservation("r0").identity, shelf.reservation("r1").identity
        assert await store.complete(first, "exec_1", _VALUE, shelf.now + 5)
        entry = await store.get(first)
        assert entry is not None
        assert entry.state is ReservationState.COMPLETED
        assert entry.cause is None
        assert entry.finished_at == shelf.now + 5
        assert await store.release(second, "exec_1")
        assert await store.get(second) is None


@suite.check("S-301")
async def full(shelf: Shelf) -> None:
    """A full store refuses new identities with `StoreFull`, forgets nothing, and still gives and settles what it has."""
    async with shelf.open() as store:
        mine = [shelf.reservation(f"r{number}") for number in range(shelf.MAX_ENTRIES)]
        for entry in mine:
            assert await store.reserve(entry) is None
        await store.complete(mine[0].identity, "exec_1", _VALUE, shelf.now)
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
        assert existing.outcome == _VALUE
        assert await store.complete(mine[2].identity, "exec_1", _ERROR, shelf.now)
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
        await store.complete(mine.identity, "exec_1", _VALUE, shelf.now)
        shelf.now += shelf.RETENTION - 1
        entry = await store.get(mine.identity)
        assert entry is not None
        assert entry.outcome == _VALUE
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
            await store.complete(mine.identity, "exec_1", _VALUE, shelf.now)
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
        await store.complete(late.identity, "exec_1", _VALUE, shelf.now + 50)
        await store.complete(early.identity, "exec_1", _VALUE, shelf.now)
        shelf.now += shelf.RETENTION + 1
        assert await store.get(late.identity) is not None
        shelf.now += 50
        assert await store.get(late.identity) is None
        assert await store.get(early.identity) is None


@suite.check("S-401")
async def cancelled(shelf: Shelf) -> None:
    """An operation that is cancelled, at whichever await, has happened or it has not; the store works on."""
    mine = shelf.reservation()
    running: Reservation = mine
    operations: list[tuple[Callable[[IdempotencyStore], Awaitable[object]], bool]] = [
        (lambda store: store.reserve(mine), False),
        (lambda store: store.complete(mine.identity, "exec_1", _VALUE, shelf.now), True),
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
            assert await store.complete(mine.identity, f"exec_{number}", _VALUE, time.time())

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


class StoreCheck:
    """One requirement, with its proof.

    Attributes:
        id: Stable, such as ``S-101``.
        statement: What is required, in one sentence.
    """

    def __init__(self, check: Check[Shelf]) -> None:
        self._check = check
        self.id = check.id
        self.statement = check.statement

    async def run(self, make: MakeStore) -> None:
        """Prove it on stores of its own.

        Raises:
            RequirementError: It is not met.
        """
        await self._check.run(lambda: _shelf(make))

    def __str__(self) -> str:
        return self.id


@asynccontextmanager
async def _shelf(make: MakeStore) -> AsyncIterator[Shelf]:
    yield Shelf(make)


STORE_CHECKS: tuple[StoreCheck, ...] = tuple(StoreCheck(check) for check in suite)
"""In the order of their identifiers."""


async def check_store(make: MakeStore) -> None:
    """Prove every requirement.

    Args:
        make: See `MakeStore`.

    Raises:
        ExceptionGroup: Of a `RequirementError` for each requirement that is not met.
    """
    await suite.run(lambda: _shelf(make))
