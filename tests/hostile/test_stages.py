"""Peers that go away, in every way and at every stage of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from carmy_engine import Cause, MemorySink
from tests.hostile.siege import HEALTH, RECOVERY_SECONDS, Siege, besieged, call, converse, front_end, no_fault, parse
from tests.hostile.tools import ALL
from tests.support.http import Client, render

__all__ = ["front_end", "no_fault"]

EVENTS = {"accept": "text/event-stream"}
Stage = Callable[[Siege, Client], Awaitable[None]]
End = Callable[[Client], Awaitable[None]]


def sends(*parts: bytes) -> Stage:
    """The stage after these bytes."""

    async def stage(_: Siege, client: Client) -> None:
        for part in parts:
            await client.send(part)
            await trio.testing.wait_all_tasks_blocked()

    return stage


async def runs(siege: Siege, client: Client) -> None:
    await client.send(call("hold"))
    await siege.hold.reaches(1)


async def streams(siege: Siege, client: Client) -> None:
    await client.send(call("hold", EVENTS))
    await siege.hold.reaches(1)


async def streams_and_was_read(siege: Siege, client: Client) -> None:
    await streams(siege, client)
    await client.until(b"tool.started")


async def runs_with_a_request_behind(siege: Siege, client: Client) -> None:
    await client.send(call("hold") + call("echo") + HEALTH)
    await siege.hold.reaches(1)
    await trio.testing.wait_all_tasks_blocked()


async def runs_with_half_a_request_behind(siege: Siege, client: Client) -> None:
    await client.send(call("hold") + b"GET /heal")
    await siege.hold.reaches(1)
    await client.send(b"th")
    await trio.testing.wait_all_tasks_blocked()


async def runs_with_an_upgrade_that_is_declined(siege: Siege, client: Client) -> None:
    await client.send(call("hold", {"upgrade": "h2c", "connection": "upgrade"}))
    await siege.hold.reaches(1)


async def streams_parts_to_nobody(siege: Siege, client: Client) -> None:
    await client.send(call("parts", EVENTS))
    await client.until(b"tool.started")
    await trio.testing.wait_all_tasks_blocked(0.05)


async def gets_a_big_answer(siege: Siege, client: Client) -> None:
    await client.send(call("big", size=6_000_000))
    await client.until(b"\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked(0.05)


async def has_its_answer(siege: Siege, client: Client) -> None:
    assert (await client.call("echo")).status == 200


async def has_its_answer_and_half_the_next(siege: Siege, client: Client) -> None:
    await has_its_answer(siege, client)
    await client.send(b"POST /agent/exec")


async def was_told_to_go_on(siege: Siege, client: Client) -> None:
    await client.send(render("POST", "/agent/execute", EXPECT))
    await client.until(b"100 ")


EXPECT = {"content-type": "application/json", "content-length": "15", "expect": "100-continue"}
CHUNKED = {"content-type": "application/json", "transfer-encoding": "chunked"}
POST = render("POST", "/agent/execute", {"content-type": "application/json", "content-length": "15"})

BEFORE: dict[str, Stage] = {
    "before anything": sends(),
    "in the request line": sends(b"GET /hea"),
    "in a header": sends(b"GET /health HTTP/1.1\r\nhos"),
    "before the blank line": sends(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"),
    "before the body": sends(POST),
    "in the body": sends(POST, b'{"tool"'),
    "in a chunk's size": sends(render("POST", "/agent/execute", CHUNKED) + b"f"),
    "in a chunk": sends(render("POST", "/agent/execute", CHUNKED) + b'f\r\n{"tool"'),
    "before the last chunk": sends(render("POST", "/agent/execute", CHUNKED) + b'f\r\n{"tool":"echo"}\r\n'),
    "told to go on": was_told_to_go_on,
    "in a body that nobody reads": sends(render("POST", "/health", {"content-length": "100"}), b"x"),
    "in a big body that nobody reads": sends(render("POST", "/health", {"content-length": "9000000"}), b"x" * 500_000),
}
DURING: dict[str, Stage] = {
    "while the call runs": runs,
    "while the call runs with events": streams,
    "after the first events": streams_and_was_read,
    "with requests behind the running one": runs_with_a_request_behind,
    "with half a request behind the running one": runs_with_half_a_request_behind,
    "with an upgrade that was declined": runs_with_an_upgrade_that_is_declined,
}
AFTER: dict[str, Stage] = {
    "in a flood of events": streams_parts_to_nobody,
    "in a big answer": gets_a_big_answer,
    "after the answer": has_its_answer,
    "in the next request": has_its_answer_and_half_the_next,
    "after the refusal": sends(b"nonsense\r\n\r\n"),
}
STAGES = BEFORE | DURING | AFTER


async def reset(client: Client) -> None:
    client.reset()


async def close(client: Client) -> None:
    await client.stream.aclose()


async def half_close(client: Client) -> None:
    """Say that nothing more comes, and read on: the server must close by itself."""
    await client.stream.send_eof()
    with trio.fail_after(RECOVERY_SECONDS):
        rest = await converse(client)
    if client.buffer.startswith(b"HTTP") or rest.startswith(b"HTTP"):  # otherwise the beginning has been read
        parse(client.buffer + rest, cut=True)


ENDS: dict[str, End] = {"reset": reset, "close": close, "half-close": half_close}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("stage", STAGES)
async def test_gone(stage: str, end: str) -> None:
    """A peer that goes away leaves no connection, task or execution behind, and what it had begun is cancelled."""
    records = MemorySink()
    async with besieged(*ALL, sinks=[records]) as siege:
        async with siege.server.client() as client:
            await STAGES[stage](siege, client)
            await ENDS[end](client)
            with trio.fail_after(RECOVERY_SECONDS):
                await siege.hold.reaches(0)
                await siege.engine.wait_idle()
        found = [(record.tool, record.cause) for record in records.newest()]
        if stage in DURING:
            assert found == [("hold", Cause.DISCONNECT)]
        elif stage == "in a flood of events":
            assert found == [("parts", Cause.DISCONNECT)]
        else:
            assert all(cause is None for _, cause in found)


@pytest.mark.parametrize("end", ["reset", "close"])
async def test_all_stages_at_once(end: str) -> None:
    """Many peers that go away together affect no other peer."""
    async with besieged(*ALL) as siege, siege.busy() as busy:

        async def peer(stage: Stage) -> None:
            async with siege.server.client() as client:
                await stage(siege, client)
                await ENDS[end](client)

        async with trio.open_nursery() as nursery:
            for stage in [*BEFORE.values(), *AFTER.values()]:
                nursery.start_soon(peer, stage)
        assert siege.hold.running == 1
        busy.reset()


async def test_sends_after_a_reset() -> None:
    """An execution that ends while its client's reset is on the way is not written, without any fault."""
    async with besieged(*ALL) as siege:
        for _ in range(50):
            async with siege.server.client() as client:
                await client.send(call("reports", EVENTS, count=20))
                client.reset()
        await siege.health()


