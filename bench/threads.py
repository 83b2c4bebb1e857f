"""How long ``/health`` takes while plain functions hold the worker threads past their deadlines.

One server process; this process asks for health on one connection as fast as it is answered, in three phases: nothing else goes
on; a wave of calls holds threads that sleep (stuck in the operating system) beyond a deadline of 0.5 s; a wave holds
threads that compute (and fight for the interpreter's lock). After each wave a quick plain function is called once.

Run with ``python -m bench.threads [--calls N] [--seconds S] [--switch-ms MS]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import trio

from carmy_engine import App, Settings, tool
from carmy_http import serve

DEADLINE_MS = 500
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@tool(effect="none", parallel_safe=True, register=False)
def block(seconds: float) -> None:
    """Hold a thread, asleep."""
    time.sleep(seconds)


@tool(effect="none", parallel_safe=True, register=False)
def compute(seconds: float) -> None:
    """Hold a thread, computing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@tool(effect="none", parallel_safe=True, register=False)
def quick() -> None:
    """Return at once."""


async def serve_child() -> None:
    """Serve; print the port; end with standard input."""
    app = App("bench", settings=Settings(address="127.0.0.1:0")).add(block, compute, quick)
    async with app.open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(serve, engine)
        print(line.rpartition(":")[2], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def call(port: int, outcomes: Counter[str], name: str, **arguments: Any) -> float:
    """Call once; count how it ended; return the milliseconds it took."""
    body = json.dumps({"tool": name, "arguments": arguments, "timeout_ms": DEADLINE_MS}).encode()
    started = time.perf_counter()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(
            b"POST /agent/execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        head, _, answer = (await stream.receive_some(65536)).partition(b"\r\n\r\n")
    error = json.loads(answer).get("error")
    outcomes["completed" if error is None else error["code"]] += 1
    if not head.startswith(b"HTTP/1.1 "):
        raise AssertionError(head)
    return (time.perf_counter() - started) * 1000


async def probe(port: int, latencies: list[float]) -> None:
    """Ask for health until cancelled."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        while True:
            started = time.perf_counter()
            await stream.send_all(HEALTH)
            answer = await stream.receive_some(65536)
            if not answer.startswith(b"HTTP/1.1 200 "):
                raise AssertionError(answer)
            latencies.append((time.perf_counter() - started) * 1000)


async def phase(port: int, name: str, calls: int, seconds: float) -> None:
    """Measure one phase and print its line."""
    latencies: list[float] = []
    outcomes: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe, port, latencies)
        async with trio.open_nursery() as wave:
            for _ in range(calls):
                wave.start_soon(lambda: call(port, outcomes, name, seconds=seconds))
            await trio.sleep(seconds / 2)
        took = await call(port, outcomes, "quick")
        nursery.cancel_scope.cancel()
    cuts = statistics.quantiles(latencies, n=100)
    ended = ", ".join(f"{count} {code}" for code, count in sorted(outcomes.items()))
    print(
        f"{name if calls else 'idle':8} {len(latencies):7} {cuts[49]:8.2f} {cuts[94]:8.2f} {cuts[98]:8.2f} "
        f"{max(latencies):8.2f} {took:8.2f}  {ended}"
    )


async def main(calls: int, seconds: float, switch: float) -> None:
    """Measure and print."""
    child = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs here
        [sys.executable, "-m", "bench.threads", "--child", "--switch-ms", str(switch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    port = int(child.stdout.readline())
    print(f"{'ms':8} {'probes':>7} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8} {'quick':>8}  calls")
    for name, count in (("block", 0), ("block", calls), ("compute", calls)):
        await phase(port, name, count, seconds)
        await trio.sleep(seconds)  # until the threads have ended
    child.stdin.close()
    child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--switch-ms", type=float, default=5.0, help="the interpreter's switch interval; 5 is its default"
    )
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        sys.setswitchinterval(options.switch_ms / 1000)
        trio.run(serve_child)
    else:
        trio.run(main, options.calls, options.seconds, options.switch_ms)
