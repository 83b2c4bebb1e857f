"""The optional capability of keeping confirmations: checked in a store that has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from ..._model.confirmation import ConfirmationEntry, ConfirmationState
from ..._model.effect import Effect
from ..._model.protocols import ConfirmationStore
from .suite import Shelf, suite

_SECONDS = 600.0


def _asked(shelf: Shelf, confirmation_id: str = "conf_1", **changes: Any) -> ConfirmationEntry:
    base = ConfirmationEntry(
        confirmation_id=confirmation_id,
        owner="principal:ana",
        fingerprint=b"\x00\xff" * 16,
        state=ConfirmationState.PENDING,
        tool="pay",
        effect=Effect.DESTRUCTIVE,
        arguments=b'{"text":"\xc3\xa9","n":1152921504606846977,"f":1.50}',
        principal="ana",
        session=None,
        transport="test",
        asked_at=shelf.now,
        expires_at=shelf.now + _SECONDS,
    )
    return msgspec.structs.replace(base, **changes)


def _answered(entry: ConfirmationEntry, state: ConfirmationState) -> ConfirmationEntry:
    return msgspec.structs.replace(entry, state=state, answered_by="eve", answered_at=entry.asked_at)


@asynccontextmanager
async def _opened(shelf: Shelf) -> AsyncIterator[ConfirmationStore | None]:
    """A new store; None if it does not keep confirmations."""
    async with shelf.open() as store:
        yield store if isinstance(store, ConfirmationStore) else None


@suite.check("S-601")
async def confirmation_round_trip(shelf: Shelf) -> None:
    """A store of confirmations gives an added one back unchanged, by its id, by its request and in the list; others are absent."""
    async with _opened(shelf) as store:
        if store is None:
            return
        mine = _asked(shelf)
        assert await store.add_confirmation(mine) is None
        assert await store.get_confirmation("conf_1", now=shelf.now) == mine
        assert await store.find_confirmations(mine.owner, mine.fingerprint, now=shelf.now) == [mine]
        assert await store.confirmations(now=shelf.now) == [mine]
        assert await store.get_confirmation("conf_2", now=shelf.now) is None
        assert await store.find_confirmations("principal:ben", mine.fingerprint, now=shelf.now) == []
        assert await store.find_confirmations(mine.owner, b"other", now=shelf.now) == []


@suite.check("S-602")
async def one_confirmation_for_a_request(shelf: Shelf) -> None:
    """One owner has one live confirmation for a request, also if several calls ask at the same time; a used one makes room for the next."""
    async with _opened(shelf) as store:
        if store is None:
            return
        found: list[ConfirmationEntry | None] = []

        async def add(number: int) -> None:
            found.append(await store.add_confirmation(_asked(shelf, f"conf_{number}")))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(add, number)
        (live,) = await store.confirmations(now=shelf.now)
        assert found.count(None) == 1
        assert all(entry is None or entry == live for entry in found)
        assert await store.add_confirmation(_asked(shelf, "conf_ben", owner="principal:ben")) is None
        assert await store.add_confirmation(_asked(shelf, "conf_other", fingerprint=b"other")) is None
        used = _answered(live, ConfirmationState.USED)
        assert await store.replace_confirmation(used, ConfirmationState.PENDING, now=shelf.now)
        again = _asked(shelf, "conf_again")
        assert await store.add_confirmation(again) is None
        assert await store.find_confirmations(live.owner, live.fingerprint, now=shelf.now) == [again, used]


@suite.check("S-603")
async def confirmation_state(shelf: Shelf) -> None:
    """A confirmation is replaced only in the expected state: of many that use one approval at the same time, one succeeds."""
    async with _opened(shelf) as store:
        if store is None:
            return
        pending = _asked(shelf)
        approved, denied = (_answered(pending, ConfirmationState(state)) for state in ("approved", "denied"))
        await store.add_confirmation(pending)
        assert not await store.replace_confirmation(approved, ConfirmationState.DENIED, now=shelf.now)
        assert await store.get_confirmation("conf_1", now=shelf.now) == pending
        assert await store.replace_confirmation(approved, ConfirmationState.PENDING, now=shelf.now)
        assert not await store.replace_confirmation(denied, ConfirmationState.PENDING, now=shelf.now)
        assert await store.get_confirmation("conf_1", now=shelf.now) == approved
        won: list[str] = []

        async def use(request_id: str) -> None:
            used = msgspec.structs.replace(approved, state=ConfirmationState.USED, request_id=request_id)
            if await store.replace_confirmation(used, ConfirmationState.APPROVED, now=shelf.now):
                won.append(request_id)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(use, f"r{number}")
        entry = await store.get_confirmation("conf_1", now=shelf.now)
        assert entry is not None
        assert won == [entry.request_id]
        missing = _asked(shelf, "conf_2")
        assert not await store.replace_confirmation(missing, ConfirmationState.PENDING, now=shelf.now)


@suite.check("S-604")
async def confirmation_expiry(shelf: Shelf) -> None:
    """A confirmation past its expiry is absent, in whatever state, cannot be replaced, and makes room for the next one."""
    async with _opened(shelf) as store:
        if store is None:
            return
        for number, state in enumerate(ConfirmationState):
            entry = _asked(shelf, f"conf_{number}", fingerprint=b"%d" % number)
            await store.add_confirmation(entry)
            if state is not ConfirmationState.PENDING:
                done = _answered(entry, state)
                assert await store.replace_confirmation(done, ConfirmationState.PENDING, now=shelf.now)
            assert await store.get_confirmation(entry.confirmation_id, now=shelf.now + _SECONDS - 1) is not None
            late = shelf.now + _SECONDS
            assert await store.get_confirmation(entry.confirmation_id, now=late) is None
            assert await store.find_confirmations(entry.owner, entry.fingerprint, now=late) == []
            assert not await store.replace_confirmation(_answered(entry, state), state, now=late)
        assert await store.confirmations(now=shelf.now + _SECONDS) == []
        shelf.now += _SECONDS
        again = _asked(shelf, "conf_again", fingerprint=b"1")
        assert await store.add_confirmation(again) is None
        assert await store.confirmations(now=shelf.now) == [again]


@suite.check("S-605")
async def list_of_confirmations(shelf: Shelf) -> None:
    """The list has the live confirmations of all owners, newest first, up to the limit; used ones are not in it."""
    async with _opened(shelf) as store:
        if store is None:
            return
        mine: list[ConfirmationEntry] = []
        for number in range(4):
            entry = _asked(shelf, f"conf_{number}", owner=f"principal:{number % 2}", fingerprint=b"%d" % number)
            mine.append(entry)
            assert await store.add_confirmation(entry) is None
            shelf.now += 1
        used = _answered(mine[2], ConfirmationState.USED)
        assert await store.replace_confirmation(used, ConfirmationState.PENDING, now=shelf.now)
        assert await store.confirmations(now=shelf.now) == [mine[3], mine[1], mine[0]]
        assert await store.confirmations(now=shelf.now, limit=1) == [mine[3]]


@suite.check("S-606")
async def confirmations_cancelled(shelf: Shelf) -> None:
    """An operation on confirmations whose caller is cancelled takes effect completely or not at all, and the store works on."""
    async with _opened(shelf) as store:
        if store is None:
            return
        pending = _asked(shelf)
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.add_confirmation(pending)
        assert await store.get_confirmation("conf_1", now=shelf.now) in (None, pending)
        await store.add_confirmation(pending)
        approved = _answered(pending, ConfirmationState.APPROVED)
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.replace_confirmation(approved, ConfirmationState.PENDING, now=shelf.now)
        assert await store.get_confirmation("conf_1", now=shelf.now) in (pending, approved)
