"""Writing the events of streams on the native front end."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from carmy_engine import (
    AgentContext,
    BoundEngine,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionStarted,
    HttpSettings,
    ToolProgress,
    tool,
)
from carmy_engine._execution.execution import Caller, Execution
from carmy_engine.transport import RateLimitedLogger
from carmy_http.api import event_response
from carmy_http.api import event_response as _sse
from carmy_http.message import Disconnected, Request
from carmy_http.native.event_writer import MAX_AT_ONCE, EventSink, EventWriter
from tests.http.test_stream import EVENTS, parse, start
from tests.http.tools import echo, progress
from tests.support.http import front_end, serving

HEARTBEAT_SECONDS = 5.0

QUIET = 6.0
"""Seconds; longer than `HEARTBEAT_SECONDS`, shorter than a write may take."""


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    """The front end of these tests."""
    token = front_end.set("native")
    yield
    front_end.reset(token)


class Client:
    """What a client has been told through a sink, and whether it was given up."""

    def __init__(self, writer: EventWriter) -> None:
        ours, self._theirs = socket.socketpair()
        for sock in (ours, self._theirs):
            sock.setblocking(False)
        self.sock = ours
        self.given_up = 0
        self._begun = False
        self.sink = EventSink(writer, ours, self._frame, self._give_up)
        self.execution = Execution("exec_1", "t", None, Caller(context=AgentContext()), None, trio.current_time)

    def _frame(self, data: bytes) -> bytes:
        before, self._begun = b"" if self._begun else b"HEAD ", True
        return before + data

    def _give_up(self) -> None:
        self.given_up += 1

    async def part(self, size: int) -> None:
        await self.sink.put_partial(self.execution, b'"%b"' % (b"x" * size))

    async def told(self) -> bytes:
        """What has come, all that is on its way included."""
        found = b""
        while True:
            await wait_all_tasks_blocked()
            try:
                found += self._theirs.recv(1 << 20)
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.sock.close()
        self._theirs.close()


@asynccontextmanager
async def telling(count: int = 1) -> AsyncIterator[tuple[EventWriter, list[Client]]]:
    writer = EventWriter(
        RateLimitedLogger(logging.getLogger("carmy.http")), HttpSettings(heartbeat_secs=HEARTBEAT_SECONDS), 256 * 1024
    )
    clients = [Client(writer) for _ in range(count)]
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            yield writer, clients
            nursery.cancel_scope.cancel()
    finally:
        for client in clients:
            client.close()


async def test_a_quick_call_is_told_in_one_packet() -> None:
    """Head, events and end of a call that waits for nothing leave together."""
    async with serving(echo) as server, server.client() as client:
        with trio.fail_after(5):
            await start_without_head(client)
            received = await client.stream.receive_some(65536)
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"\r\n0\r\n\r\n")
    assert received.count(b"event: ") == 4


async def start_without_head(client: Any) -> None:
    body = b'{"tool":"echo"}'
    head = (
        "POST /agent/execute HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    await client.send(head.encode() + body)


async def test_each_is_told_of_its_own_silence(mock_clock: MockClock) -> None:
    """A heartbeat comes when nothing has been sent for so long, to each client by its own clock."""
    async with telling(2) as (_, (one, other)):
        one.sink.put(ExecutionStarted, one.execution)
        other.sink.put(ExecutionStarted, other.execution)
        assert (await one.told()).startswith(b"HEAD event: execution.started\n")
        assert (await other.told()).startswith(b"HEAD event: execution.started\n")
        mock_clock.jump(3)
        other.sink.put(ToolProgress, other.execution, progress=1)
        assert (await other.told()).startswith(b"event: tool.progress\n")
        mock_clock.jump(3)
        assert (await one.told(), await other.told()) == (event_response.HEARTBEAT, b"")
        mock_clock.jump(3)
        assert (await one.told(), await other.told()) == (b"", event_response.HEARTBEAT)


async def test_nothing_gets_into_a_piece_that_is_on_its_way(mock_clock: MockClock) -> None:
    """A client that takes a large part slowly gets no heartbeat in its middle, and what happens meanwhile after it."""
    async with telling() as (_, (client,)):
        await client.part(4_000_000)
        await wait_all_tasks_blocked()
        mock_clock.jump(QUIET)
        await client.part(10)
        client.sink.put(ToolProgress, client.execution, progress=1)
        mock_clock.jump(1)
        data = await client.told()
        assert client.given_up == 0
        mock_clock.jump(QUIET)
        assert await client.told() == event_response.HEARTBEAT
    assert data.startswith(b"HEAD event: tool.progress\n")
    events = parse(data.removeprefix(b"HEAD "))
    assert [len(payload["partial"]) for _, payload, _ in events[:2]] == [4_000_000, 10]
    assert events[2][1]["progress"] == 1
    assert [seq for _, _, seq in events] == [0, 1, 2]
    assert event_response.HEARTBEAT not in data


async def test_what_is_taken_is_bounded() -> None:
    """A tool waits for a client that reads nothing after a bounded number of bytes, and goes on when it reads."""
    async with telling() as (_, (client,)), trio.open_nursery() as nursery:
        done = 0

        async def work() -> None:
            nonlocal done
            for _ in range(1000):
                await client.part(10_000)
                done += 1

        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        assert done < 200
        data = await client.told()
        assert done == 1000
    assert len(parse(data.removeprefix(b"HEAD "))) == 1000


async def test_a_client_that_takes_nothing_is_given_up(mock_clock: MockClock) -> None:
    """A write without progress for its time limit ends the call and the connection."""
    async with telling() as (_, (client,)):
        await client.part(4_000_000)
        await wait_all_tasks_blocked()
        assert client.given_up == 0
        mock_clock.jump(11)
        await wait_all_tasks_blocked()
        assert client.given_up == 1


async def test_nothing_is_written_once_a_call_is_over(mock_clock: MockClock) -> None:
    """A call that has ended gets no heartbeat, and a socket that has been closed under its writer is no fault."""
    async with telling(2) as (writer, (one, other)):
        one.sink.put(ExecutionStarted, one.execution)
        await one.told()
        one.sink.close()
        writer.discard(one.sink)
        await other.part(4_000_000)
        await wait_all_tasks_blocked()
        trio.lowlevel.notify_closing(other.sock)
        other.sock.close()
        mock_clock.jump(QUIET)
        assert await one.told() == b""
        assert (one.given_up, other.given_up) == (0, 1)


async def test_an_end_does_not_hide_what_is_missing(mock_clock: MockClock) -> None:
    """A call that ends after its client was given up leaves nothing to be sent, and nothing is kept for that client."""
    ending = trio.Event()

    class Call:
        execute_into = None

        async def while_connected(self, *_: object) -> None:
            await client.part(4_000_000)
            await ending.wait()
            await client.part(200_000)
            await client.part(200_000)  # waits for nobody

    async with telling() as (_, (client,)), trio.open_nursery() as nursery:
        left: list[str] = []

        async def follow() -> None:
            try:
                await client.sink.execute(
                    cast("Request", Call()), cast("BoundEngine", Call()), ExecutionRequest(tool="t")
                )
            except Disconnected:
                left.append("nothing")

        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        mock_clock.jump(11)
        await wait_all_tasks_blocked()
        assert client.given_up == 1
        ending.set()
        await wait_all_tasks_blocked()
        assert left == ["nothing"]
        await client.told()
        mock_clock.jump(QUIET + HEARTBEAT_SECONDS)
        assert await client.told() == b""


async def test_a_report_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A stream whose event cannot be written breaks off without a proper end, even if its call ends at once; others go on."""
    going_on = trio.Event()
    frame = event_response.frame

    def fails(event: ExecutionEvent) -> bytes:
        if isinstance(event, ToolProgress):
            raise ValueError("no words for it")
        return frame(event)

    monkeypatch.setattr(_sse, "frame", fails)

    @tool(effect="none", parallel_safe=True, register=False)
    async def odd(ctx: AgentContext, then: str) -> None:
        """Report, and wait, or end as soon as it has been told."""
        await wait_all_tasks_blocked()
        ctx.progress.report(1)
        if then == "wait":
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()

    @tool(effect="none", parallel_safe=True, register=False)
    async def waits() -> str:
        """Wait to be told."""
        await going_on.wait()
        return "told"

    async with serving(odd, waits, progress) as server, server.client() as one:
        with trio.fail_after(10):
            await start(one, "waits")
            for then in ("wait", "end"):
                async with server.client() as other:
                    await start(other, "odd", then=then)
                    received = other.buffer
                    while data := await other.stream.receive_some(65536):
                        received += data
                assert b"0\r\n\r\n" not in received
            going_on.set()
            body = b"".join([chunk async for chunk in one.chunks()])
            assert parse(body)[-1][1]["data"] == "told"
            assert (await server.call("waits", EVENTS)).status == 200
            await server.engine.wait_idle()
        assert "disconnect" in {record.cause for record in server.engine.audit.newest() if record.tool == "odd"}
    assert caplog.text.count("a stream broke off") == 2


class Counted(EventSink):
    """A sink that counts instead of writing."""

    def __init__(self, writer: EventWriter, told: list[str]) -> None:
        self._writer = writer
        self._told = told

    def write(self) -> None:
        self._told.append("news")
        self._writer.expect_heartbeat(self)

    def send_heartbeat(self) -> None:
        self._told.append("heartbeat")
        self._writer.expect_heartbeat(self)


async def test_many_at_once_leave_others_their_turn(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    """News for a thousand clients, or a thousand heartbeats, are written a few at a time, and all of them."""
    writer = EventWriter(
        RateLimitedLogger(logging.getLogger("carmy.http")), HttpSettings(heartbeat_secs=HEARTBEAT_SECONDS), 256 * 1024
    )
    await nursery.start(writer.run)
    told: list[str] = []
    for _ in range(1000):
        Counted(writer, told).has_news()
    for kind in ("news", "heartbeat"):
        before = 0
        while len(told) < 1000:
            await trio.lowlevel.checkpoint()
            assert len(told) - before <= 2 * MAX_AT_ONCE  # tasks take turns in any order
            before = len(told)
        await wait_all_tasks_blocked()
        assert told == [kind] * 1000
        told.clear()
        mock_clock.jump(HEARTBEAT_SECONDS)
