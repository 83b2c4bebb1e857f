"""Every requirement on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from carmy_engine.stores.memory import MemoryStore
from carmy_engine.testing import STORE_CHECKS, MakeStore, StoreCheck


@asynccontextmanager
async def memory(*, clock: Callable[[], float], retention: float, max_entries: int) -> AsyncIterator[MemoryStore]:
    """The store in memory."""
    yield MemoryStore(clock=clock, retention=retention, max_entries=max_entries)


MAKERS: dict[str, MakeStore] = {"memory": memory}


@pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
@pytest.mark.parametrize("maker", MAKERS)
async def test_store(check: StoreCheck, maker: str) -> None:
    """A store meets the requirement that the check states."""
    await check.run(MAKERS[maker])
