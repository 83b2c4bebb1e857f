"""One measurement of each kind: a fresh process, an answer that is checked, a warm-up, then the numbers."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.peers import contenders, http_load, line_load
from bench.peers.contenders import Contender
from bench.peers.processes import Running, free_port, running, until_it_answers

CONNECTIONS = 32
"""Of HTTP, and calls in flight over standard input and output."""

Sample = dict[str, Any]


@contextlib.contextmanager
def answering(contender: Contender) -> Iterator[tuple[Running, int, Contender, bytes]]:
    """A process that has answered once: the process, its port, the contender with the headers of its session, and the answer."""
    port = free_port()
    with running([part.format(port=port) for part in contender.command]) as found:
        yield found, port, *until_it_answers(found, lambda: http_load.first(port, contender))


_compiled: set[str] = set()


def compile_once(contender: Contender) -> None:
    """Start a contender once, so that its bytecode is there when a start is measured."""
    if contender.name in _compiled:
        return
    _compiled.add(contender.name)
    if contender.kind == "http":
        with answering(contender):
            return
    with running(contender.command, piped=True) as found:
        line_load.Lines(found, contender).open()


def http(contender: Contender, seconds: int) -> Sample:
    """Over HTTP: throughput and latency, CPU time of a request, peak memory, and the time from start to first answer."""
    compile_once(contender)
    with answering(contender) as (found, port, session, answer):
        cold = time.perf_counter() - found.started
        contenders.check(contender.name, answer)
        http_load.load(port, session, seconds=1, connections=CONNECTIONS)
        before = found.cpu_seconds()
        load = http_load.load(port, session, seconds=seconds, connections=CONNECTIONS)
        if load.bad:
            raise AssertionError(f"{contender.name}: {load.bad} of {load.requests} requests failed")
        cpu = (found.cpu_seconds() - before) / load.requests * 1e6
        latencies = {"p50": load.p50, "p95": load.p95, "p99": load.p99}
        return {
            "rate": load.rate,
            **latencies,
            "cpu_us": cpu,
            "memory_kib": found.memory_kib(),
            "cold_ms": cold * 1000,
        }


def lines(contender: Contender, seconds: int) -> Sample:
    """The same over standard input and output; latencies are those of single calls."""
    compile_once(contender)
    with running(contender.command, piped=True) as found:
        session = line_load.Lines(found, contender)
        answer = session.open()
        cold = time.perf_counter() - found.started
        contenders.check(contender.name, answer)
        sample = line_load.measure(found, session, seconds=seconds, most=CONNECTIONS)
        return {**sample, "memory_kib": found.memory_kib(), "cold_ms": cold * 1000}


IN_PROCESS = {"carmy engine.execute": "engine", "FastMCP in memory": "fastmcp", "bare function with pydantic": "bare"}


def in_process(name: str, seconds: int) -> Sample:
    """Calls without a wire, one after the other, in a process of their own."""
    command = [sys.executable, "-m", "bench.peers.in_process", IN_PROCESS[name], str(seconds)]
    found: Sample = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


Measurement = tuple[str, str, Callable[[int], Sample]]
"""Group, name, and what takes one sample in so many seconds."""


def measurements(names: frozenset[str] | None = None) -> tuple[list[Measurement], dict[str, str]]:
    """Everything that can be measured here, and what cannot, with the reason.

    Args:
        names: Only these contenders.
    """
    found: list[Measurement] = []
    skipped: dict[str, str] = {}
    for group, take, all_of_them in (("http", http, contenders.HTTP), ("stdio", lines, contenders.LINES)):
        for contender in all_of_them:
            missing = contender.missing
            if missing is None and group == "http" and not http_load.is_there():
                missing = "wrk"
            if names is not None and contender.name not in names:
                continue
            if missing is not None:
                skipped[contender.name] = f"{missing} is not installed"
                continue
            found.append((group, contender.name, functools.partial(take, contender)))
    local = (name for name in IN_PROCESS if names is None or name in names)
    found += [("in process", name, functools.partial(in_process, name)) for name in local]
    return found, skipped
