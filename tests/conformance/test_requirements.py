"""The requirements as a list for people, held to the checks."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from carmy_engine.testing import EXECUTOR_CHECKS, STORE_CHECKS, ExecutorCheck, StoreCheck, _executor, _store
from tests.conformance.makers import TRANSPORTS
from tests.conformance.test_executors import pairs

CHECKS: list[ExecutorCheck | StoreCheck] = [*EXECUTOR_CHECKS, *STORE_CHECKS]
LIST = Path(__file__).with_name("requirements.txt")


def test_ids_are_unique_and_in_order():
    """Every identifier is used once, and those of a suite ascend."""
    for suite in (EXECUTOR_CHECKS, STORE_CHECKS):
        ids = [check.id for check in suite]
        assert len(set(ids)) == len(ids)
        assert ids == sorted(ids)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_requirement_is_one_sentence(check):
    """An identifier has its form, and the words are one sentence."""
    assert re.fullmatch(r"[ES]-[1-9][0-9]{2}", check.id)
    assert check.statement.endswith(".")
    assert ". " not in check.statement
    assert len(check.statement) > 20


def test_the_list_is_the_checks():
    """The published list has every check and no other line, so that no requirement is lost unnoticed."""
    published = LIST.read_text().splitlines()
    assert published == [f"{check.id}  {check.statement}" for check in CHECKS]


def test_every_transport_runs_every_check():
    """What runs is each check on each transport, once; what a transport departs from is named, with a reason, and runs too."""
    planned = Counter(case.id for kind in (False, True) for case in pairs(shared=kind))
    assert planned == Counter(f"{name}-{check.id}" for name in TRANSPORTS for check in EXECUTOR_CHECKS)
    ids = {check.id for check in EXECUTOR_CHECKS}
    for transport in TRANSPORTS.values():
        assert set(transport.departs) <= ids
        assert all(transport.departs.values())


def test_every_check_has_a_proof_of_its_own():
    """No two requirements share a function, and every function of the suite that proves something is one of them."""
    for package in (_executor, _store):
        proofs = [check.prove for check in package.suite]
        assert len(set(proofs)) == len(proofs)
        declared = {
            value
            for module in vars(package).values()
            if inspect.ismodule(module)
            for name, value in vars(module).items()
            if inspect.iscoroutinefunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        }
        assert declared == set(proofs)


async def test_a_suite_as_a_whole():
    """A suite can be run at once: it passes on the engine, and reports every requirement that is not met on something else."""
    from carmy_engine.stores.memory import MemoryStore
    from carmy_engine.testing import RequirementError, check_store
    from tests.conformance.test_stores import memory

    await check_store(memory)

    class Forgetful(MemoryStore):
        async def release(self, identity, execution_id):
            return False

    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def forgetful(*, clock, retention, max_entries):
        yield Forgetful(clock=clock, retention=retention, max_entries=max_entries)

    with pytest.raises(ExceptionGroup) as caught:
        await check_store(forgetful)
    failures = caught.value.exceptions
    assert all(isinstance(failure, RequirementError) for failure in failures)
    assert "S-205: A released identity is free" in str(failures[0])
