"""Faults of trio's nurseries that would let one tool end the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
import trio.testing

from carmy_engine._execution.trio_internals import install_nursery_guards
from tests.boundary.escapes import Unprintable, Unspeakable
from tests.engine.kit import bench, code, read
from tests.support.plain_trio import needs_internals

pytestmark = needs_internals

UNSPOKEN = [Unprintable(), Unspeakable()]


@pytest.fixture(autouse=True)
def installed() -> None:
    install_nursery_guards()


@pytest.mark.parametrize("error", UNSPOKEN, ids=lambda error: type(error).__name__)
async def test_a_child_may_raise_what_has_no_repr(error: BaseException) -> None:
    """An exception whose ``__repr__`` raises leaves the nursery of its task like any other, and the siblings are cancelled."""

    async def child() -> None:
        raise error

    caught: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(child)
    except BaseExceptionGroup as group:
        caught.extend(group.exceptions)
    assert len(caught) == 1
    assert caught[0] is error


@pytest.mark.parametrize("error", UNSPOKEN, ids=lambda error: type(error).__name__)
async def test_a_block_may_raise_what_has_no_repr(error: BaseException) -> None:
    """The same for the block of a nursery, which is left in order: no task runs on, and the caller can open another one."""
    before = trio.lowlevel.current_task().child_nurseries
    caught: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error
    except BaseExceptionGroup as group:
        caught.extend(group.exceptions)
    assert len(caught) == 1
    assert caught[0] is error
    assert trio.lowlevel.current_task().child_nurseries == before


class Unclassified(Exception):
    """An exception whose class cannot be asked for."""

    @property  # type: ignore[misc]  # the point
    def __class__(self) -> type:
        raise SystemExit(3)


@read
async def hides_its_class() -> str:
    """Raise in two tasks of a nursery, one of them in a scope of its own."""

    async def child() -> None:
        raise Unclassified

    async def child_in_a_scope() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            finally:
                raise Unclassified  # in place of the cancel

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        nursery.start_soon(child_in_a_scope)
    return "done"


async def test_a_child_may_raise_what_hides_its_class() -> None:
    """An exception whose ``__class__`` raises ``SystemExit`` ends its call, and not the loop."""
    async with bench(hides_its_class) as b:
        for _ in range(2):
            assert await b.code("hides_its_class") == "TOOL_PANIC"


async def _ticks() -> AsyncGenerator[int, None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        while True:
            yield 0


kept: list[AsyncGenerator[int, None]] = []


@read
async def breaks(*, waits: bool) -> str:
    """Leave a loop over a generator that has a nursery, which trio then closes in another task."""
    async for _ in _ticks():
        break
    if waits:
        await trio.testing.wait_all_tasks_blocked()
    return "done"


@read
async def keeps() -> str:
    """Leave such a generator open."""
    kept.append(_ticks())
    await anext(kept[-1])
    return "done"


# The generator is collected before its end, which trio warns about.
@pytest.mark.filterwarnings("ignore:Async generator")
@pytest.mark.parametrize(("tool", "arguments"), [(breaks, {"waits": True}), (breaks, {"waits": False}), (keeps, {})])
async def test_a_generator_that_is_abandoned_with_its_nursery(
    tool: object, arguments: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    """The call is ``TOOL_PANIC``. Its tasks end; the caller's task and its nurseries go on as before."""
    async with bench(breaks, keeps) as b:
        before = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            for _ in range(3):
                assert code(await b.call(tool.__name__, arguments)) == "TOOL_PANIC"  # type: ignore[attr-defined] # a function
                kept.clear()
                await trio.testing.wait_all_tasks_blocked()
                assert trio.lowlevel.current_task().child_nurseries[-1] is nursery
                assert trio.lowlevel.current_statistics().tasks_living == before + 1
            nursery.cancel_scope.cancel()
