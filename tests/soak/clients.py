"""The load: callers that check each answer."""

from __future__ import annotations

import random
import re
import socket
import struct
import uuid
from typing import Any

import trio

from carmy_engine import AgentError, ExecutionRequest, ExecutionResult
from carmy_engine.errors import ClosedError, OutcomeUnknownError

from .tally import Tally

BUSY = ("OVERLOADED", "TOOL_BUSY")
STORE_TROUBLE = ("STORE_ERROR", "EXECUTION_UNCERTAIN")
RETRY_SECONDS = 90
"""How long a note may be retried. Longer than any fault lasts."""


class Caller:
    """One caller on one transport.

    Args:
        transport: Its name.
        executor: Its client.
        tally: Gets what it sees.
        seed: Of its choices.
        records: The server keeps records in a file.
    """

    def __init__(self, transport: str, executor: Any, tally: Tally, seed: int, *, records: bool = False) -> None:
        self.transport = transport
        self.executor = executor
        self.tally = tally
        self.rng = random.Random(seed)
        self.records = records

    async def run(self, tools: tuple[str, ...], stop: trio.Event) -> None:
        """Call tools until the end."""
        while not stop.is_set():
            tool = self.rng.choice(tools)
            await getattr(self, f"call_{tool}")()
            await trio.sleep(self.rng.random() * 0.01)

    async def execute(self, tool: str, timeout_ms: float | None = None, **arguments: Any) -> ExecutionResult:
        result: ExecutionResult = await self.executor.execute(
            ExecutionRequest(tool=tool, arguments=arguments, timeout_ms=timeout_ms)
        )
        self._ended(tool, result)
        return result

    def _ended(self, tool: str, result: ExecutionResult) -> None:
        self.tally.saw(self.transport, tool, outcome(result))
        if self.records and not result.replayed:
            self.tally.answered.add(result.execution_id)

    def check(self, tool: str, result: ExecutionResult, *allowed: Any) -> None:
        got = result.data if result.error is None else result.error.code
        self.tally.expect(self.transport, tool, got, *allowed, *BUSY)

    async def call_echo(self) -> None:
        text = "ä" * self.rng.randrange(5000) + str(self.rng.random())
        self.check("echo", await self.execute("echo", text=text), text)

    async def call_add(self) -> None:
        a, b = self.rng.randrange(2**60), self.rng.randrange(2**60)
        self.check("add", await self.execute("add", a=a, b=b), a + b)

    async def call_wrong(self) -> None:
        self.check("echo", await self.execute("echo", txt="x"), "INVALID_ARGUMENTS")

    async def call_panic(self) -> None:
        self.check("panic", await self.execute("panic"), "TOOL_PANIC")

    async def call_late(self) -> None:
        self.check("slow", await self.execute("slow", timeout_ms=30, seconds=30), "TIMEOUT")

    async def call_square(self) -> None:
        number = self.rng.randrange(2**50)
        self.check("square", await self.execute("square", number=number), number * number, "TOOL_CRASHED", "TIMEOUT")

    async def call_die(self) -> None:
        self.check("die", await self.execute("die"), "TOOL_CRASHED", "TIMEOUT")

    async def call_spin(self) -> None:
        self.check("spin", await self.execute("spin", timeout_ms=200), "TIMEOUT", "TOOL_CRASHED")

    async def call_parts(self) -> None:
        count = self.rng.randrange(1, 30)
        request = ExecutionRequest(tool="parts", arguments={"count": count, "size": self.rng.randrange(2000)})
        seen: list[str] = []
        result: ExecutionResult | None = None
        async with self.executor.stream(request) as events:
            async for event in events:
                if getattr(event, "partial_json", None) is not None:
                    seen.append(str(event.partial).partition(":")[0])
                result = getattr(event, "result", result)
        assert result is not None
        self._ended("parts", result)
        self.check("parts", result, count)
        if result.error is None:
            self.tally.expect(self.transport, "parts in order", seen, [*map(str, range(count))])

    async def call_leave(self) -> None:
        """Go away while a call runs."""
        with trio.move_on_after(self.rng.random() * 0.05):
            await self.execute("slow", seconds=20)
        self.tally.faults["callers that left"] += 1

    async def call_note(self) -> None:
        """A write under a request_id, retried until its outcome is clear."""
        key = uuid.UUID(int=self.rng.getrandbits(128)).hex
        await self.note(key)
        if self.rng.random() < 0.3:
            await self.note(key)

    async def note(self, key: str) -> None:
        request = ExecutionRequest(tool="note", arguments={"key": key}, request_id=key, on_running="wait")
        with trio.move_on_after(RETRY_SECONDS):
            while True:
                try:
                    result: ExecutionResult = await self.executor.execute(request)
                except (OutcomeUnknownError, ClosedError, AgentError, OSError) as lost:
                    self.tally.saw(self.transport, "note", type(lost).__name__)
                    await trio.sleep(0.05)
                    continue
                self._ended("note", result)
                if result.error is None:
                    self.tally.expect(self.transport, "note", result.data, key)
                    self.tally.notes.add(key)
                    return
                if _is_interrupted(result):
                    self.tally.doubtful.add(key)
                    return
                self.tally.expect(
                    self.transport, "note", result.error.code, *STORE_TROUBLE, *BUSY, "SHUTTING_DOWN", "TIMEOUT"
                )
                await trio.sleep(0.1)
        self.tally.complain(f"{self.transport}: the note {key} had no clear outcome within {RETRY_SECONDS} s")


def outcome(result: ExecutionResult) -> str:
    return "ok" if result.error is None else result.error.code


def _is_interrupted(result: ExecutionResult) -> bool:
    error = result.error
    return (
        error is not None
        and error.code == "EXECUTION_UNCERTAIN"
        and error.details is not None
        and error.details.get("state") == "interrupted"
    )


def _request(path: str, tool: str, arguments: str, *headers: str) -> bytes:
    body = f'{{"tool":"{tool}","arguments":{arguments}}}'
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


async def _connected(url: str) -> trio.SocketStream:
    host, port = re.split("[/:]+", url)[1:3]
    return await trio.open_tcp_stream(host, int(port))


def _reset(stream: trio.SocketStream) -> None:
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def drop_connections(url: str, tally: Tally, stop: trio.Event, seed: int) -> None:
    """Send parts of requests, and close or reset at any moment."""
    rng = random.Random(seed)
    while not stop.is_set():
        stream = await _connected(url)
        data = _request("/agent/execute", "slow", '{"seconds": 1}')
        await stream.send_all(data[: rng.randrange(1, len(data) + 1)])
        await trio.sleep(rng.random() * 0.05)
        _reset(stream) if rng.random() < 0.5 else await stream.aclose()
        tally.faults["connections dropped"] += 1
        await trio.sleep(rng.random() * 0.05)


async def read_slowly(url: str, tally: Tally, stop: trio.Event, seed: int) -> None:
    """Ask for megabytes, and read a few bytes now and then."""
    rng = random.Random(seed)
    while not stop.is_set():
        stream = await _connected(url)
        request = _request("/agent/execute", "parts", '{"count": 400, "size": 10000}', "Accept: text/event-stream")
        await stream.send_all(request)
        with trio.move_on_after(rng.random() * 15):
            while not stop.is_set() and await stream.receive_some(100):  # noqa: ASYNC110 - slow on purpose
                await trio.sleep(0.2)
        _reset(stream)
        tally.faults["slow readers"] += 1
