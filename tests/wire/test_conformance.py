"""The executor in front of a channel behaves as the engine does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from carmy_engine.abc import Executor
from carmy_engine.testing import EXECUTOR_CHECKS, ExecutorCheck
from tests.wire.pair import connected


@asynccontextmanager
async def client() -> AsyncIterator[Executor]:
    """A client over a channel in memory."""
    async with connected() as (executor, _):
        yield executor


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=str)
async def test_wire(check: ExecutorCheck) -> None:
    """The requirement that the check states is met."""
    await check.run(client)