async def test_a_request_behind_a_running_one_waits() -> None:
    """Pipelined requests are answered in order, one after the other, and only once."""
    async with besieged(*ALL) as siege, siege.server.client() as client:
        await client.send(
            call("echo", text="a") + HEALTH + call("echo", text="b") + render("GET", "/", {"connection": "close"})
        )
        answers = parse(await converse(client))
        assert [answer.status for answer in answers] == [200, 200, 200, 404]
        assert [answers[0].json["data"], answers[2].json["data"]] == ["a", "b"]


async def test_many_requests_behind_each_other() -> None:
    """A thousand pipelined requests get a thousand answers."""
    async with besieged(*ALL) as siege, siege.server.client() as client:
        answers = parse(await converse(client, HEALTH * 1000 + render("GET", "/", {"connection": "close"})))
        assert [answer.status for answer in answers] == [200] * 1000 + [404]


async def test_a_flood_behind_a_running_request() -> None:
    """Pipelining has a limit: a flood behind a running call ends the connection, and the call with it."""
    records = MemorySink()
    async with besieged(*ALL, sinks=[records]) as siege:
        async with siege.busy() as client:
            await converse(client, *[HEALTH * 1000] * 10)
            await siege.hold.reaches(0)
        await siege.engine.wait_idle()
        assert [record.cause for record in records.newest()] == [Cause.DISCONNECT]
