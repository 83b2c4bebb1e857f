"""A call of a plain function in a thread and in a worker process, the start of a worker, and its memory.

    python -m bench.workers [--calls 1000]

Prints medians of five rounds: microseconds of one call after another, and the milliseconds from a kill to the next answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from pathlib import Path

import trio

from carmy_engine import App, Engine, ExecutionRequest, Settings, WorkerSettings, tool

ROUNDS = 5


@tool(effect="none", parallel_safe=True, register=False)
def in_thread(text: str) -> str:
    """Return the text."""
    return text


@tool(effect="none", parallel_safe=True, run_in="process", register=False)
def in_process(text: str) -> str:
    """Return the text."""
    return text


@tool(effect="none", parallel_safe=True, run_in="process", register=False)
def worker() -> int:
    """The process."""
    return os.getpid()


async def microseconds(engine: Engine, name: str, calls: int) -> float:
    request = ExecutionRequest(tool=name, arguments={"text": "hello"})
    began = time.perf_counter()
    for _ in range(calls):
        (await engine.execute(request)).unwrap()
    return (time.perf_counter() - began) / calls * 1e6


async def start_ms(engine: Engine) -> float:
    """From the death of the only worker to the answer of the next one."""
    pid = await engine.call(worker)
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    while await engine.call(worker) == pid:  # it had not died yet
        pass
    return (time.perf_counter() - began) * 1000


async def main(calls: int) -> None:
    settings = Settings(workers=WorkerSettings(max_processes=1))
    async with App("bench", settings=settings).add(in_thread, in_process, worker).open() as engine:
        for name in ("in_thread", "in_process"):
            await microseconds(engine, name, calls // 10)
            found = [await microseconds(engine, name, calls) for _ in range(ROUNDS)]
            print(f"{name:12} {statistics.median(found):8.0f} µs a call")
        pages = int(Path(f"/proc/{await engine.call(worker)}/statm").read_text().split()[1])  # noqa: ASYNC240
        print(f"memory       {pages * os.sysconf('SC_PAGE_SIZE') / 2**20:8.0f} MB of a worker")
        print(f"restart      {statistics.median([await start_ms(engine) for _ in range(ROUNDS)]):8.0f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.workers")
    parser.add_argument("--calls", type=int, default=1000)
    trio.run(main, parser.parse_args().calls)
