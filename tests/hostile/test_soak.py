"""Many peers, one after the other: what each leaves behind must be nothing."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from carmy_engine import Cause, ExecutionRecord, ExecutionRequest
from tests.hostile.siege import HEALTH, RECOVERY_SECONDS, Siege, besieged, call, converse, no_fault
from tests.hostile.test_killers import KILLERS
from tests.hostile.tools import ALL

__all__ = ["no_fault"]

EVENTS = {"accept": "text/event-stream"}
ARGUMENTS = {"text": "a" * 1000}
TOGETHER = 20
MAX_GROWTH_BYTES = 256 * 1024
"""Between the first round and the last; one connection that stays costs about a tenth of it."""


RECORD_BYTES = 500
"""Of one record that a test keeps, about."""


class Records(list[ExecutionRecord]):
    """A sink that keeps everything."""

    record = list.append


@pytest.fixture
def memory() -> Iterator[None]:
    """Memory is traced."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def used() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def fill_memories(siege: Siege, request: ExecutionRequest, *, dropped: bool = False) -> None:
    """Bring the engine's own memories of ended executions to their limits, so that they grow no more."""
    for _ in range(1100):
        with trio.CancelScope() as scope:
            if dropped:
                scope.cancel()
            await siege.engine.execute(request)


async def dropped(siege: Siege, number: int) -> bool:
    """Call, and go away at a random moment. True when the call was seen to run before."""
    rng = random.Random(number)
    headers = EVENTS if rng.random() < 0.5 else {}
    data = call("hold", headers, number=number)
    moment = rng.choice(["sending", "sent", "soon", "running", "reading"])
    seen = False
    async with siege.server.client() as client:
        if moment == "sending":
            await client.send(data[: rng.randrange(len(data))])
        else:
            await client.send(data)
        if moment == "soon":
            for _ in range(rng.randrange(30)):
                await trio.lowlevel.checkpoint()
        elif moment == "running":
            await siege.hold.begins(number)
            seen = True
        elif moment == "reading" and headers:
            await client.until(b"tool.started")
            seen = True
        if rng.random() < 0.5:
            client.reset()
    return seen


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("calls", [300, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_dropped_calls(calls: int) -> None:
    """Calls that are dropped at random moments end with the cause ``disconnect``, and leave nothing behind."""
    records = Records()
    async with besieged(*ALL, sinks=[records]) as siege:
        await fill_memories(siege, ExecutionRequest(tool="hold"), dropped=True)
        records.clear()
        seen = 0
        sizes: list[int] = []

        async def drop(number: int) -> None:
            nonlocal seen
            with trio.fail_after(RECOVERY_SECONDS):
                was_seen = await dropped(siege, number)
            seen += was_seen

        for first in range(1, calls + 1, TOGETHER):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + TOGETHER):
                    nursery.start_soon(drop, number)
            await siege.recovers()
            sizes.append(used() - len(records) * RECORD_BYTES)
        assert len(records) >= siege.hold.begun >= seen > calls // 10
        assert {record.cause for record in records} == {Cause.DISCONNECT}
        assert {record.error_code for record in records} == {"CANCELLED"}
        assert sizes[-1] - sizes[len(sizes) // 3] < MAX_GROWTH_BYTES


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_killers_over_and_over(rounds: int) -> None:
    """Memory stays flat under requests that are refused."""
    async with besieged(*ALL) as siege:
        await fill_memories(siege, ExecutionRequest(tool="hold"), dropped=True)
        sizes: list[int] = []
        for _ in range(rounds):
            async with trio.open_nursery() as nursery:
                for killer in KILLERS.values():
                    parts = (killer.data,) if isinstance(killer.data, bytes) else killer.data
                    nursery.start_soon(siege.exchange, *parts)
            await siege.recovers()
            sizes.append(used())
        assert sizes[-1] - sizes[1] < MAX_GROWTH_BYTES


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_keep_alive(rounds: int) -> None:
    """Memory stays flat on connections that are used again and again."""
    async with besieged(*ALL) as siege:
        await fill_memories(siege, ExecutionRequest(tool="echo", arguments=ARGUMENTS))
        sizes: list[int] = []
        async with siege.server.client() as client:
            for _ in range(rounds):
                for _ in range(40):
                    assert (await client.call("echo", arguments=ARGUMENTS)).status == 200
                    assert (await client.call("echo", EVENTS, arguments=ARGUMENTS)).status == 200
                    assert (
                        await client.request("POST", "/agent/execute", {"content-type": "text/plain"}, b"x")
                    ).status == 400
                    await client.send(HEALTH * 2)
                    assert [(await client.answer()).status for _ in range(2)] == [200, 200]
                sizes.append(used())
        assert sizes[-1] - sizes[1] < MAX_GROWTH_BYTES


@pytest.mark.usefixtures("memory")
async def test_memory_of_many_small_chunks() -> None:
    """A body in tiny pieces takes memory for its bytes, not for its pieces."""
    body = b'{"tool":"echo","arguments":{"text":"%b"}}' % (b"a" * 15_000)
    data = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = b"POST /agent/execute HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    async with besieged(*ALL) as siege:
        await siege.health()
        before = used()
        tracemalloc.reset_peak()
        async with siege.server.client() as client:
            heard = await converse(client, head + b"transfer-encoding: chunked\r\n\r\n" + data)
        assert heard.startswith(b"HTTP/1.1 200 ")
        assert tracemalloc.get_traced_memory()[1] - before < 8 * 1024 * 1024


async def test_connections_that_come_and_go() -> None:
    """A thousand connections that say nothing, or something, and go at once leave nothing behind."""
    async with besieged(*ALL) as siege, siege.busy() as busy:
        for round_number in range(20):
            async with trio.open_nursery() as nursery:

                async def visit(number: int) -> None:
                    async with siege.server.client() as client:
                        if number % 3:
                            await client.send(HEALTH[: number % 2 * 100])
                        if number % 5:
                            client.reset()

                for number in range(50):
                    nursery.start_soon(visit, number + round_number)
        assert siege.hold.running == 1
        busy.reset()
