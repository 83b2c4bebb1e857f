"""How much is kept, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from carmy_engine import AgentError, MemoryStore, StoreSettings
from carmy_engine.abc import Outcome, StoreFull
from carmy_engine.stores import memory, sqlite
from carmy_engine.stores._rows import ENTRY_BYTES
from carmy_engine.stores.sqlite import SqliteLimits, SqliteStore
from tests.stores.kit import NOW, VALUE, identity, opened, raw, reservation, state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def totals(store: SqliteStore) -> Any:
    """What the file says, and what is in it."""
    with raw(store.path) as connection:
        said = connection.execute("SELECT entries, bytes FROM totals").fetchall()
        assert said == connection.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM entries").fetchall()
    return said[0]


async def test_totals_are_those_of_the_entries(path: Path) -> None:
    """Whatever is done to entries, the totals that the bounds are checked against are true."""
    async with opened(path) as store:
        for number in range(4):
            await store.reserve(reservation(f"r{number}"))
        size = ENTRY_BYTES + len("ana" + "r1" + "exec_1" + "pay")
        assert await totals(store) == (4, 4 * size)
        await store.complete(identity("r0"), "exec_1", VALUE, NOW)
        assert await totals(store) == (4, 4 * size + 6)
        await store.release(identity("r1"), "exec_1")
        await store.interrupt(identity("r2"), "exec_1", None, NOW)
        assert await totals(store) == (3, 3 * size + 6)


async def test_full_by_bytes(path: Path) -> None:
    """Outputs count; a store that is full of them refuses new ids, but records what it has promised to."""
    async with opened(path, max_bytes=3000) as store:
        await store.reserve(reservation("r1"))
        await store.reserve(reservation("r2"))
        big = Outcome(execution_id="exec_1", data_json=b"1" * 5000)
        assert await store.complete(identity("r1"), "exec_1", big, NOW)
        with pytest.raises(StoreFull):
            await store.reserve(reservation("r3"))
        assert await store.complete(identity("r2"), "exec_1", big, NOW)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_errors_count_as_outputs_do(kind: str, path: Path) -> None:
    """The text of an error counts as well, so a store that is full of it refuses new ids."""
    bounds: dict[str, Any] = {"max_bytes": 3000, "clock": lambda: NOW}
    store = MemoryStore(**bounds) if kind == "memory" else SqliteStore(path, **bounds)
    error = AgentError("REFUSED", "no", "conflict", details={"why": "x" * 5000}).info
    try:
        await store.reserve(reservation("r1"))
        assert await store.complete(identity("r1"), "exec_1", Outcome(execution_id="exec_1", error=error), NOW)
        with pytest.raises(StoreFull):
            await store.reserve(reservation("r2"))
    finally:
        await store.aclose()


async def test_many_at_once_stay_within_the_bound(path: Path) -> None:
    """Callers that share a transaction share its room."""
    async with opened(path, max_entries=10) as store:
        full: list[str] = []

        async def reserve(number: int) -> None:
            try:
                await store.reserve(reservation(f"r{number}"))
            except StoreFull:
                full.append(f"r{number}")

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(reserve, number)
        assert len(full) == 20
        assert (await totals(store))[0] == 10


async def test_two_stores_share_the_bound(path: Path) -> None:
    """The bound is the file's."""
    async with opened(path, max_entries=2) as first, opened(path, max_entries=2) as second:
        await first.reserve(reservation("r1"))
        await second.reserve(reservation("r2"))
        with pytest.raises(StoreFull):
            await first.reserve(reservation("r3"))


async def test_the_sweep_keeps_up(path: Path) -> None:
    """Old entries go in small portions, and still the file does not grow with what it has seen."""
    now = NOW
    async with opened(
        path, clock=lambda: now, limits=SqliteLimits(max_swept=10), retention=5.0, max_entries=100
    ) as store:
        for number in range(1000):
            now += 0.1
            await store.reserve(reservation(f"r{number}"))
            await store.complete(identity(f"r{number}"), "exec_1", VALUE, now)
        entries, _ = await totals(store)
        assert 50 <= entries <= 60


