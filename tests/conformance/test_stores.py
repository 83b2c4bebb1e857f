"""Every requirement on every store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carmy_engine.stores.memory import MemoryCheckpoints, MemoryStore
from carmy_engine.stores.postgres import PostgresStore
from carmy_engine.stores.sqlite import SqliteStore
from carmy_engine.testing import CHECKPOINT_CHECKS, STORE_CHECKS, CheckpointCheck, MakeStore, StoreCheck
from tests.support.services import POSTGRESQL, needs_postgresql, new_schema


@asynccontextmanager
async def memory(*, clock: Callable[[], float], retention: float, max_entries: int) -> AsyncIterator[MemoryStore]:
    """The store in memory."""
    yield MemoryStore(clock=clock, retention=retention, max_entries=max_entries)


@asynccontextmanager
async def sqlite(*, clock: Callable[[], float], retention: float, max_entries: int) -> AsyncIterator[SqliteStore]:
    """The store in SQLite, in a file of its own."""
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(
            Path(directory, "state.db"), durability="normal", clock=clock, retention=retention, max_entries=max_entries
        )
        yield store
        await store.aclose()


@asynccontextmanager
async def postgresql(*, clock: Callable[[], float], retention: float, max_entries: int) -> AsyncIterator[PostgresStore]:
    """The store in PostgreSQL, in a schema of its own."""
    with new_schema() as schema:
        store = PostgresStore(POSTGRESQL, schema=schema, clock=clock, retention=retention, max_entries=max_entries)
        yield store
        await store.aclose()


MAKERS: dict[str, MakeStore] = {"memory": memory, "sqlite": sqlite, "postgresql": postgresql}
makers = ["memory", "sqlite", pytest.param("postgresql", marks=needs_postgresql)]


@pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
@pytest.mark.parametrize("maker", makers)
async def test_store(check: StoreCheck, maker: str) -> None:
    """A store meets the requirement that the check states."""
    await check.run(MAKERS[maker])


@asynccontextmanager
async def memory_alone() -> AsyncIterator[MemoryCheckpoints]:
    """Checkpoints in memory, without a store for executions."""
    yield MemoryCheckpoints()


@pytest.mark.parametrize("check", CHECKPOINT_CHECKS, ids=str)
@pytest.mark.parametrize("maker", ["alone", *makers])
async def test_checkpoints(check: CheckpointCheck, maker: str) -> None:
    """A store of checkpoints meets the requirement that the check states."""
    make = MAKERS.get(maker)
    if make is None:
        await check.run(memory_alone)
    else:
        await check.run(lambda: make(clock=lambda: 1_700_000_000.0, retention=100.0, max_entries=4))  # type: ignore[arg-type,return-value] # all of them keep checkpoints
