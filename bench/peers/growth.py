"""How cost grows: with connections, tools, payload, calls in flight, and open streams of events."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench.peers import contenders, http_load, line_load
from bench.peers.contenders import Contender
from bench.peers.measure import CONNECTIONS
from bench.peers.processes import Running, free_port, running, until_it_answers

Point = dict[str, Any]
"""``x`` and what was measured there."""

BY_NAME = {contender.name: contender for contender in (*contenders.HTTP, *contenders.LINES)}
PEERS = (contenders.NATIVE, contenders.FASTAPI, contenders.BARE_UVICORN)


def _served(contender: Contender, *more: str) -> tuple[int, list[str]]:
    port = free_port()
    return port, [part.format(port=port) for part in (*contender.command, *more)]


def _ready(found: Running, port: int, contender: Contender) -> None:
    _, answer = until_it_answers(found, lambda: http_load.first(port, contender))
    contenders.check(contender.name, answer)
    http_load.load(port, contender, seconds=1, connections=8)


def connections(seconds: int, steps: tuple[int, ...] = (1, 8, 32, 128, 512, 1000)) -> Iterator[tuple[str, Point]]:
    """Requests per second by the number of connections."""
    for name in PEERS:
        contender = BY_NAME[name]
        if contender.missing:
            continue
        port, command = _served(contender)
        with running(command) as found:
            _ready(found, port, contender)
            for step in steps:
                load = http_load.load(port, contender, seconds=seconds, connections=step)
                yield name, {"x": step, "rate": load.rate, "p50": load.p50, "p99": load.p99, "bad": load.bad}


def tools(seconds: int, steps: tuple[int, ...] = (3, 100, 1000, 10_000)) -> Iterator[tuple[str, Point]]:
    """Requests per second by the number of tools that are registered."""
    contender = BY_NAME[contenders.NATIVE]
    for step in steps:
        port, command = _served(contender, str(step))
        with running(command) as found:
            _ready(found, port, contender)
            load = http_load.load(port, contender, seconds=seconds, connections=32)
            yield (
                contender.name,
                {"x": step, "rate": load.rate, "p99": load.p99, "memory_kib": found.memory_kib("VmRSS")},
            )


def payload(
    seconds: int, steps: tuple[int, ...] = (100, 1000, 10_000, 100_000, 1_000_000)
) -> Iterator[tuple[str, Point]]:
    """Requests per second by the bytes of a text that is sent and comes back."""
    for name in (contenders.NATIVE, contenders.FASTAPI):
        contender = BY_NAME[name]
        if contender.missing:
            continue
        ours = name == contenders.NATIVE
        port, command = _served(contender)
        with running(command) as found:
            _ready(found, port, contender)
            echo = contender if ours else dataclasses.replace(contender, path="/echo")
            for step in steps:
                arguments = {"text": "x" * step}
                body = {"tool": "echo", "arguments": arguments} if ours else arguments
                load = http_load.load(port, echo, seconds=seconds, connections=8, body=body)
                yield name, {"x": step, "rate": load.rate, "p99": load.p99, "bad": load.bad}


def in_flight(seconds: int, steps: tuple[int, ...] = (1, 4, 16, 64, 256)) -> Iterator[tuple[str, Point]]:
    """Calls per second over one connection by the number of them in flight, over standard input and output."""
    for name in ("carmy stdio", "MCP SDK over stdio"):
        contender = BY_NAME[name]
        if contender.missing:
            continue
        with running(contender.command, piped=True) as found:
            session = line_load.Lines(found, contender)
            contenders.check(name, session.open())
            session.in_flight(seconds / 2, 16)
            for step in steps:
                yield name, {"x": step, "rate": session.in_flight(seconds, step)}


FIRST_STREAMS = 50
"""Open from the start. They use what the process has reserved and not used yet, so that those after them show what each costs."""

TURNS = 7
"""Between a process with streams and one without."""


def streams(seconds: int, steps: tuple[int, ...] = (0, 100, 500, 1000)) -> Iterator[tuple[str, Point]]:
    """The latency of other calls by the number of open streams that say nothing, and what memory those take.

    ``p99_ratio`` compares with another process of the same program, which has no streams and takes turns with this one: so much
    varies from one second to the next. ``kib_each`` is anonymous memory, beyond that of the first streams.
    """
    contender = BY_NAME[contenders.NATIVE]
    port, command = _served(contender)
    quiet_port, quiet_command = _served(contender)
    with running(command) as found, running(quiet_command) as quiet, contextlib.ExitStack() as opened:
        _ready(found, port, contender)
        _ready(quiet, quiet_port, contender)
        base = count = 0
        for step in steps:
            while count < step:
                opened.enter_context(_open_stream(port))
                count += 1
                if count == FIRST_STREAMS:
                    base = found.memory_kib("RssAnon")
            held = found.memory_kib("RssAnon") - base
            loads: dict[int, list[http_load.Load]] = {port: [], quiet_port: []}
            for turn in range(TURNS):
                for each in (port, quiet_port) if turn % 2 else (quiet_port, port):
                    load = http_load.load(each, contender, seconds=seconds, connections=CONNECTIONS)
                    if load.bad:
                        raise AssertionError(f"{load.bad} of {load.requests} requests failed beside {step} streams")
                    loads[each].append(load)
            ratios = [busy.p99 / still.p99 for busy, still in zip(loads[port], loads[quiet_port], strict=True)]
            middle = {
                what: statistics.median(getattr(load, what) for load in loads[port]) for what in ("rate", "p50", "p99")
            }
            beyond = step - FIRST_STREAMS
            yield (
                contender.name,
                {
                    "x": step,
                    **middle,
                    "p99_ratio": statistics.median(ratios),
                    "kib_each": held / beyond if beyond > 0 else 0.0,
                },
            )


def _open_stream(port: int) -> socket.socket:
    """Follow a call that says once that it has begun, and nothing more."""
    body = json.dumps({"tool": "wait", "arguments": {}}).encode()
    stream = socket.create_connection(("127.0.0.1", port), timeout=10)
    stream.sendall(
        b"POST /agent/execute HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    said = b""
    while b"tool.progress" not in said:
        said += stream.recv(4096)
    return stream


GROWTH: dict[str, Callable[[int], Iterator[tuple[str, Point]]]] = {
    "connections": connections,
    "tools": tools,
    "payload": payload,
    "in_flight": in_flight,
    "streams": streams,
}


def grow(seconds: int, only: frozenset[str] | None = None) -> dict[str, dict[str, list[Point]]]:
    """All of them: by what grows, by contender, its points."""
    found: dict[str, dict[str, list[Point]]] = {}
    for what, measure in GROWTH.items():
        if only is not None and what not in only:
            continue
        lines = found.setdefault(what, {})
        for name, point in measure(seconds):
            print(f"  {what}: {name} at {point['x']}: {point['rate']:.0f}/s", file=sys.stderr, flush=True)
            lines.setdefault(name, []).append(point)
    return found
