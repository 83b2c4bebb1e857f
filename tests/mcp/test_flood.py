"""A client that asks for more than it reads."""

from __future__ import annotations

import trio
import trio.testing
from mcp import types

from carmy_engine import App
from tests.mcp.inside import Ran, connected


async def test_more_calls_than_a_connection_may_have() -> None:
    """One too many is refused under its own id; other requests and calls after an answer are taken as ever."""
    ran = Ran()
    async with connected(ran, limits={"max_calls": 3, "max_requests": 4}) as client:
        sent = [await client.call("wait", {"name": f"{number}"}) for number in range(4)]
        refused = await client.receive()
        assert (refused["id"], refused["error"]["code"]) == (sent[3], types.INTERNAL_ERROR)
        error = refused["error"]["data"]["error"]
        assert (error["code"], error["retryable"], error["retry_after"]) == ("OVERLOADED", True, 1)
        assert await client.outcome("ping") == {}
        ran.go_on.set()
        assert {(await client.receive())["id"] for _ in range(3)} == set(sent[:3])
        assert (await client.result("wait", {"name": "last"}))["structuredContent"] == {"name": "last"}
    assert sorted(ran.names) == ["0", "1", "2", "last"]


async def test_a_flood_of_requests_that_nobody_reads_the_answers_of() -> None:
    """The server stops reading at its limit, so that they wait where they come from; once it is read, each has its answer."""
    app = App("large")

    @app.tool(effect="none", description="x" * 200_000)
    async def large() -> None:
        """Replaced."""

    async with connected(Ran(), app=app, limits={"max_requests": 20}) as client, trio.open_nursery() as nursery:
        sent: set[int] = set()

        async def flood() -> None:
            while len(sent) < 200:
                sent.add(await client.request("tools/list"))

        nursery.start_soon(flood)
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert 20 < len(sent) < 50
        answered = {(await client.receive())["id"] for _ in range(200)}
        assert answered == sent
