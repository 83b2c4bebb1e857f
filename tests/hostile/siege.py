"""A server under attack, and the means to see that it has come through unharmed."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import Engine
from tests.hostile.tools import Hold
from tests.support.http import Answer, Client, Running, render, serving

RECOVERY_SECONDS = 20.0
"""For everything to be as before. Far more than it takes: the machines that run this are slow at times."""

STATUSES = {200, 202, 204, 304, 400, 401, 403, 404, 405, 408, 409, 413, 431, 500, 503, 504}
"""What the server may say at all."""

FRONT_ENDS = ("hypercorn", "native")
"""What serves HTTP, by the setting ``http.server``. Whatever is in this list is attacked by every module that uses `front_end`."""

_front_end = [FRONT_ENDS[0]]

HEALTH = render("GET", "/health")
LAST = render("GET", "/health", {"connection": "close"})

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [^\r\n]*\r\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*)\r\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)\r\n")


class Tasks(trio.abc.Instrument):
    """Counts the tasks that live, and tells when one ends."""

    def __init__(self) -> None:
        self.alive = 0
        self._ended = trio.Event()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.alive += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.alive -= 1
        self._ended.set()

    async def fall_to(self, count: int) -> None:
        """Wait until no more than `count` of the tasks that began since are left."""
        while self.alive > count:
            self._ended = trio.Event()
            await self._ended.wait()


class Siege:
    """A server, what it looked like before, and its ways to be looked at.

    Attributes:
        server: What runs.
        hold: Its tool ``hold``.
        tasks: How many tasks there are.
    """

    def __init__(self, server: Running, hold: Hold, tasks: Tasks) -> None:
        self.server = server
        self.hold = hold
        self.tasks = tasks
        self._tasks = tasks.alive
        self._descriptors = _descriptors()

    @property
    def engine(self) -> Engine:
        return self.server.engine

    @property
    def port(self) -> int:
        return self.server.port

    async def health(self) -> None:
        """The server answers an honest client at once."""
        with trio.fail_after(RECOVERY_SECONDS):
            answer = await self.server.get("/health")
        assert (answer.status, answer.body) == (200, b'{"ok":true}')

    async def recovers(self) -> None:
        """The server answers, and nothing is left of what came before: no execution, task, connection or descriptor."""
        await self.health()
        with trio.fail_after(RECOVERY_SECONDS):
            await self.engine.wait_idle()
            await self.tasks.fall_to(self._tasks)
        statistics = self.engine.statistics()
        assert (statistics.running, statistics.stuck_threads) == (0, 0)
        if _descriptors() > self._descriptors:
            gc.collect()  # of what other tests have left in cycles, anything may have been opened or closed meanwhile
        assert _descriptors() <= self._descriptors

    async def recovers_but_for(self, client: Client) -> None:
        """The server has given this peer up, although the peer has not."""
        await self.engine.wait_idle()
        await self.tasks.fall_to(self._tasks)
        assert _descriptors() <= self._descriptors + 1, client

    async def exchange(self, *parts: bytes) -> list[Answer]:
        """Send bytes on one connection and return all answers. The bytes must make the server close."""
        async with self.server.client() as client:
            return parse(await converse(client, *parts))

    @asynccontextmanager
    async def busy(self, headers: Mapping[str, str] | None = None) -> AsyncIterator[Client]:
        """A connection whose call (of the tool ``hold``) is running."""
        before = self.hold.running
        async with self.server.client() as client:
            await client.send(call("hold", headers))
            await self.hold.reaches(before + 1)
            yield client


@asynccontextmanager
async def besieged(
    *tools: Callable[..., Any],
    http: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **engine: Any,
) -> AsyncIterator[Siege]:
    """Serve these tools and ``hold``; in the end the server must have recovered from whatever was done to it."""
    tasks, hold = Tasks(), Hold()
    trio.lowlevel.add_instrument(tasks)
    try:
        async with serving(
            hold.tool(), *tools, http={"server": _front_end[-1], **(http or {})}, settings=settings, **engine
        ) as server:
            siege = Siege(server, hold, tasks)
            yield siege
            await siege.recovers()
    finally:
        trio.lowlevel.remove_instrument(tasks)


@pytest.fixture(params=FRONT_ENDS, autouse=True)
def front_end(request: pytest.FixtureRequest) -> Iterator[str]:
    """The front end that `besieged` uses."""
    _front_end.append(request.param)
    yield request.param
    _front_end.pop()


@pytest.fixture(autouse=True)
def no_fault(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a peer does may be a fault of ours: the guards round a connection and a request stay unused."""
    caplog.set_level(logging.INFO, "carmy.http")
    yield
    faults = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not faults


def call(tool: str, headers: Mapping[str, str] | None = None, **arguments: Any) -> bytes:
    """The bytes of a call."""
    body = json.dumps({"tool": tool, "arguments": arguments}).encode()
    return render("POST", "/agent/execute", {"content-type": "application/json", **(headers or {})}, body)


async def converse(client: Client, *parts: bytes) -> bytes:
    """Send bytes while reading; return everything that came until the server closed or reset the connection."""
    heard = bytearray()

    async def listen() -> None:
        try:
            while data := await client.stream.receive_some(65536):
                heard.extend(data)
        except trio.BrokenResourceError:
            pass
        nursery.cancel_scope.cancel()

    with trio.fail_after(RECOVERY_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            try:
                for part in parts:
                    await client.send(part)
                    await trio.testing.wait_all_tasks_blocked()
            except trio.BrokenResourceError:
                pass  # the server had heard enough
    return bytes(heard)


def parse(heard: bytes, *, cut: bool = False) -> list[Answer]:
    """Read answers strictly, to the last byte.

    Args:
        heard: All that a server said on one connection.
        cut: The last answer may be incomplete, because we went away.
    """
    answers: list[Answer] = []
    position = 0
    while position < len(heard):
        end = heard.find(b"\r\n\r\n", position)
        if end < 0:
            assert cut, heard[position:]
            break
        line = _STATUS_LINE.match(heard, position)
        assert line, heard[position : position + 200]
        status = int(line[1])
        headers: dict[str, str] = {}
        position = line.end()
        while position < end + 2:
            header = _HEADER.match(heard, position)
            assert header, heard[position : position + 200]
            name = header[1].decode().lower()
            assert name not in headers or name == "connection", name
            headers[name] = header[2].decode("latin-1")
            position = header.end()
        position += 2
        body, position = _body(heard, position, status, headers, cut=cut)
        assert status == 100 or status in STATUSES, status
        answers.append(Answer(status, headers, body))
    return answers


def _body(heard: bytes, position: int, status: int, headers: dict[str, str], *, cut: bool) -> tuple[bytes, int]:
    if status in {100, 204, 304}:
        return b"", position
    if headers.get("transfer-encoding") != "chunked":
        end = position + int(headers["content-length"])
        assert cut or end <= len(heard)
        return heard[position:end], min(end, len(heard))
    body = b""
    while chunk := _CHUNK.match(heard, position):
        end = chunk.end() + int(chunk[1], 16)
        body += heard[chunk.end() : end]
        assert cut or heard[end : end + 2] == b"\r\n"
        position = end + 2
        if int(chunk[1], 16) == 0:
            return body, position
    assert cut, heard[position:]
    return body, len(heard)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
