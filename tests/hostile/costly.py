"""An application of twenty schemas, and for each the arguments that take the most to refuse.

Run by the tests as a server in a process of its own: ``carmy serve tests/hostile/costly.py``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from carmy_engine import AgentContext, App, Arg, Effect, ToolSpec
from tests.support.recursive import Sum

app = App("costly")
PRIME = sys.hash_info.modulus


class Line(BaseModel):
    sku: str
    count: int
    price: float


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


class Rich(BaseModel):
    a: list[int] = []
    b: dict[str, int] = {}
    c: str = ""
    d: int = 0
    e: float = 0.0


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int


Nested = typing_extensions.TypeAliasType("Nested", "int | str | list[Nested] | dict[str, Nested]")


class Typed(typing_extensions.TypedDict):
    x: int
    y: int


@dataclasses.dataclass
class Data:
    x: int
    y: int = 0


class Point(msgspec.Struct):
    x: int
    y: int


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class ByHand:
    """A tool with a schema of its own."""

    def __init__(self, name: str, items: dict[str, Any], **more: Any) -> None:
        schema = {"type": "object", "properties": {"x": {"type": "array", "items": items, **more}}, "required": ["x"]}
        self.spec = ToolSpec(
            name=name,
            description="Take.",
            input_schema=schema,
            output_schema={},
            effect=Effect.NONE,
            parallel_safe=True,
        )

    async def execute(self, ctx: AgentContext, input: dict[str, Any]) -> None:  # noqa: A002
        """Take anything."""


def listed(item: str, last: str | None = None) -> Callable[[int], bytes]:
    """An array as long as the message may be."""

    def make(size: int) -> bytes:
        end = item if last is None else last
        return ("[" + (item + ",") * ((size - 2 - len(end)) // (len(item) + 1)) + end + "]").encode()

    return make


def named(name: Callable[[int], str], value: str) -> Callable[[int], bytes]:
    """An object as long as the message may be."""

    def make(size: int) -> bytes:
        parts: list[str] = []
        length = 2
        while length < size - 64:
            parts.append(f'"{name(len(parts))}":{value}')
            length += len(parts[-1]) + 1
        return ("{" + ",".join(parts) + "}").encode()

    return make


def numbered(item: Callable[[int], str]) -> Callable[[int], bytes]:
    """An array of different items."""

    def make(size: int) -> bytes:
        parts: list[str] = []
        length = 2
        while length < size - 64:
            parts.append(item(len(parts)))
            length += len(parts[-1]) + 1
        return ("[" + ",".join(parts) + "]").encode()

    return make


def nested(levels: int, opening: str, closing: str, inner: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Something long behind many levels."""

    def make(size: int) -> bytes:
        around = levels * (len(opening) + len(closing))
        return opening.encode() * levels + inner(size - around) + closing.encode() * levels

    return make


def _hexadecimal(number: int) -> str:
    return f"{number:x}"


BODIES: dict[str, Callable[[int], bytes]] = {}
"""By the name of the tool: the value of its argument ``x``, at most so many bytes."""


def schema(name: str, annotation: Any, body: Callable[[int], bytes]) -> None:
    """Add a tool whose argument has this type."""

    async def take(**_: Any) -> None: ...

    take.__name__ = name
    take.__annotations__ = {"x": Annotated[annotation, Arg()], "return": None}
    take.__signature__ = _signature(take.__annotations__["x"])  # type: ignore[attr-defined]
    app.tool(effect="none", parallel_safe=True, description=name)(take)
    BODIES[name] = body


def _signature(annotation: Any) -> Any:
    import inspect

    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter("x", kind, annotation=annotation)], return_annotation=None)


schema("scalars", list[int | dt.date | UUID | Decimal | bool], listed('""'))
schema("models", list[Line], listed("{}"))
schema("lists", list[list[int]], listed('[""]'))
schema("table", dict[str, int | dt.date | UUID], named(_hexadecimal, '""'))
schema("unknown", Closed, named(_hexadecimal, "0"))
schema("tagged", list[Annotated[Cat | Dog, Field(discriminator="kind")]], listed('{"kind":"cat"}'))
schema("untagged", list[Cat | Dog | Line], listed("{}"))
schema("set_of_numbers", set[int], numbered(lambda number: str(number * PRIME)))
schema("table_of_numbers", dict[int, int], named(lambda number: str(number * PRIME), "0"))
schema("decimals", list[Decimal], listed('"x"'))
schema("patterns", list[Annotated[str, Field(pattern=r"^(a|b)*c$")]], listed('"ababab"'))
schema("choices", list[Colour | Literal["green", 1]], listed('"q"'))
schema("sums", Sum, nested(50, '{"left":1,"factor":1,"right":', "}", listed("1")))
schema("json", Nested, nested(110, "[", "]", listed("1", "null")))
schema("rich", list[Rich], listed("{}", "0"))
schema("typed", list[Typed], listed("{}"))
schema("data", list[Data | None], listed('{"z":0}'))
schema("structs", list[Point], listed("{}"))
schema("tuples", tuple[int, ...], listed("[]"))
schema("lists_or_tables", list[int] | dict[str, Line] | None, named(_hexadecimal, "{}"))
schema("lists_of_either", list[list[int]] | list[list[str]], listed("[1]", "[[]]"))

by_hand = {
    "any_of": ByHand("any_of", {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 2}, {"const": None}]}),
    "unique": ByHand("unique", {"type": "object"}, uniqueItems=True, maxItems=3),
}
app.add(*by_hand.values())
BODIES["any_of"] = listed('""')
BODIES["unique"] = numbered(lambda number: f'{{"a":{number}}}')


def request(name: str, size: int) -> bytes:
    """The members of a request for the most expensive refusal, at most so many bytes."""
    begin = f'"tool":"{name}","arguments":{{"x":'.encode()
    return begin + BODIES[name](size - len(begin) - 2) + b"}"


ENVELOPES: dict[str, Callable[[int], bytes]] = {
    "unknown": lambda size: b'"tool":"any_of","arguments":{"x":%b},"nope":1' % listed("[]")(size - 50),
    "escaped": lambda size: b'"\\u0074ool":"any_of","t\\u006fol":"b","arguments":{"x":%b}' % listed("[]")(size - 60),
    "numbers": lambda size: b'"tool":"any_of","arguments":{"x":[%b,1e999]}' % listed('"1e999"')(size - 60),
    "deep": lambda size: b'"tool":"any_of","arguments":{"x":%b}' % listed("[]", "[" * 200 + "]" * 200)(size - 60),
}
"""By name: the members of a request that is no valid one, at most so many bytes."""
