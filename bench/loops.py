"""Calls from each kind of program, beside round trips between loops that others offer.

Rows: a trivial tool of trio and one of asyncio, called under trio, through `carmy_engine.aio` and through `carmy_engine.blocking`; the round
trip of ``asyncio.run_coroutine_threadsafe`` and of anyio's ``BlockingPortal``, which call a coroutine that does nothing; and a bridge of thirty
lines, which runs each call of the engine in a task of its own and wakes each thread for each call.

Columns: round trips between two threads; microseconds for a call, one by one and with 64 at the same time; and the ratios to each of the
peers. The rows are measured in turn, in many short rounds; ratios are medians over the rounds.

On several cores the threads also wait for the interpreter's lock, and times double or not with whatever else the machine does. ``--cores 1``
gives numbers that repeat.

Run with ``python -m bench.loops [--rounds N] [--calls N] [--cores N]``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from anyio.from_thread import start_blocking_portal

from carmy_engine import App, ExecutionRequest, ExecutionResult, aio, blocking

TOGETHER = 64

app = App("bench")


@app.tool(effect="none", parallel_safe=True)
async def on_trio() -> int:
    """Do nothing."""
    return 1


@app.tool(effect="none", parallel_safe=True, backend="asyncio")
async def on_asyncio() -> int:
    """Do nothing."""
    return 1


async def nothing() -> int:
    """Do nothing."""
    return 1


class Bridge:
    """A trio thread for an asyncio loop, as one writes it by hand."""

    async def __aenter__(self) -> Bridge:
        self.loop = asyncio.get_running_loop()
        ready = self.loop.create_future()
        self.thread = threading.Thread(target=trio.run, args=(self.main, ready))
        self.thread.start()
        await ready
        return self

    async def __aexit__(self, *_: object) -> None:
        self.token.run_sync_soon(self.stop.set)
        await asyncio.to_thread(self.thread.join)

    async def main(self, ready: asyncio.Future[None]) -> None:
        self.token, self.stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with app.open() as self.engine, trio.open_nursery() as self.nursery:
            self.loop.call_soon_threadsafe(ready.set_result, None)
            await self.stop.wait()

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        future: asyncio.Future[ExecutionResult] = self.loop.create_future()

        async def run() -> None:
            result = await self.engine.execute(request)
            self.loop.call_soon_threadsafe(future.set_result, result)

        self.token.run_sync_soon(lambda: self.nursery.start_soon(run))
        return await future


# --- one round of each kind of program: microseconds a call, one by one and together


def seconds_of(calls: int, run: Callable[[int], object]) -> float:
    run(calls // 10)
    began = time.perf_counter()
    run(calls)
    return (time.perf_counter() - began) / calls * 1e6


async def seconds_of_async(calls: int, run: Callable[[int], Awaitable[object]]) -> float:
    await run(calls // 10)
    began = time.perf_counter()
    await run(calls)
    return (time.perf_counter() - began) / calls * 1e6


def under_trio(calls: int, tool: str) -> tuple[float, float]:
    request = ExecutionRequest(tool=tool)

    async def main() -> tuple[float, float]:
        async with app.open() as engine:

            async def single(count: int) -> None:
                for _ in range(count):
                    await engine.execute(request)

            async def together(count: int) -> None:
                for _ in range(count // TOGETHER + 1):
                    async with trio.open_nursery() as nursery:
                        for _ in range(TOGETHER):
                            nursery.start_soon(engine.execute, request)

            return await seconds_of_async(calls, single), await seconds_of_async(calls, together)

    return trio.run(main)


def under_asyncio(calls: int, opened: Any, tool: str) -> tuple[float, float]:
    request = ExecutionRequest(tool=tool)

    async def main() -> tuple[float, float]:
        async with opened() as engine:

            async def single(count: int) -> None:
                for _ in range(count):
                    await engine.execute(request)

            async def together(count: int) -> None:
                for _ in range(count // TOGETHER + 1):
                    await asyncio.gather(*(engine.execute(request) for _ in range(TOGETHER)))

            return await seconds_of_async(calls, single), await seconds_of_async(calls, together)

    return asyncio.run(main())


def in_threads(calls: int, call: Callable[[], object]) -> tuple[float, float]:
    def single(count: int) -> None:
        for _ in range(count):
            call()

    with ThreadPoolExecutor(TOGETHER) as pool:

        def together(count: int) -> None:
            share = count // TOGETHER + 1
            for done in [pool.submit(single, share) for _ in range(TOGETHER)]:
                done.result()

        return seconds_of(calls, single), seconds_of(calls, together)


def through_blocking(calls: int, tool: str) -> tuple[float, float]:
    request = ExecutionRequest(tool=tool)
    with blocking.open_app(app) as engine:
        return in_threads(calls, lambda: engine.execute(request))


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def through_threadsafe(calls: int) -> tuple[float, float]:
    with loop_in_thread() as loop:
        return in_threads(calls, lambda: asyncio.run_coroutine_threadsafe(nothing(), loop).result())


def through_portal(calls: int) -> tuple[float, float]:
    with start_blocking_portal() as portal:
        return in_threads(calls, lambda: portal.call(nothing))


@asynccontextmanager
async def bridge() -> AsyncIterator[Bridge]:
    async with Bridge() as made:
        yield made


THREADSAFE, PORTAL, BRIDGE = "run_coroutine_threadsafe", "BlockingPortal", "bridge of thirty lines, tool of trio"

ROWS: dict[str, tuple[int, Callable[[int], tuple[float, float]]]] = {
    "under trio, tool of trio": (0, lambda calls: under_trio(calls, "on_trio")),
    "under trio, tool of asyncio": (1, lambda calls: under_trio(calls, "on_asyncio")),
    "aio, tool of trio": (1, lambda calls: under_asyncio(calls, lambda: aio.open_app(app), "on_trio")),
    "aio, tool of asyncio": (2, lambda calls: under_asyncio(calls, lambda: aio.open_app(app), "on_asyncio")),
    "blocking, tool of trio": (1, lambda calls: through_blocking(calls, "on_trio")),
    "blocking, tool of asyncio": (2, lambda calls: through_blocking(calls, "on_asyncio")),
    THREADSAFE: (1, through_threadsafe),
    PORTAL: (1, through_portal),
    BRIDGE: (1, lambda calls: under_asyncio(calls, bridge, "on_trio")),
}


def main(rounds: int, calls: int) -> None:
    """Measure and print."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ROWS}
    for _ in range(rounds):
        for name, (_, run) in ROWS.items():
            found[name].append(run(calls))
    print(f"{'':38} trips {'one by one, µs':>15} {'64 together, µs':>16}   / threadsafe     / portal         / bridge")
    for name, times in found.items():
        line = f"{name:38} {ROWS[name][0]:5}"
        line += "".join(f" {statistics.median(each[column] for each in times):15.1f}" for column in (0, 1)) + "  "
        for peer in (THREADSAFE, PORTAL, BRIDGE):
            pairs = list(zip(times, found[peer], strict=True))
            ratios = (statistics.median(mine[column] / other[column] for mine, other in pairs) for column in (0, 1))
            line += "  " + " ".join(f"{ratio:6.2f}" for ratio in ratios)
        print(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--cores", type=int, help="run on this number of cores; all by default")
    options = parser.parse_args()
    if options.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    main(options.rounds, options.calls)
