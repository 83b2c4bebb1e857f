"""What typed calls in process and the calls of a model's turn cost.

- ``engine.call`` beside a floor composed by hand from the same libraries: arguments into JSON, validated, the tool inside a
  deadline scope, its output rendered. The promise is at most twice the floor.
- ``engine.run_calls`` of 32 parallel-safe calls that each wait beside the wait itself and 32 times the floor. The promise is at
  most 1.3 times the slowest call, plus that.

Run with ``python -m bench.calls [--rounds N] [--calls N]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pydantic
import trio
from pydantic import TypeAdapter

from bench.engine_overhead import EchoArguments, Product, SearchArguments, echo, search
from carmy_engine import App, Engine, ModelCall, tool

WAIT_SECONDS = 0.02
CALLS_IN_TURN = 32


@tool(effect="read", parallel_safe=True, register=False)
async def wait(text: str) -> str:
    """Wait, then give back the text."""
    await trio.sleep(WAIT_SECONDS)
    return text


def floor_of(
    function: Callable[..., Awaitable[Any]], arguments: type[pydantic.BaseModel], output: Any
) -> Callable[..., Awaitable[Any]]:
    """A typed call by hand."""
    encode = msgspec.json.Encoder().encode
    validate = TypeAdapter(arguments).validator.validate_json
    render = TypeAdapter(output).serializer.to_json

    async def call(**given: Any) -> Any:
        valid = validate(encode(given))
        with trio.move_on_after(30):
            result = await function(**valid.__dict__)
        render(result)
        return result

    return call


async def microseconds(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    """Per call."""
    started = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - started) / calls * 1e6


async def measure_call(engine: Engine, rounds: int, calls: int) -> float:
    """Typed calls; returns the floor of the simplest one, in microseconds."""
    print(f"{'tool':8} {'floor µs':>9} {'engine.call µs':>15} {'ratio':>6}")
    lowest = 0.0
    cases: tuple[tuple[Any, dict[str, Any], type[pydantic.BaseModel], Any], ...] = (
        (echo, {"text": "mouse"}, EchoArguments, str),
        (search, {"query": "mouse"}, SearchArguments, list[Product]),
    )
    for function, given, arguments, output in cases:
        floor = floor_of(function, arguments, output)
        samples = [
            (
                await microseconds(lambda: floor(**given), calls),  # noqa: B023 - called at once
                await microseconds(lambda: engine.call(function, **given), calls),  # noqa: B023 - as above
            )
            for _ in range(rounds)
        ]
        base, ours = (statistics.median(column) for column in zip(*samples, strict=True))
        ratio = statistics.median(sample[1] / sample[0] for sample in samples)
        lowest = lowest or base
        print(f"{function.__name__:8} {base:9.2f} {ours:15.2f} {ratio:6.2f}")
    return lowest


async def measure_turn(engine: Engine, rounds: int, floor: float) -> None:
    """A turn of parallel calls."""
    samples: list[tuple[float, float]] = []
    for number in range(rounds):
        started = time.perf_counter()
        await trio.sleep(WAIT_SECONDS)
        slowest = time.perf_counter() - started
        calls = [
            ModelCall(tool="wait", arguments={"text": "a"}, call_id=f"{number}-{place}")
            for place in range(CALLS_IN_TURN)
        ]
        started = time.perf_counter()
        results = await engine.run_calls(calls)
        samples.append((slowest, time.perf_counter() - started))
        assert all(result.result.error is None for result in results)
    slowest, turn = (statistics.median(column) * 1000 for column in zip(*samples, strict=True))
    allowed = 1.3 * slowest + CALLS_IN_TURN * floor / 1000
    print(f"{CALLS_IN_TURN} calls of {slowest:.2f} ms side by side: {turn:.2f} ms; the limit is {allowed:.2f} ms")


async def main(rounds: int, calls: int) -> None:
    """Measure and print."""
    async with App("bench").add(echo, search, wait).open() as engine:
        floor = await measure_call(engine, rounds, calls)
        await measure_turn(engine, rounds, floor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    trio.run(main, options.rounds, options.calls)
