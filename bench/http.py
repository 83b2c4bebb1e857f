"""What our endpoint costs beside a bare ASGI answer on the same guarded hypercorn connections.

Two server processes, one with ``POST /agent/execute`` over the engine, one with an application that reads the body and sends
a fixed answer of the same size. A driver in this process loads them in turns over keep-alive connections, checks every
answer, and reports requests per second, latency and their ratio.

Run with ``python -m bench.http [--rounds N] [--seconds S] [--connections N]``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

import trio

from carmy_engine import App, HttpSettings, Settings, tool
from carmy_http import serve
from carmy_http.hypercorn.front_end import connector
from carmy_net import Server, open_listeners

CATALOG = [f"{kind} {n}" for n in range(8) for kind in ("mouse", "keyboard")]
BODY = b'{"tool":"search","arguments":{"query":"mouse"}}'
REQUEST = (
    b"POST /agent/execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)
EXPECTED = b'"mouse 0","mouse 1"'
ANSWER = (
    b'{"execution_id":"exec_00000000-0000-4000-8000-000000000000","status":"completed","data":["mouse 0","mouse 1","mouse 2",'
    b'"mouse 3","mouse 4","mouse 5","mouse 6","mouse 7"],"_agent":{"cacheable":false,"next_actions":[]}}'
)


@tool(effect="read", parallel_safe=True, register=False)
async def search(query: str) -> list[str]:
    """Search the catalog."""
    return [name for name in CATALOG if query in name]


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """The least an ASGI application can do with a POST."""
    while (await receive()).get("more_body", False):
        pass
    length = str(len(ANSWER)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


async def serve_child(kind: str) -> None:
    """Serve one contender; print the port; end with standard input."""
    app = App("bench", settings=Settings(address="127.0.0.1:0")).add(search)
    async with app.open() as engine, trio.open_nursery() as nursery:
        if kind == "ours":
            line: str = await nursery.start(serve, engine)
            port = line.rpartition(":")[2]
        else:
            listeners = await open_listeners(engine.settings, authenticated=False)
            port = str(listeners[0].socket.getsockname()[1])
            server = Server(connector(bare, HttpSettings()), HttpSettings())
            nursery.start_soon(server.run, listeners, engine.stopping, engine.stopped, lambda: None)
        print(port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def load(port: int, connections: int, seconds: float) -> tuple[float, list[float]]:
    """Requests per second, and every latency in milliseconds."""
    latencies: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            while (started := time.perf_counter()) < deadline:
                await stream.send_all(REQUEST)
                answer = await stream.receive_some(65536)
                if EXPECTED not in answer or not answer.endswith(b"}"):
                    raise AssertionError(answer)
                latencies.append((time.perf_counter() - started) * 1000)

    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            nursery.start_soon(client)
    return len(latencies) / seconds, latencies


async def main(rounds: int, seconds: float, connections: int) -> None:
    """Measure and print."""
    rates: dict[str, list[float]] = {"bare": [], "ours": []}
    latencies: dict[str, list[float]] = {"bare": [], "ours": []}
    for round_number in range(rounds + 1):
        for kind in ("bare", "ours") if round_number % 2 else ("ours", "bare"):
            child = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs here
                [sys.executable, "-m", "bench.http", "--child", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert child.stdin is not None
            assert child.stdout is not None
            port = int(child.stdout.readline())
            await load(port, connections, seconds / 4)
            rate, latency = await load(port, connections, seconds)
            child.stdin.close()
            child.wait()
            if round_number:  # the first round warms the machine up
                rates[kind].append(rate)
                latencies[kind] += latency
    print(f"{'':6} {'requests/s':>11} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}")
    for kind, values in rates.items():
        cuts = statistics.quantiles(latencies[kind], n=100)
        print(f"{kind:6} {statistics.median(values):11.0f} {cuts[49]:8.2f} {cuts[94]:8.2f} {cuts[98]:8.2f}")
    ratio = statistics.median(ours / base for ours, base in zip(rates["ours"], rates["bare"], strict=True))
    print(f"ours/bare: {ratio:.2f} ({connections} connections, {rounds} rounds of {seconds:g} s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--child", choices=["bare", "ours"])
    options = parser.parse_args()
    if options.child:
        trio.run(serve_child, options.child)
    else:
        trio.run(main, options.rounds, options.seconds, options.connections)
