"""The published suite for stores of checkpoints.

With pytest, one test for each requirement::

    @pytest.mark.parametrize("check", CHECKPOINT_CHECKS, ids=str)
    async def test_checkpoints(check: CheckpointCheck) -> None:
        await check.run(open_my_store)
"""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from .._model.checkpoint import Checkpoint, RunStatus
from .._model.protocols import CheckpointStore
from ._suite import Check, Make, Suite

__all__ = ["CHECKPOINT_CHECKS", "CheckpointCheck", "check_checkpoints"]

CheckpointCheck = Check[CheckpointStore]

_suite: Suite[CheckpointStore] = Suite()


def _checkpoint(number: int, thread_id: str = "order-1", **changes: Any) -> Checkpoint:
    base = Checkpoint(
        graph="orders",
        thread_id=thread_id,
        number=number,
        run_id="run_1",
        status=RunStatus.RUNNING,
        node="reserve",
        saved_at=1_700_000_000.0 + number,
        document=b'{"text":"\xc3\xa9","n":1152921504606846977}',
    )
    return msgspec.structs.replace(base, **changes)


@_suite.check("C-101")
async def round_trip(store: CheckpointStore) -> None:
    """A saved checkpoint is given back unchanged, its document byte for byte."""
    for number, status in enumerate(RunStatus):
        mine = _checkpoint(number, status=status, node=None if number % 2 else "triage/look up")
        assert await store.save_checkpoint(mine) is True
        assert await store.latest_checkpoint("orders", "order-1") == mine


@_suite.check("C-102")
async def unknown(store: CheckpointStore) -> None:
    """A thread without checkpoints has none, and is not an error."""
    assert await store.latest_checkpoint("orders", "order-1") is None
    assert await store.checkpoints("orders", "order-1") == []


@_suite.check("C-103")
async def compare_and_set(store: CheckpointStore) -> None:
    """A number that is taken, or older than the newest, is refused with False and changes nothing."""
    first, second = _checkpoint(0), _checkpoint(1)
    assert await store.save_checkpoint(first)
    assert await store.save_checkpoint(second)
    assert await store.save_checkpoint(_checkpoint(1, run_id="run_2")) is False
    assert await store.save_checkpoint(_checkpoint(0, run_id="run_2")) is False
    assert await store.checkpoints("orders", "order-1") == [second, first]


@_suite.check("C-104")
async def one_wins(store: CheckpointStore) -> None:
    """Of several that save one number at the same time, exactly one gets True."""
    won: list[str] = []

    async def save(run_id: str) -> None:
        if await store.save_checkpoint(_checkpoint(0, run_id=run_id)):
            won.append(run_id)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(save, f"run_{number}")
    found = await store.latest_checkpoint("orders", "order-1")
    assert found is not None
    assert won == [found.run_id]


@_suite.check("C-105")
async def newest_first(store: CheckpointStore) -> None:
    """Checkpoints are listed newest first, up to the limit."""
    mine = [_checkpoint(number) for number in range(5)]
    for each in mine:
        assert await store.save_checkpoint(each)
    assert await store.checkpoints("orders", "order-1") == mine[::-1]
    assert await store.checkpoints("orders", "order-1", limit=2) == [mine[4], mine[3]]


@_suite.check("C-106")
async def apart(store: CheckpointStore) -> None:
    """Threads, and graphs with threads of one name, have numbers of their own."""
    mine = _checkpoint(0)
    other = _checkpoint(0, thread_id="order-2")
    namesake = _checkpoint(0, graph="refunds")
    for each in (mine, other, namesake):
        assert await store.save_checkpoint(each)
    assert await store.checkpoints("orders", "order-1") == [mine]
    assert await store.checkpoints("orders", "order-2") == [other]
    assert await store.checkpoints("refunds", "order-1") == [namesake]


@_suite.check("C-107")
async def cancelled(store: CheckpointStore) -> None:
    """A save whose caller is cancelled takes effect completely or not at all, and the store works on."""
    mine = _checkpoint(0)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.save_checkpoint(mine)
    assert await store.latest_checkpoint("orders", "order-1") in (None, mine)
    assert await store.save_checkpoint(_checkpoint(1))


CHECKPOINT_CHECKS: tuple[CheckpointCheck, ...] = tuple(_suite)
"""In the order of their identifiers."""


async def check_checkpoints(make: Make[CheckpointStore]) -> None:
    """Prove every requirement, each on a store that `make` opens, new and empty.

    Raises:
        ExceptionGroup: Of a `RequirementError` for each requirement that is not met.
    """
    await _suite.run(make)
