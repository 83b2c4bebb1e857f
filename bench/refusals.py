"""The longest that the event loop is held while the most expensive arguments of twenty schemas are refused.

    python -m bench.refusals [BYTES]

Prints, for each schema of `tests/hostile/costly.py`, the longest gap between two turns of a task that does nothing else,
and the time to the refusal, in milliseconds. The gaps hold what the machine does besides; take the smallest of some runs.
"""

from __future__ import annotations

import gc
import sys
import time

import msgspec
import trio

from carmy_engine import ExecutionRequest
from tests.hostile.costly import BODIES, app

RUNS = 3


class Pulse:
    """A task that wants to run every half millisecond, and remembers the longest that it could not."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def beat(self) -> None:
        """Run until cancelled."""
        last = time.perf_counter()
        while True:
            await trio.sleep(0.0005)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last)
            last = now


async def main(size: int) -> None:
    """Measure all schemas, with arguments of so many bytes."""
    gc.freeze()
    pulse = Pulse()
    async with app.open() as engine, trio.open_nursery() as nursery:
        nursery.start_soon(pulse.beat)
        for name, body in BODIES.items():
            await engine.execute(ExecutionRequest(tool=name, arguments=msgspec.Raw(b'{"x":%s}' % body(200))))
            request = ExecutionRequest(tool=name, arguments=msgspec.Raw(b'{"x":%s}' % body(size - 100)))
            holds: list[float] = []
            times: list[float] = []
            for _ in range(RUNS):
                await trio.sleep(0.01)
                pulse.longest = 0.0
                began = time.perf_counter()
                await engine.execute(request)
                times.append(time.perf_counter() - began)
                await trio.sleep(0.005)
                holds.append(pulse.longest)
            print(f"{name:20} held {min(holds) * 1000:8.1f} ms   refused after {min(times) * 1000:8.1f} ms")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 1024 * 1024)
