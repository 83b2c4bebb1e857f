"""A server under ten times the load that it has capacity for: does it do its work, refuse the rest at once, and stay in reach?

    python -m bench.overload [--seconds 30] [--work 0.2] [--check]

A server process admits `CAPACITY` executions at a time, each of which takes the seconds of ``--work``. First, as many callers as it admits measure
the peak. Then callers offer ten times as much, on time whether or not they are answered: nine tenths by one principal, one tenth by
another. With ``--check``, exit code 1 if the goodput is below `GOODPUT` of the peak, a refusal takes longer than `REFUSAL_SECONDS`, or a health check
fails.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

CAPACITY = 20
TIMES = 10
"""Load over capacity."""

GOODPUT = 0.9
REFUSAL_SECONDS = 0.05
PRINCIPALS = ("greedy", "modest")

APP = f"""
import os
import trio
from carmy_engine import AgentContext, App, BearerTokens

app = App("overload").authenticate(
    BearerTokens({{name + "-token": AgentContext(principal=name) for name in {PRINCIPALS!r}}})
)


@app.tool(effect="none", parallel_safe=True)
async def work() -> str:
    await trio.sleep(float(os.environ["WORK_SECONDS"]))
    return "done"
"""

MAIN = "from carmy_engine.cli import main; main()"


@dataclass
class Seen:
    """The answers of one phase: number by principal and status, and seconds by status."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)

    def add(self, principal: str, status: int, seconds: float, body: bytes) -> None:
        self.counts[principal, status] += 1
        self.seconds.setdefault(status, []).append(seconds)
        if status != 200:
            self.codes[body.partition(b'"code":"')[2].partition(b'"')[0].decode()] += 1

    def total(self, status: int) -> int:
        return sum(count for (_, each), count in self.counts.items() if each == status)

    def quantile(self, status: int, part: float) -> float:
        found = sorted(self.seconds.get(status, [math.nan]))
        return found[min(len(found) - 1, int(part * len(found)))]


class Connection:
    """One kept connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def answer(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        await self._stream.send_all(request)
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(self._buffer) < length:
            await self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return int(head.split(b" ")[1]), body

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _more(self) -> None:
        data = await self._stream.receive_some(65536)
        if not data:
            raise ConnectionError("the server has closed a connection")
        self._buffer += data


def call_of(principal: str) -> bytes:
    body = b'{"tool":"work"}'
    return (
        f"POST /agent/execute HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {principal}-token\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@asynccontextmanager
async def server(**settings: str) -> AsyncIterator[int]:
    """A server process; its port."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "overloaded.py")
        path.write_text(APP)  # noqa: ASYNC240 - a small local file
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", MAIN, "serve", str(path), "--address", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            env={"CARMY_MAX_EXECUTIONS": str(CAPACITY), **settings},
        )
        assert process.stderr is not None
        try:
            said = b""
            while not (b"listening on" in said and said.endswith(b"\n")):
                data = await process.stderr.receive_some()
                assert data, said.decode()
                said += data
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drain, process.stderr)
                yield int(said.rpartition(b":")[2])
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    """Read what the server logs, so that it never waits."""
    async for data in stream:
        sys.stderr.buffer.write(data)


async def peak(port: int, calls: int) -> float:
    """Calls per second of as many callers as are admitted, each of which makes so many calls."""

    async def caller() -> None:
        connection = Connection(await trio.open_tcp_stream("127.0.0.1", port))
        for _ in range(calls):
            status, body = await connection.answer(call_of(PRINCIPALS[0]))
            assert status == 200, body
        await connection.aclose()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(CAPACITY):
            nursery.start_soon(caller)
    return CAPACITY * calls / (time.perf_counter() - began)


async def overload(port: int, rate: float, seconds: float) -> tuple[Seen, Seen]:
    """Offer calls at a rate; return the answers, and those to health checks."""
    calls, health = Seen(), Seen()
    idle: list[Connection] = []
    opened: list[Connection] = []

    async def connect() -> Connection:
        connection = Connection(await trio.open_tcp_stream("127.0.0.1", port))
        opened.append(connection)
        return connection

    async def call(principal: str) -> None:
        connection = idle.pop() if idle else await connect()
        began = time.perf_counter()
        status, body = await connection.answer(call_of(principal))
        calls.add(principal, status, time.perf_counter() - began, body)
        idle.append(connection)

    async def check_health() -> None:
        while True:
            began = time.perf_counter()
            connection = await connect()
            status, body = await connection.answer(HEALTH)
            health.add("", status, time.perf_counter() - began, body)
            await connection.aclose()
            await trio.sleep(0.1)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check_health)
            began, sent = trio.current_time(), 0
            while True:
                due = int((trio.current_time() - began) * rate)
                for number in range(sent, due):
                    nursery.start_soon(call, PRINCIPALS[number % 10 == 0])
                sent = max(sent, due)
                await trio.sleep(0.002)
    for connection in opened:
        await connection.aclose()
    return calls, health


async def measure(seconds: float, work: float) -> tuple[float, Seen, Seen]:
    """The peak, and the answers to calls and to health checks under overload."""
    async with server(WORK_SECONDS=str(work)) as port:
        best = await peak(port, math.ceil(min(5, seconds) / work))
        calls, health = await overload(port, TIMES * best, seconds)
        return best, calls, health


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overload")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--work", type=float, default=0.2, help="seconds of one call")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a promise is broken")
    given = parser.parse_args()
    seconds = given.seconds
    best, calls, health = trio.run(measure, seconds, given.work)
    goodput = calls.total(200) / seconds
    slowest = calls.quantile(503, 0.99)
    print(f"peak         {best:8.1f} calls/s of {CAPACITY} callers")
    print(
        f"goodput      {goodput:8.1f} calls/s, {goodput / best:.2f} of the peak, at {sum(calls.counts.values()) / seconds:.0f} calls/s"
    )
    print(f"refusals     {calls.total(503):8d} {dict(calls.codes)}")
    for name, seen, status in (("answers", calls, 200), ("refusals", calls, 503), ("health", health, 200)):
        print(
            f"{name:12} median {seen.quantile(status, 0.5) * 1000:7.1f} ms, 99 % {seen.quantile(status, 0.99) * 1000:7.1f} ms"
        )
    for principal in PRINCIPALS:
        offered = sum(count for (each, _), count in calls.counts.items() if each == principal)
        print(f"{principal:12} offered {offered:6d}, done {calls.counts[principal, 200]:6d}")
    broken = [
        *([] if goodput >= GOODPUT * best else ["the goodput is too low"]),
        *([] if not slowest > REFUSAL_SECONDS else ["refusals are too slow"]),
        *([] if health.total(200) == sum(health.counts.values()) > 0 else ["a health check has failed"]),
    ]
    print(*broken, sep="\n")
    sys.exit(1 if broken and given.check else 0)


if __name__ == "__main__":
    main()
