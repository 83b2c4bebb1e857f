"""Every requirement on every executor."""

from __future__ import annotations

import pytest

from carmy_engine.testing import EXECUTOR_CHECKS, ExecutorCheck
from tests.conformance.makers import MAKERS


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=str)
@pytest.mark.parametrize("maker", MAKERS)
async def test_executor(check: ExecutorCheck, maker: str) -> None:
    """An executor meets the requirement that the check states."""
    await check.run(MAKERS[maker])
