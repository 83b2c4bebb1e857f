"""Processes that are told to end while they have much to do, and peers that do not want them to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.hostile.siege import call, converse, parse
from tests.support.http import Answer, Client, render

EVENTS = {"accept": "text/event-stream"}
END_SECONDS = 20.0
"""For a process to end. The limits under test add up to 5 s at most: draining, closing, and flushing."""


class Loaded:
    """A serving process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.port = 0
        self._said = b""

    async def says(self, what: bytes, count: int = 1) -> bytes:
        """Read its output until a line has come so often; return the last of these lines."""
        assert self.process.stdout is not None
        line = b""
        with trio.fail_after(END_SECONDS):
            while count:
                while b"\n" not in self._said:
                    data = await self.process.stdout.receive_some()
                    assert data, "it ended"
                    self._said += data
                line, _, self._said = self._said.partition(b"\n")
                count -= what in line
        return line

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            yield Client(stream)
        finally:
            stream.socket.close()

    async def ends(self) -> int:
        """The exit code."""
        with trio.fail_after(END_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def loaded(drain_timeout: float, *, descriptors: int = 0) -> AsyncIterator[Loaded]:
    """A process that serves `loaded.py`, with so many descriptors if limited; killed at the end of the block if it still runs."""
    path = Path(__file__).with_name("loaded.py")
    process = await trio.lowlevel.open_process(
        [sys.executable, str(path), str(drain_timeout), str(descriptors)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        server = Loaded(process)
        server.port = int((await server.says(b"listening on")).rpartition(b":")[2])
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


async def json_call(server: Loaded, answers: list[Answer], seconds: float) -> None:
    async with server.client() as client:
        answers.extend(parse(await converse(client, call("until", seconds=seconds))))


async def events_call(server: Loaded, answers: list[Answer], seconds: float) -> None:
    async with server.client() as client:
        answers.extend(parse(await converse(client, call("until", EVENTS, seconds=seconds))))


@pytest.mark.parametrize("make", [json_call, events_call], ids=["json", "events"])
async def test_calls_in_flight(make: Callable[[Loaded, list[Answer], float], Awaitable[None]]) -> None:
    """Calls that can end in time do; the others are informed that the server goes away; then the process ends with 0."""
    async with loaded(1) as server:
        short: list[Answer] = []
        long: list[Answer] = []
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(make, server, short, 0.5)
                nursery.start_soon(make, server, long, 1000)
            await server.says(b"begun", 40)
            server.process.send_signal(signal.SIGTERM)
            assert await server.ends() == 0
        assert len(short) == len(long) == 20
        for answer in short:
            assert answer.status == 200
            assert b'"data":"done"' in answer.body
        for answer in long:
            assert answer.status == (503 if make is json_call else 200)
            assert b'"code":"SHUTTING_DOWN"' in answer.body
            assert b'"phase":"running"' in answer.body
            assert answer.headers.get("transfer-encoding") or answer.headers["connection"] == "close"
            if make is events_call:
                assert answer.body.count(b"event: execution.completed") == 1


async def test_new_calls_while_draining() -> None:
    """An open connection's next call is refused while the server drains, and new connections are not accepted."""
    async with loaded(1) as server, server.client() as client, server.client() as open_before:
        assert (await open_before.request("GET", "/ready")).status == 200
        await open_before.send(b"POST ")  # a request has begun, so the connection is not idle
        await client.send(call("until", seconds=1000))
        await server.says(b"begun")
        server.process.send_signal(signal.SIGTERM)
        await server.says(b"stopping")
        await open_before.send(call("until", seconds=0).removeprefix(b"POST "))
        answer = await open_before.answer()
        assert (answer.status, answer.code) == (503, "SHUTTING_DOWN")
        assert int(answer.headers["retry-after"]) > 0
        assert await open_before.is_closed()
        while True:  # the listener closes a moment after the announcement
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            except OSError:
                break
            await stream.aclose()
        assert (await client.answer()).code == "SHUTTING_DOWN"
        assert await server.ends() == 0


UNWILLING = {
    "never reads an answer": call("big"),
    "never reads events": call("flood", EVENTS),
    "never ends its head": b"GET /health HTTP/1.1\r\n",
    "never ends its body": render("POST", "/agent/execute", {"content-type": "application/json", "content-length": "9"})
    + b"{",
    "says nothing": b"",
    "keeps alive": render("GET", "/health"),
}


@pytest.mark.parametrize("name", UNWILLING)
async def test_peers_that_hold_on(name: str) -> None:
    """No peer and no tool can hold the process."""
    async with loaded(0.5) as server, server.client() as client:
        await client.send(UNWILLING[name])
        if b"/agent/execute" in UNWILLING[name] and "body" not in name:
            await server.says(b"begun")
        else:
            async with server.client() as other:  # by then the server has seen the first one
                assert (await other.request("GET", "/health")).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert await server.ends() == 0


@pytest.mark.parametrize("name", ["stubborn", "spin"])
async def test_tools_that_hold_on(name: str) -> None:
    """A tool that cannot be cancelled costs the process its exit code, but does not hold it beyond the hard limit."""
    async with loaded(0.5) as server, server.client() as client:
        await client.send(call(name))
        await server.says(b"begun")
        server.process.send_signal(signal.SIGTERM)
        assert await server.ends() == 128 + signal.SIGTERM


async def test_all_of_them() -> None:
    """Many such peers at once cannot either, and an honest one still gets its answer."""
    async with loaded(1) as server:
        answers: list[Answer] = []
        async with trio.open_nursery() as nursery, server.client() as honest:
            for _ in range(5):
                for data in UNWILLING.values():
                    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
                    await stream.send_all(data)
                    nursery.start_soon(hold_open, stream)
            await server.says(b"begun", 10)
            await honest.send(call("until", seconds=0.3))
            await server.says(b"begun")
            server.process.send_signal(signal.SIGTERM)
            answers.append(await honest.answer())
            assert await server.ends() == 0
            nursery.cancel_scope.cancel()
        assert answers[0].json["data"] == "done"


async def hold_open(stream: trio.SocketStream) -> None:
    async with stream:
        await trio.sleep_forever()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal(number: signal.Signals) -> None:
    """A second signal ends the process at once, whatever still runs or reads."""
    async with loaded(1000) as server, server.client() as client, server.client() as other:
        await client.send(call("until", EVENTS, seconds=1000))
        await other.send(call("flood", EVENTS))
        await server.says(b"begun", 2)
        server.process.send_signal(number)
        await server.says(b"stopping")
        server.process.send_signal(number)
        assert await server.ends() == 128 + number
