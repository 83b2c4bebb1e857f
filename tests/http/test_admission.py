"""The order in which requests begin on the front end on hypercorn."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from carmy_http.hypercorn.admission import MAX_PER_ROUND, Admission


@pytest.fixture
def server() -> None:
    """Not one front end or the other: this is a part of one."""


class Rounds(trio.abc.Instrument):
    """Counts rounds of the scheduler."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def begun(admission: Admission, firsts: list[bool]) -> list[tuple[int, int]]:
    """Let requests ask together; the round and the number of each, in the order in which they begin."""
    rounds = Rounds()
    order: list[tuple[int, int]] = []

    async def request(number: int, is_first: bool) -> None:
        await admission.begin(is_first=is_first)
        order.append((rounds.count, number))

    trio.lowlevel.add_instrument(rounds)
    try:
        async with trio.open_nursery() as nursery:
            for number, is_first in enumerate(firsts):
                nursery.start_soon(request, number, is_first)
    finally:
        trio.lowlevel.remove_instrument(rounds)
    return order


async def test_few_begin_in_one_round() -> None:
    """However many ask, only a few begin before other tasks have their turn, and none is forgotten."""
    order = await begun(Admission(), [False] * 50)
    assert {number for _, number in order} == set(range(50))
    for round_ in {round_ for round_, _ in order}:
        assert sum(other == round_ for other, _ in order) <= MAX_PER_ROUND


async def test_the_first_request_of_a_connection_goes_first() -> None:
    """A new connection waits for those that have begun, and for no other one that waits."""
    firsts = [False] * 50 + [True]
    order = [number for _, number in await begun(Admission(), firsts)]
    assert order.index(50) < 2 * MAX_PER_ROUND  # tasks of one round run in any order


async def test_a_request_alone_does_not_wait() -> None:
    """With nothing else to do, beginning is no checkpoint."""
    admission = Admission()
    for _ in range(3):
        with trio.testing.assert_no_checkpoints():
            await admission.begin(is_first=False)
        await trio.testing.wait_all_tasks_blocked()


async def test_a_request_that_is_cancelled_while_it_waits_leaves_its_turn() -> None:
    """A connection that closes while its request waits holds up no other one."""
    admission = Admission()
    with trio.move_on_after(0) as scope:
        for _ in range(MAX_PER_ROUND + 1):
            await admission.begin(is_first=False)
    assert scope.cancelled_caught
    with trio.fail_after(5):
        for _ in range(3 * MAX_PER_ROUND):
            await admission.begin(is_first=False)
