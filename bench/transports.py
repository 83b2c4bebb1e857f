"""What our transports cost beside the bare carriers, and beside the MCP SDK over stdio where it is installed.

An echo tool behind each transport, its server in a process of its own. Measured in turns, for some rounds: one call after the
other (latency), and 32 at a time (calls per second). The bare carriers move messages of the size of ours and do nothing with
them: pipes under trio's own streams, with lines; and an echo server on trio-websocket. Cold start is the time from starting the
process to its first frame, or for the SDK to the answer to ``initialize``.

The client's side counts as well. ``stdio`` is our client; ``stdio, raw`` writes frames that were made beforehand and looks for
the ends of lines only, as the bare carriers do.

Run with ``python -m bench.transports [--rounds N] [--calls N]``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections import defaultdict

import trio

from bench.carriers.clients import CONTENDERS, Ask, command

IN_FLIGHT = 32


async def latencies(ask: Ask, calls: int) -> list[float]:
    """Microseconds of each call, one after the other."""
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        await ask()
        found.append((time.perf_counter() - began) * 1e6)
    return found


async def throughput(ask: Ask, calls: int) -> float:
    """Calls per second, with `IN_FLIGHT` at a time."""
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await ask()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT):
            nursery.start_soon(caller)
    return calls / (time.perf_counter() - began)


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"bench","version":"1"}}}\n'
)


def cold_start(kind: str) -> float:
    """Seconds from starting a process to its first line."""
    began = time.perf_counter()
    with subprocess.Popen(
        command(kind), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if kind == "mcp":
            process.stdin.write(INITIALIZE)
            process.stdin.flush()
        assert process.stdout.readline()
        took = time.perf_counter() - began
        process.kill()
    return took


async def measure(rounds: int, calls: int) -> None:
    latency: dict[str, list[float]] = defaultdict(list)
    rate: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, opens in CONTENDERS.items():
            some = max(50, calls // 10) if name.startswith("mcp") else calls
            async with opens() as ask:
                await latencies(ask, some // 10)
                latency[name].append(statistics.median(await latencies(ask, some)))
                rate[name].append(await throughput(ask, some))
    print(f"{'':18}{'latency, µs':>14}{f'calls/s, {IN_FLIGHT} at once':>24}")
    for name in CONTENDERS:
        print(f"{name:18}{statistics.median(latency[name]):14,.0f}{statistics.median(rate[name]):24,.0f}")

    def ratio(found: dict[str, list[float]], one: str, other: str) -> str:
        each = [a / b for a, b in zip(found[one], found[other], strict=True)]
        return f"{statistics.median(each):6.2f}  ({min(each):.2f} to {max(each):.2f})"

    print("\nratios, of each round")
    print(f"  latency, stdio / bare pipe:            {ratio(latency, 'stdio', 'bare pipe')}")
    print(f"  latency, stdio raw / bare pipe:        {ratio(latency, 'stdio, raw', 'bare pipe')}")
    print(f"  throughput, websocket / bare:          {ratio(rate, 'websocket', 'bare websocket')}")
    if "mcp sdk, stdio" in CONTENDERS:
        print(f"  throughput, stdio / mcp sdk:           {ratio(rate, 'stdio', 'mcp sdk, stdio')}")
        print(f"  throughput, stdio raw / mcp sdk:       {ratio(rate, 'stdio, raw', 'mcp sdk, stdio')}")
    starts = {kind: statistics.median(cold_start(kind) for _ in range(rounds)) for kind in _cold_kinds()}
    print("\ncold start: " + ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in starts.items()))
    if "mcp" in starts:
        print(f"  stdio / mcp sdk:                       {starts['stdio'] / starts['mcp']:6.2f}")


def _cold_kinds() -> list[str]:
    return ["stdio", "websocket", "http", *(["mcp"] if "mcp sdk, stdio" in CONTENDERS else [])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=2000)
    arguments = parser.parse_args()
    trio.run(measure, arguments.rounds, arguments.calls)


if __name__ == "__main__":
    main()