async def test_what_matters_is_never_swept(path: Path) -> None:
    """Running and interrupted entries stay, however old; a store full of them refuses."""
    now = NOW
    async with opened(path, clock=lambda: now, retention=5.0, max_entries=2) as store:
        await store.reserve(reservation("r1"))
        await store.reserve(reservation("r2"))
        await store.interrupt(identity("r2"), "exec_1", None, now)
        now += 1e9
        with pytest.raises(StoreFull):
            await store.reserve(reservation("r3"))
        assert [await state(store, name) for name in ("r1", "r2")] == ["running", "interrupted"]


@asynccontextmanager
async def bounded(kind: str, path: Path, **bounds: Any) -> AsyncIterator[MemoryStore | SqliteStore]:
    """A store of either kind."""
    if kind == "memory":
        yield MemoryStore(clock=lambda: NOW, **bounds)
    else:
        async with opened(path, **bounds) as store:
            yield store


@pytest.mark.parametrize("bound", [{"max_entries": 4}, {"max_bytes": 4 * 600}])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_answers_that_may_be_repeated_give_way(kind: str, bound: dict[str, int], path: Path) -> None:
    """A full store drops the oldest completed entry of a tool that may be repeated, and never any other."""
    async with bounded(kind, path, **bound) as store:
        await store.reserve(reservation("running", repeatable=True))
        await store.reserve(reservation("write"))
        await store.complete(identity("write"), "exec_1", VALUE, NOW)
        for number in range(10):
            assert await store.reserve(reservation(f"read{number}", repeatable=True)) is None
            await store.complete(identity(f"read{number}"), "exec_1", VALUE, NOW + number)
        assert await state(store, "read9") == "completed"
        assert await state(store, "read0") == "free"
        assert await store.reserve(reservation("read9", "exec_2", repeatable=True)) is not None
        for number in range(2):
            assert await store.reserve(reservation(f"write{number}")) is None
            await store.complete(identity(f"write{number}"), "exec_1", VALUE, NOW)
        with pytest.raises(StoreFull):
            await store.reserve(reservation("no room", repeatable=True))
        for name in ("write", "write0", "write1"):
            assert await state(store, name) == "completed"
        assert await state(store, "running") == "running"


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.sampled_from(["complete", "interrupt", "leave"])))
)
async def test_what_may_stand_for_an_effect_is_never_dropped(steps: list[tuple[str, bool, str]]) -> None:
    """Whatever is reserved and ended in a small store in memory, entries that may not be repeated stay, and its sums are right."""
    store = MemoryStore(max_entries=3, clock=lambda: NOW)
    kept: dict[str, str] = {}
    for number, (name, repeatable, end) in enumerate(steps):
        try:
            existing = await store.reserve(reservation(name, f"exec_{number}", repeatable=repeatable))
        except StoreFull:
            continue
        if existing is None and end == "complete":
            await store.complete(identity(name), f"exec_{number}", VALUE, NOW)
        elif existing is None and end == "interrupt":
            await store.interrupt(identity(name), f"exec_{number}", None, NOW)
        if existing is None and (not repeatable or end != "complete"):
            kept[name] = await state(store, name)
        assert len(store) <= 3
        for each, was in kept.items():
            assert await state(store, each) == was
    assert store._bytes == sum(512 + (0 if each.outcome is None else 6) for each in store._entries.values())


async def test_the_memory_store_ages_after_entries_have_given_way() -> None:
    """An entry that gave way and came again is kept for the whole retention."""
    now = NOW
    store = MemoryStore(max_entries=2, retention=10.0, clock=lambda: now)
    for number, name in enumerate(["a", "b", "c", "a"]):
        now = NOW + number
        await store.reserve(reservation(name, repeatable=True))
        await store.complete(identity(name), "exec_1", VALUE, now)
    now = NOW + 12.5
    assert [await state(store, name) for name in "abc"] == ["completed", "free", "free"]
    now = NOW + 13.0
    assert await state(store, "a") == "free"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_bounds_from_settings(kind: str, path: Path) -> None:
    """``store.max_entries`` and ``store.max_bytes`` bound the store that the URL names."""
    url, make = ("memory:", memory.from_settings) if kind == "memory" else (f"sqlite:{path}", sqlite.from_settings)
    bounds: list[dict[str, Any]] = [{"max_entries": 1}, {"max_bytes": 600}]
    for bound in bounds:
        store: Any = make(StoreSettings(url=url, **bound))
        await store.reserve(reservation("first"))
        with pytest.raises(StoreFull):
            await store.reserve(reservation("second"))
        await store.release(identity("first"), "exec_1")
        await store.aclose()
