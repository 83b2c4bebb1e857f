"""Plain functions that never come back."""

from __future__ import annotations

import pytest
import trio

from tests.hostile.siege import RECOVERY_SECONDS, Siege, besieged, call, no_fault
from tests.hostile.tools import ALL, Block
from tests.support.http import Answer

__all__ = ["no_fault"]

EVENTS = {"accept": "text/event-stream"}


async def blocked(siege: Siege, count: int) -> list[Answer]:
    """The answers to so many calls of the tool that holds its thread, made at once."""
    answers: list[Answer] = []

    async def one() -> None:
        answers.append(await siege.server.call("block", timeout_ms=500))

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)
    return answers


async def keep_healthy(siege: Siege, probes: list[int], *, task_status: trio.TaskStatus[None]) -> None:
    """Ask for health again and again, on one connection."""
    async with siege.server.client() as client:
        task_status.started()
        while True:
            with trio.fail_after(RECOVERY_SECONDS):
                probes.append((await client.request("GET", "/health")).status)


@pytest.mark.parametrize("count", [60, 150])
async def test_threads_that_are_stuck(count: int) -> None:
    """Threads that outlive their deadlines delay no call: a quick function runs at once, or is refused at once."""
    block = Block()
    async with besieged(block.tool(), *ALL) as siege:
        try:
            probes: list[int] = []
            async with trio.open_nursery() as nursery:
                await nursery.start(keep_healthy, siege, probes)
                with trio.fail_after(RECOVERY_SECONDS):
                    answers = await blocked(siege, count)
                assert {answer.code for answer in answers} <= {"TIMEOUT", "OVERLOADED"}
                phases = [answer.json["error"]["details"]["phase"] for answer in answers if answer.status == 504]
                stuck = siege.engine.statistics().stuck_threads
                assert phases.count("running") == stuck == min(count, 64)
                with trio.fail_after(RECOVERY_SECONDS):
                    quick = await siege.server.call("quick")
                    echo = await siege.server.call("echo")
                assert echo.status == 200
                if stuck < 64:
                    assert quick.json["data"] == "quick"
                else:
                    assert (quick.status, quick.code) == (503, "OVERLOADED")
                    assert quick.json["error"]["retryable"]
                    assert int(quick.headers["retry-after"]) > 0
                nursery.cancel_scope.cancel()
            assert len(probes) > 10
            assert set(probes) == {200}
        finally:
            block.released.set()
        with trio.fail_after(RECOVERY_SECONDS):
            while (await siege.server.call("quick")).code == "OVERLOADED":
                pass


async def test_callers_of_stuck_threads_who_go_away() -> None:
    """A caller that leaves a stuck thread behind costs no connection; the thread is counted until it ends."""
    block = Block()
    async with besieged(block.tool(), *ALL) as siege:
        try:
            async with trio.open_nursery() as nursery:

                async def leave(number: int) -> None:
                    async with siege.server.client() as client:
                        await client.send(call("block", EVENTS))
                        await client.until(b"tool.started")
                        client.reset()

                for number in range(10):
                    nursery.start_soon(leave, number)
            with trio.fail_after(RECOVERY_SECONDS):
                await siege.engine.wait_idle()
            assert siege.engine.statistics().stuck_threads == 10
            await siege.health()
        finally:
            block.released.set()
