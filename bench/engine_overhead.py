"""What the engine costs on top of the least that any such engine must do.

The floor is composed by hand from the same libraries: decode the envelope, validate the arguments, run the tool inside a
deadline scope, render the output, build the answer. The engine does that and everything it promises besides. Both are
measured in turns, in one run, and reported as a ratio, so that the machine's speed cancels out.

Run with ``python -m bench.engine_overhead [--rounds N] [--calls N]``.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pydantic
import trio
from pydantic import TypeAdapter

from carmy_engine import ExecutionRequest, codec, open_engine, tool
from carmy_engine._tools.declaration import declaration_of
from carmy_engine.testing import compile_tool

Answer = Callable[[bytes], Awaitable[bytes]]


class Product(pydantic.BaseModel):
    """What the search finds."""

    sku: str
    name: str
    price_cents: int


CATALOG = [
    Product(sku=f"SKU-{n}", name=f"{kind} {n}", price_cents=100 * n) for n in range(8) for kind in ("mouse", "keyboard")
]


@tool(effect="read", parallel_safe=True, register=False)
async def echo(text: str) -> str:
    """Give back the text."""
    return text


@tool(effect="read", register=False)
async def search(query: str, limit: int = 10) -> list[Product]:
    """Search the catalog.

    Args:
        query: Words to look for.
        limit: Most results to return.
    """
    return [product for product in CATALOG if query in product.name][:limit]


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The request as a transport receives it."""

    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    request_id: str | None = None
    timeout_ms: float | None = None


class EchoArguments(pydantic.BaseModel):
    """Of `echo`."""

    text: str


class SearchArguments(pydantic.BaseModel):
    """Of `search`."""

    query: str
    limit: int = 10


class FloorAnswer(msgspec.Struct):
    """The least an answer says."""

    execution_id: str
    status: str
    data: msgspec.Raw


def floor_of(function: Callable[..., Awaitable[object]], arguments: type[pydantic.BaseModel], output: Any) -> Answer:
    """The hand-composed path for one tool."""
    decode = msgspec.json.Decoder(Envelope).decode
    encode = msgspec.json.Encoder().encode
    validate = TypeAdapter(arguments).validator.validate_json
    render = TypeAdapter(output).serializer.to_json

    async def answer(body: bytes) -> bytes:
        envelope = decode(body)
        valid = validate(bytes(envelope.arguments))
        with trio.move_on_after(30):
            result = await function(**valid.__dict__)
        return encode(FloorAnswer("exec_0", "completed", msgspec.Raw(render(result))))

    return answer


def bodies(body: bytes, calls: int, serial: list[int]) -> list[bytes]:
    """The same request with a fresh request_id each."""
    serial[0] += calls
    return [body[:-1] + b',"request_id":"id-%d"}' % n for n in range(serial[0] - calls, serial[0])]


async def measure(answer: Answer, requests: list[bytes]) -> float:
    """Microseconds per call."""
    started = time.perf_counter()
    for body in requests:
        await answer(body)
    return (time.perf_counter() - started) / len(requests) * 1e6


async def measure_sizes(rounds: int, calls: int) -> None:
    """How the cost of a call grows with the number of registered tools."""
    compiled = compile_tool(declaration_of(echo), {})
    request = ExecutionRequest(tool="tool_0", arguments=msgspec.Raw(b'{"text":"mouse"}'))
    samples: dict[int, list[float]] = {1: [], 100: [], 10_000: []}
    for _ in range(rounds):
        for size, column in samples.items():
            tools = [
                dataclasses.replace(compiled, spec=msgspec.structs.replace(compiled.spec, name=f"tool_{n}"))
                for n in range(size)
            ]
            async with open_engine(tools) as engine:
                started = time.perf_counter()
                for _ in range(calls):
                    await engine.execute(request)
                column.append((time.perf_counter() - started) / calls * 1e6)
    base = statistics.median(samples[1])
    for size, column in samples.items():
        middle = statistics.median(column)
        print(f"{size:6} tools: {middle:6.2f} µs per call, {middle / base:.2f} of the cost with one tool")


async def main(rounds: int, calls: int) -> None:
    """Measure and print."""
    await measure_floor(rounds, calls)
    print()
    await measure_sizes(rounds, calls)


async def measure_floor(rounds: int, calls: int) -> None:
    """The engine beside the floor."""
    serial = [0]
    async with open_engine([compile_tool(declaration_of(function), {}) for function in (echo, search)]) as engine:
        decode = msgspec.json.Decoder(Envelope).decode

        async def ours(body: bytes) -> bytes:
            envelope = decode(body)
            request = ExecutionRequest(
                tool=envelope.tool,
                arguments=envelope.arguments,
                request_id=envelope.request_id,
                timeout_ms=envelope.timeout_ms,
            )
            return codec.answer_body(await engine.execute(request))

        print(f"{'tool':8} {'floor µs':>9} {'engine µs':>10} {'ratio':>6} {'with request_id µs':>19} {'ratio':>6}")
        for name, body, floor in (
            ("echo", b'{"tool":"echo","arguments":{"text":"mouse"}}', floor_of(echo, EchoArguments, str)),
            (
                "search",
                b'{"tool":"search","arguments":{"query":"mouse"}}',
                floor_of(search, SearchArguments, list[Product]),
            ),
        ):
            assert msgspec.json.decode(await ours(body))["data"] == msgspec.json.decode(await floor(body))["data"]
            samples: list[tuple[float, float, float]] = []
            for _ in range(rounds):
                plain = [body] * calls
                samples.append(
                    (
                        await measure(floor, plain),
                        await measure(ours, plain),
                        await measure(ours, bodies(body, calls, serial)),
                    )
                )
            base, engine_us, with_id = (statistics.median(column) for column in zip(*samples, strict=True))
            ratio, ratio_id = (statistics.median(s[i] / s[0] for s in samples) for i in (1, 2))
            print(f"{name:8} {base:9.2f} {engine_us:10.2f} {ratio:6.2f} {with_id:19.2f} {ratio_id:6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=3000)
    options = parser.parse_args()
    trio.run(main, options.rounds, options.calls)
