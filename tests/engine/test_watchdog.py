"""A task that holds the event loop is found and named."""

from __future__ import annotations

import sys
import threading

from carmy_engine._watchdog import Watchdog, tool_on
from tests.engine.kit import bench, read


async def test_a_tool_that_holds_the_loop_is_named(caplog):
    """A stall is counted and logged with the tool's name and what to do; the tool is not touched."""

    @read
    async def greedy() -> str:
        assert noticed.wait(30)
        return "done"

    noticed = threading.Event()

    class Watching(Watchdog):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "last_stalled":
                noticed.set()

    noticed.clear()
    async with bench(greedy) as b:
        with Watching(stall_seconds=0.05) as watchdog:
            noticed.clear()
            assert (await b.call("greedy")).data == "done"
    assert watchdog.stalls >= 1
    assert watchdog.last_stalled == "greedy"
    assert "the tool greedy holds the event loop" in caplog.text
    assert "plain def" in caplog.text


async def test_a_quiet_loop_is_no_stall(caplog):
    """Tools that wait, and threads that work, are no stall."""
    async with bench() as b:
        gate = b.gate()
        with Watchdog(stall_seconds=5) as watchdog:
            b.stage.open(gate)
            for name in ("read", "thread_read"):
                await b.call(name, {"then": "wait", "gate": gate})
        assert watchdog.stalls == 0
        assert b.engine.statistics().stalls == 0


def test_a_stack_without_a_tool():
    """A stack on which no tool runs names none."""
    assert tool_on(sys._getframe()) is None
    assert tool_on(None) is None
