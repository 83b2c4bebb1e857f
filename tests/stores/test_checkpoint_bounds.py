"""How many checkpoints of graphs are kept, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from carmy_engine.abc import Checkpoint, CheckpointStore, StoreFull
from carmy_engine.graph import MemoryCheckpoints, RunStatus
from carmy_engine.stores.sqlite import SqliteLimits, SqliteStore
from tests.stores.kit import NOW, opened

ENDED = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT]
WAITING = [RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.IN_DOUBT]


def checkpoint(thread_id: str, number: int = 0, **changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "graph": "orders",
        "run_id": "run_1",
        "status": RunStatus.COMPLETED,
        "node": None,
        "saved_at": NOW,
        "document": b"{}",
    }
    return Checkpoint(thread_id=thread_id, number=number, **{**fields, **changes})


async def numbers(store: CheckpointStore, thread_id: str) -> list[int]:
    return [each.number for each in await store.checkpoints("orders", thread_id)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_thread_keeps_its_newest(kind: str, tmp_path: Path) -> None:
    """The oldest checkpoints of a thread give way, and those of other threads stay."""

    async def fill(store: CheckpointStore) -> None:
        assert await store.save_checkpoint(checkpoint("other"))
        for number in range(10):
            assert await store.save_checkpoint(checkpoint("order-1", number))
        assert await numbers(store, "order-1") == [9, 8, 7]
        assert await numbers(store, "other") == [0]
        assert await store.save_checkpoint(checkpoint("order-1", 3)) is False

    if kind == "memory":
        await fill(MemoryCheckpoints(max_checkpoints=3))
    else:
        async with opened(tmp_path / "state.db", limits=SqliteLimits(max_checkpoints=3)) as store:
            await fill(store)


async def test_threads_that_have_ended_age_out(tmp_path: Path) -> None:
    """A thread is dropped when its last run has ended the retention ago, and never while a run can go on by itself or waits."""
    now = NOW
    async with opened(tmp_path / "state.db", clock=lambda: now, retention=100.0) as store:
        for status in [*ENDED, *WAITING]:
            await store.save_checkpoint(checkpoint(status.value, 0, status=RunStatus.RUNNING))
            await store.save_checkpoint(checkpoint(status.value, 1, status=status))
        now += 99
        await store.save_checkpoint(checkpoint("new", saved_at=now))
        assert [await numbers(store, status.value) for status in [*ENDED, *WAITING]] == [[1, 0]] * 7
        now += 1
        await store.save_checkpoint(checkpoint("new", 1, saved_at=now))
        assert [await numbers(store, status.value) for status in ENDED] == [[]] * 4
        assert [await numbers(store, status.value) for status in WAITING] == [[1, 0]] * 3
        assert await numbers(store, "new") == [1, 0]


async def test_a_thread_with_a_new_run_does_not_age_out(tmp_path: Path) -> None:
    """A thread whose run goes on again, or that has a new run, keeps what it has."""
    now = NOW
    async with opened(tmp_path / "state.db", clock=lambda: now, retention=100.0) as store:
        await store.save_checkpoint(checkpoint("order-1", 0, status=RunStatus.FAILED))
        now += 90
        await store.save_checkpoint(checkpoint("order-1", 1, status=RunStatus.RUNNING, saved_at=now))
        now += 1000
        await store.save_checkpoint(checkpoint("new", saved_at=now))
        assert await numbers(store, "order-1") == [1, 0]


async def test_the_sweep_keeps_up(tmp_path: Path) -> None:
    """Each save drops a bounded number of threads, more than it adds: the file does not grow with what it has seen."""
    now = NOW
    async with opened(tmp_path / "state.db", clock=lambda: now, retention=10.0) as store:
        for number in range(60):
            await store.save_checkpoint(checkpoint(f"order-{number}", saved_at=now))
        now += 100
        for number in range(4):
            await store.save_checkpoint(checkpoint("new", number, saved_at=now))
        left = [number for number in range(60) if await numbers(store, f"order-{number}")]
        assert left == []


async def test_full_of_threads_in_memory() -> None:
    """In memory the thread that ended first gives way; threads that wait never do."""
    store = MemoryCheckpoints(max_threads=2)
    await store.save_checkpoint(checkpoint("waits", status=RunStatus.INTERRUPTED))
    await store.save_checkpoint(checkpoint("ended"))
    await store.save_checkpoint(checkpoint("next", status=RunStatus.RUNNING))
    assert [await numbers(store, name) for name in ("waits", "ended", "next")] == [[0], [], [0]]
    with pytest.raises(StoreFull):
        await store.save_checkpoint(checkpoint("more"))
    await store.save_checkpoint(checkpoint("next", 1))
    await store.save_checkpoint(checkpoint("more"))
    assert await numbers(store, "next") == []


async def test_reopened(tmp_path: Path) -> None:
    """Checkpoints and their ends are in the file: another process drops what has aged out."""
    async with opened(tmp_path / "state.db", retention=100.0) as store:
        await store.save_checkpoint(checkpoint("order-1"))
        await store.save_checkpoint(checkpoint("order-2", status=RunStatus.INTERRUPTED))
    again = SqliteStore(tmp_path / "state.db", clock=lambda: NOW + 1000, retention=100.0)
    await again.save_checkpoint(checkpoint("new", saved_at=NOW + 1000))
    assert [await numbers(again, name) for name in ("order-1", "order-2", "new")] == [[], [0], [0]]
    await again.aclose()
