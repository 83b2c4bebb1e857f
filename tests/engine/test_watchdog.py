"""A task that holds the event loop is found and named."""

from __future__ import annotations

import logging
import sys
import threading

from carmy_engine._execution.watchdog import Watchdog, tool_on
from tests.engine.kit import bench, read


class Ear(logging.Handler):
    """Hears of stalls, in the watchdog's thread.

    Attributes:
        heard: What the log says of them.
        stalled: Set at the first one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self.stalled = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "holds the event loop" in record.getMessage():
            self.heard.append(record.getMessage())
            self.stalled.set()


async def test_a_tool_that_holds_the_loop_is_named():
    """A stall is counted and logged with the tool's name and what to do; the tool is not touched."""

    @read
    async def greedy() -> str:
        assert ear.stalled.wait(30)
        return "done"

    ear = Ear()
    logger = logging.getLogger("carmy.engine")
    logger.addHandler(ear)
    try:
        async with bench(greedy) as b:
            with Watchdog(stall_seconds=0.05) as watchdog:
                assert (await b.call("greedy")).data == "done"
    finally:
        logger.removeHandler(ear)
    assert watchdog.stalls >= 1
    assert "the tool greedy holds the event loop" in ear.heard[0]
    assert "plain def" in ear.heard[0]
    assert "in greedy" in ear.heard[0]


async def test_a_quiet_loop_is_no_stall():
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
