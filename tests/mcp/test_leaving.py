"""The end of a client's input, on a connection in memory."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from carmy_engine import Cause
from carmy_mcp.server.connection import LINGER_SECONDS
from tests.mcp.inside import KNOWS_TASKS, MODERN, Ran, connected


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_short_calls_before_the_end_of_input_are_answered(
    autojump_clock: trio.testing.MockClock, version: str
) -> None:
    """A script that writes its calls and closes its end gets every answer that takes less than `LINGER_SECONDS`."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=version) as client:
        sent = {await client.call("wait", {"name": str(number)}): str(number) for number in range(20)}
        await client.end()
        await trio.sleep(LINGER_SECONDS / 2)
        ran.go_on.set()
        answers = [await client.receive() for _ in sent]
        assert {answer["id"]: answer["result"]["structuredContent"]["name"] for answer in answers} == sent
        with pytest.raises(trio.EndOfChannel):
            await client.receive()


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_long_calls_are_cancelled_and_not_answered(autojump_clock: trio.testing.MockClock, version: str) -> None:
    """What still runs then is cancelled with the cause ``disconnect``, and nothing more is sent."""
    ran = Ran()
    async with connected(ran, capabilities=KNOWS_TASKS, version=version) as client:
        await client.call("wait", {"name": "x"})
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await client.end()
        with pytest.raises(trio.EndOfChannel):
            await client.receive()
        assert trio.current_time() - began == pytest.approx(LINGER_SECONDS, abs=0.01)
        assert ran.ended == ["x"]
        (record,) = client.engine.audit.newest()
        assert (record.error_code, record.cause) == ("CANCELLED", Cause.DISCONNECT)
