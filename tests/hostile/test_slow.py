"""Peers that take their time, or all of ours: slow, endless, silent, many, and readers that stop."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
import trio.testing

from carmy_engine import Cause, MemorySink
from tests.hostile.siege import (
    HEALTH,
    LAST,
    RECOVERY_SECONDS,
    Siege,
    besieged,
    call,
    converse,
    front_end,
    no_fault,
    parse,
)
from tests.hostile.tools import ALL
from tests.support.http import Client, render

__all__ = ["front_end", "no_fault"]

FAST = {"header_timeout_secs": 0.3, "body_timeout_secs": 0.3}
EVENTS = {"accept": "text/event-stream"}
JSON = {"content-type": "application/json"}
DRIP_SECONDS = 0.02
DRIPS = 2000
"""Far more than fit into any of the limits."""


async def drip(siege: Siege, pieces: Iterable[bytes], *, start: bytes = b"") -> tuple[int, list[int]]:
    """Send pieces slowly until the server closes; return how many it took, and the statuses."""
    sent = 0
    async with siege.server.client() as client:
        await client.send(start)
        heard = b""
        with trio.fail_after(RECOVERY_SECONDS):
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    nonlocal sent
                    try:
                        for piece in pieces:
                            await client.send(piece)
                            sent += 1
                            await trio.sleep(DRIP_SECONDS)
                    except trio.BrokenResourceError:
                        pass

                nursery.start_soon(send)
                heard = await converse(client)
                nursery.cancel_scope.cancel()
    return sent, [answer.status for answer in parse(heard)]


SLOW = {
    "a request line": (b"", [b"G"] * DRIPS, [408]),
    "headers": (b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n", [b"a: b\r\n"] * 100, [408]),
    "one header": (b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-any: ", [b"a"] * DRIPS, [408]),
    "empty lines": (b"", [b"\r\n"] * DRIPS, []),
    "a second head": (HEALTH, [b"G"] * DRIPS, [200, 408]),
    "a body": (render("POST", "/agent/execute", {**JSON, "content-length": "9000"}), [b" "] * DRIPS, [408]),
    "a chunked body": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}),
        [b"1\r\n \r\n"] * DRIPS,
        [408],
    ),
    "a chunk's size": (render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}), [b"0"] * 19, [408]),
    "a chunk extension": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}) + b"5;",
        [b"a"] * DRIPS,
        [408],
    ),
    "trailers": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}) + b"1\r\n \r\n0\r\n",
        [b"a: b\r\n"] * DRIPS,
        [408],
    ),
    "a body that is told to come": (
        render("POST", "/agent/execute", {**JSON, "content-length": "9000", "expect": "100-continue"}),
        [b" "] * DRIPS,
        [100, 408],
    ),
}


@pytest.mark.parametrize("name", SLOW)
async def test_slow(name: str) -> None:
    """However steadily a message trickles in, its time limit holds."""
    start, pieces, statuses = SLOW[name]
    async with besieged(*ALL, http=FAST) as siege:
        sent, found = await drip(siege, pieces, start=start)
        assert found == statuses
        assert sent < DRIPS


SILENT = {
    "before anything": (b"", []),
    "in the head": (b"GET /health HTTP/1.1\r\n", [408]),
    "in the body": (render("POST", "/agent/execute", {**JSON, "content-length": "9000"}) + b"{", [408]),
    "instead of going on": (
        render("POST", "/agent/execute", {**JSON, "content-length": "9000", "expect": "100-continue"}),
        [100, 408],
    ),
    "in a chunk": (render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}) + b"5\r\n{", [408]),
}


@pytest.mark.parametrize("name", SILENT)
async def test_half_open(name: str) -> None:
    """A peer that is silent for good (its machine has gone) is given up."""
    data, statuses = SILENT[name]
    async with besieged(*ALL, http=FAST) as siege:
        assert [answer.status for answer in await siege.exchange(data)] == statuses


async def test_idle_after_an_answer() -> None:
    """A connection that is kept alive for nothing is closed."""
    async with besieged(*ALL, http={"keep_alive_secs": 0.3}) as siege:
        assert [answer.status for answer in await siege.exchange(HEALTH)] == [200]


def endless(piece: bytes) -> Iterable[bytes]:
    """64 MiB and more, in pieces."""
    for _ in range(1024):
        yield piece


ENDLESS = {
    "a chunked body": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}),
        b"10000\r\n" + b" " * 65536 + b"\r\n",
        413,
    ),
    "a body of known length": (
        render("POST", "/agent/execute", {**JSON, "content-length": "1048576000"}),
        b" " * 65536,
        413,
    ),
    "a body to nobody": (
        render("POST", "/nowhere", {**JSON, "transfer-encoding": "chunked"}),
        b"10000\r\n" + b" " * 65536 + b"\r\n",
        404,
    ),
    "a body of the wrong type": (
        render("POST", "/agent/execute", {"transfer-encoding": "chunked"}),
        b"10000\r\n" + b" " * 65536 + b"\r\n",
        400,
    ),
    "chunks of one byte": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}),
        b"1\r\n \r\n" * 11000,
        400,
    ),
    "trailers": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}) + b"0\r\n",
        b"a: b\r\n" * 11000,
        431,
    ),
    "a chunk extension": (
        render("POST", "/agent/execute", {**JSON, "transfer-encoding": "chunked"}) + b"5;",
        b"a" * 65536,
        431,
    ),
    "headers": (b"GET /health HTTP/1.1\r\n", b"a: b\r\n" * 11000, 431),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_endless(name: str) -> None:
    """An endless message is refused after a bounded part of it, and the answer arrives although the client still sends."""
    start, piece, status = ENDLESS[name]
    async with besieged(*ALL) as siege, siege.server.client() as client:
        await client.send(start)

        async def send() -> None:
            try:
                for data in endless(piece):
                    await client.send(data)
            except trio.BrokenResourceError:
                pass

        with trio.fail_after(RECOVERY_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                assert (await client.answer()).status == status
                nursery.cancel_scope.cancel()


STOPPED = {
    "a big answer": call("big", size=7_000_000),
    "a flood of parts": call("parts", EVENTS),
    "a big last event": call("big", EVENTS, size=7_000_000),
    "big answers in a row": call("big", size=2_000_000) * 8,
}


@pytest.mark.parametrize("name", STOPPED)
async def test_a_reader_that_stops(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A peer that takes nothing is cut off after the write limit, and its execution does not live on."""
    records = MemorySink()
    async with (
        besieged(*ALL, sinks=[records], http={"write_timeout_secs": 0.3}) as siege,
        siege.server.client() as client,
    ):
        await client.send(STOPPED[name])
        await client.until(b"\r\n\r\n")
        with trio.fail_after(RECOVERY_SECONDS):
            await siege.recovers_but_for(client)
        assert "took nothing" in caplog.text
        causes = [record.cause for record in records.newest() if record.tool == "parts"]
        assert causes == ([Cause.DISCONNECT] if "parts" in name else [])


