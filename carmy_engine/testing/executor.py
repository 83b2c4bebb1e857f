"""The published suite for executors: the engine, and the client of every transport.

With pytest, one test for each requirement::

    @pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=str)
    async def test_conformance(check: ExecutorCheck) -> None:
        await check.run(open_my_executor)

or all at once::

    await check_executor(open_my_executor)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from .._model.protocols import Executor
from ._executor import suite
from ._probe import Probe, probing
from ._suite import Check

MakeExecutor = Callable[[], AbstractAsyncContextManager[Executor]]
"""Opens an executor for the length of a block. It serves exactly `SCRIPTED_TOOLS` over one `Stage`, in an engine with default
settings and a store of its own, as a caller without permissions. It may be a new one each time, or a shared one: checks
use names of their own."""


class ExecutorCheck:
    """One requirement, with its proof.

    Attributes:
        id: Stable, such as ``E-301``.
        statement: What is required, in one sentence.
    """

    def __init__(self, check: Check[Probe]) -> None:
        self._check = check
        self.id = check.id
        self.statement = check.statement

    async def run(self, make: MakeExecutor) -> None:
        """Prove it on an executor.

        Raises:
            RequirementError: It is not met.
        """
        await self._check.run(lambda: _probe(make))

    def __str__(self) -> str:
        return self.id


@asynccontextmanager
async def _probe(make: MakeExecutor) -> AsyncIterator[Probe]:
    async with make() as executor, probing(executor) as probe:
        yield probe


EXECUTOR_CHECKS: tuple[ExecutorCheck, ...] = tuple(ExecutorCheck(check) for check in suite)
"""In the order of their identifiers."""


async def check_executor(make: MakeExecutor) -> None:
    """Prove every requirement, each on an executor of its own.

    Args:
        make: See `MakeExecutor`.

    Raises:
        ExceptionGroup: Of a `RequirementError` for each requirement that is not met.
    """
    await suite.run(lambda: _probe(make))
