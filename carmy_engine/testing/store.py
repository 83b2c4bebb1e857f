"""The published suite for idempotency stores.

With pytest, one test for each requirement::

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
    async def test_store(check: StoreCheck) -> None:
        await check.run(open_my_store)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ._store import MakeStore, Shelf, suite
from ._suite import Check

__all__ = ["STORE_CHECKS", "MakeStore", "StoreCheck", "check_store"]


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
