"""The longest that the event loop is held while the most expensive arguments of twenty schemas are refused.

    python -m bench.refusals [BYTES]

Prints, for each schema of `tests/hostile/costly.py`, the longest gap between two turns of a task that does nothing else,
and the time to the refusal, in milliseconds. The gaps hold what the machine does besides; take the smallest of some runs.

Then, for messages with these arguments and for others that are no valid requests, the longest piece of the check that comes before
the arguments, in milliseconds of processor time.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import time

import msgspec
import trio

from carmy_engine import AgentError, ExecutionRequest
from carmy_http.api.execute import parse
from tests.hostile.costly import BODIES, ENVELOPES, app, request

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


def longest_piece(body: bytes) -> float:
    """The longest that the check of one message runs without a pause, in seconds."""
    best = float("inf")
    for _ in range(RUNS):
        times = [time.thread_time()]
        with contextlib.suppress(AgentError):
            parse(body, (), lambda to=times: to.append(time.thread_time()))  # type: ignore[misc]
        times.append(time.thread_time())
        best = min(best, max(after - before for before, after in itertools.pairwise(times)))
    return best


def messages(size: int) -> None:
    """Measure the check of messages of so many bytes."""
    for name in BODIES:
        print(f"message {name:20} {longest_piece(b'{' + request(name, size - 2) + b'}') * 1000:8.1f} ms")
    for name, envelope in ENVELOPES.items():
        print(f"bad message {name:16} {longest_piece(b'{' + envelope(size - 2) + b'}') * 1000:8.1f} ms")


if __name__ == "__main__":
    bytes_given = int(sys.argv[1]) if len(sys.argv) > 1 else 1024 * 1024
    trio.run(main, bytes_given)
    messages(bytes_given)
