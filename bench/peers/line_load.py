"""Load over standard input and output: calls as lines, up to a number of them in flight. Our own driver, since wrk knows HTTP only."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.peers.contenders import Contender
from bench.peers.processes import FailedError, Running

ANSWER_SECONDS = 30.0


class Lines:
    """A session with a contender's process."""

    def __init__(self, found: Running, contender: Contender) -> None:
        self._in, self._out = found.pipes
        self._rest = b""
        self._found = found
        self._contender = contender
        self._serial = 0

    def open(self) -> bytes:
        """Greet it, and ask once; what it answers."""
        for message in self._contender.hello:
            self._send(json.dumps(message).encode() + b"\n")
        self._send(self.call())
        return next(line for line in self._lines() if json.loads(line).get("id") == self._serial)

    def call(self) -> bytes:
        """The next call."""
        self._serial += 1
        return json.dumps({**self._contender.body, "id": self._serial}).encode() + b"\n"

    def one_by_one(self, calls: int) -> list[float]:
        """Milliseconds of each call."""
        taken: list[float] = []
        lines = self._lines()
        for _ in range(calls):
            message = self.call()
            started = time.perf_counter()
            self._send(message)
            next(lines)
            taken.append((time.perf_counter() - started) * 1000)
        return taken

    def in_flight(self, seconds: float, most: int) -> float:
        """Calls per second with `most` of them in flight."""
        deadline = time.perf_counter() + seconds
        started = time.perf_counter()
        self._send(b"".join(self.call() for _ in range(most)))
        answered, pending = 0, most
        lines = self._lines()
        while pending:
            batch = [next(lines)]
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                batch.append(line)
            if any(b'"error"' in line for line in batch):
                raise FailedError(f"it answered {batch[0][:300]!r}")
            answered += len(batch)
            pending -= len(batch)
            if time.perf_counter() < deadline:
                self._send(b"".join(self.call() for _ in batch))
                pending += len(batch)
        return answered / (time.perf_counter() - started)

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._in, data) :]

    def _lines(self) -> Iterator[bytes]:
        """The lines as they come. What has been read and not given stays in `_rest`."""
        while True:
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                yield line
            data = os.read(self._out, 1 << 16)
            if not data:
                raise FailedError(f"it closed its output: {self._found.said()}")
            self._rest += data


def percentiles(values: list[float]) -> dict[str, float]:
    """The latencies that tables show."""
    cuts = statistics.quantiles(values, n=100)
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def measure(found: Running, session: Lines, *, seconds: float, most: int) -> dict[str, Any]:
    """Latency of single calls, throughput of many."""
    session.one_by_one(200)
    taken = session.one_by_one(1000)
    session.in_flight(seconds / 4, most)
    before = found.cpu_seconds()
    started = time.perf_counter()
    rate = session.in_flight(seconds, most)
    calls = rate * (time.perf_counter() - started)
    cpu = (found.cpu_seconds() - before) / calls * 1e6
    return {"rate": rate, **percentiles(taken), "cpu_us": cpu}
