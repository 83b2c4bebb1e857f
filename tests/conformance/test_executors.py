"""Every requirement on every executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine.abc import Executor
from carmy_engine.testing import EXECUTOR_CHECKS, ExecutorCheck, MakeExecutor, RequirementError
from tests.conformance.makers import TRANSPORTS, Transport


def pairs(*, shared: bool) -> list[Any]:
    """Every check on every transport of one kind; those that it departs from have to fail."""
    return [
        pytest.param(name, check, id=f"{name}-{check.id}", marks=marks(transport, check))
        for name, transport in TRANSPORTS.items()
        if transport.shared is shared
        for check in EXECUTOR_CHECKS
    ]


def marks(transport: Transport, check: ExecutorCheck) -> list[pytest.MarkDecorator]:
    if (reason := transport.departs.get(check.id)) is None:
        return []
    # The plugin for trio puts it into a group.
    return [pytest.mark.xfail(raises=(RequirementError, ExceptionGroup), strict=True, reason=reason)]


@pytest.mark.parametrize(("name", "check"), pairs(shared=False))
async def test_executor(name: str, check: ExecutorCheck) -> None:
    """An executor meets the requirement that the check states."""
    await run(name, check, TRANSPORTS[name].make)


async def run(name: str, check: ExecutorCheck, make: MakeExecutor) -> None:
    """Run a check; one that waits for what a transport cannot express has failed when it has waited a while."""
    if check.id not in TRANSPORTS[name].departs:
        await check.run(make)
        return
    with trio.move_on_after(DEPARTURE_SECONDS):
        await check.run(make)
        return
    raise RequirementError(f"{check.id}: it waits")


DEPARTURE_SECONDS = 1.0
"""Long enough for a check that could be met after all to be noticed, and not all of the time that others get."""


Verdicts = dict[str, RequirementError | None]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[str, Verdicts]:
    """What became of the checks on executors that are shared: by transport and identifier. Filled by the first to ask."""
    wanted: dict[str, Verdicts] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname == test_shared_executor.__name__:
            found: dict[str, Any] = {**item.callspec.params}
            wanted.setdefault(found["name"], {})[found["check"].id] = None
    return wanted


@pytest.mark.parametrize(("name", "check"), pairs(shared=True))
def test_shared_executor(name: str, check: ExecutorCheck, verdicts: dict[str, Verdicts], proven: set[str]) -> None:
    """An executor that serves all checks of this run, one after the other, meets the requirement that the check states."""
    if name not in proven:
        proven.add(name)
        trio.run(prove, name, verdicts[name])
    if (failure := verdicts[name][check.id]) is not None:
        raise failure


@pytest.fixture(scope="module")
def proven() -> set[str]:
    """The transports that have had their run."""
    return set()


async def prove(name: str, verdicts: Verdicts) -> None:
    """Run the wanted checks on one and the same executor."""
    async with TRANSPORTS[name].make() as executor:

        @asynccontextmanager
        async def shared() -> AsyncIterator[Executor]:
            yield executor

        for check in EXECUTOR_CHECKS:
            if check.id in verdicts:
                try:
                    await run(name, check, shared)
                except RequirementError as failure:
                    verdicts[check.id] = failure