async def test_a_reader_that_is_slow() -> None:
    """A peer that reads slowly, but does read, gets its whole answer: the limit is for no progress at all."""
    async with besieged(*ALL, http={"write_timeout_secs": 0.3}) as siege, siege.server.client() as client:
        await client.send(call("big", {"connection": "close"}, size=7_000_000))
        heard = b""
        with trio.fail_after(60):
            while data := await client.stream.receive_some(262_144):
                heard += data
                await trio.sleep(DRIP_SECONDS)
        (answer,) = parse(heard)
        assert len(answer.json["data"]) == 7_000_000


async def test_a_flood_of_reports_for_a_reader_that_stops() -> None:
    """Reports merge while no client reads: a tool that floods is not held up, and its last event still arrives."""
    async with besieged(*ALL) as siege, siege.server.client() as client:
        await client.send(call("reports", {**EVENTS, "connection": "close"}, count=200_000))
        with trio.fail_after(60):
            await client.until(b"tool.started")
            await siege.engine.wait_idle()
            rest = await converse(client)
        assert b"event: execution.completed" in rest


@pytest.mark.parametrize("silent", [b"", b"GET /hea", HEALTH], ids=["nothing", "half a head", "after an answer"])
async def test_idle_connections_at_the_cap(silent: bytes, front_end: str) -> None:
    """Idle connections that fill the server hold up the next client only until one goes; native answers for its health even then."""
    cap = 50
    async with besieged(*ALL, http={"max_connections": cap}) as siege:
        idle: list[Client] = []
        async with trio.open_nursery() as nursery:
            for _ in range(cap):
                client = Client(await trio.open_tcp_stream("127.0.0.1", siege.port))
                await client.send(silent)
                idle.append(client)
            if silent == HEALTH:
                for client in idle:
                    assert (await client.answer()).status == 200
            else:
                await trio.testing.wait_all_tasks_blocked()
            waiting = trio.Event()
            answered = trio.Event()

            async def next_client() -> None:
                async with siege.server.client() as client:
                    await client.send(LAST)
                    waiting.set()
                    assert (await client.answer()).status == 200
                    answered.set()

            nursery.start_soon(next_client)
            await waiting.wait()
            if front_end == "hypercorn":
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert not answered.is_set()
                await idle.pop().stream.aclose()
            with trio.fail_after(RECOVERY_SECONDS):
                await answered.wait()
        for client in idle:
            await client.stream.aclose()


async def test_idle_connections_make_room_by_themselves() -> None:
    """Silent connections that fill the server are closed at the time limit of a head, and the next client is served."""
    async with besieged(*ALL, http={"max_connections": 20, **FAST}) as siege:
        idle = [await trio.open_tcp_stream("127.0.0.1", siege.port) for _ in range(60)]
        await siege.health()
        for stream in idle:
            stream.socket.close()
