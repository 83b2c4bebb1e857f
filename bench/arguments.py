"""What it costs to take arguments and to render results, beside pydantic alone in the same run.

    python bench/arguments.py [seconds per measurement]

Prints microseconds and ratios. The peer checks less: a bare `TypeAdapter` takes unknown fields, NaN and "12" for a date.
"""

from __future__ import annotations

import functools
import json
import sys
import timeit
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import pydantic
import typing_extensions

from carmy_engine import tool
from carmy_engine._model.compiled_tool import TakesLong
from carmy_engine._schema.work import Work
from carmy_engine.testing import compile_tool

T = TypeVar("T")


class Line(pydantic.BaseModel):
    sku: str
    count: int = 1


class Order(pydantic.BaseModel):
    customer: str
    lines: list[Line]
    note: str | None = None


class Many(typing_extensions.TypedDict):
    values: list[int]


class Two(typing_extensions.TypedDict):
    query: str
    limit: int


@tool(effect="none", register=False)
def two(query: str, limit: int = 10) -> str:
    return query


@tool(effect="none", register=False)
def nested(order: Order) -> Order:
    return order


@tool(effect="none", register=False)
def numbers(values: list[int]) -> list[int]:
    return values


@tool(effect="none", register=False)
def anything(values: Any) -> Any:
    return values


@tool(effect="none", register=False)
def constrained(order: Order) -> Annotated[list[Line], pydantic.Field(max_length=100)]:
    return order.lines


def microseconds(function: Callable[[], object], seconds: float) -> float:
    """The best of five rounds, which is the one that was disturbed least."""
    timer = timeit.Timer(function)
    count, taken = timer.autorange()
    count = max(1, int(count * seconds / 5 / taken))
    return min(timer.repeat(5, count)) / count * 1e6


def row(name: str, ours: Callable[[], object], peer: Callable[[], object], seconds: float) -> None:
    """One line of the table."""
    own, other = microseconds(ours, seconds), microseconds(peer, seconds)
    print(f"{name:<34}{own:>10.2f}{other:>10.2f}{own / other:>8.2f}")


def _whole(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """The function with the check that it leaves to a worker thread."""

    def call(given: Any) -> T:
        try:
            return function(given)
        except TakesLong as long:
            checked: T = long.check(Work())
            return checked

    return call


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    order = Order(customer="ana", lines=[Line(sku="mouse"), Line(sku="pad", count=2)])
    many = list(range(100_000, 114_285))
    records = [{"id": number, "name": f"item {number}", "price": 1.5, "tags": ["a", "b"]} for number in range(1400)]
    print(f"{'':<34}{'ours µs':>10}{'bare µs':>10}{'ratio':>8}")
    inputs: list[tuple[str, Any, Any, Any]] = [
        ("two plain parameters", two, Two, {"query": "wireless mouse", "limit": 5}),
        ("a nested model", nested, Order, order.model_dump()),
        ("a list of 100 kB", numbers, Many, {"values": many}),
    ]
    for name, declared, peer, value in inputs:
        parse = _whole(compile_tool(declared, {}).parse)
        data = json.dumps(value).encode()
        validate = pydantic.TypeAdapter(peer).validate_json
        row(f"parse {name}", functools.partial(parse, data), functools.partial(validate, data, strict=True), seconds)
    outputs: list[tuple[str, Any, Any, Any]] = [
        ("a string", two, str, "wireless mouse"),
        ("a nested model", nested, Order, order),
        ("a model with a constraint", constrained, list[Line], order.lines),
        ("a list of 100 kB", numbers, list[int], many),
        ("100 kB of Any", anything, Any, records),
    ]
    for name, declared, peer, value in outputs:
        render = _whole(compile_tool(declared, {}).render)
        to_json = pydantic.TypeAdapter(peer).dump_json
        row(f"render {name}", functools.partial(render, value), functools.partial(to_json, value), seconds)


if __name__ == "__main__":
    main()
