"""Validator, schema and renderer of any type agree with each other, and refuse in one way only."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from decimal import Decimal
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import jsonschema
import msgspec
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from carmy_engine import Arg
from carmy_engine.errors import AgentError, DeclarationError
from carmy_engine.testing import CompiledTool

from .conftest import giving_tool, taking_tool


class Number(enum.IntEnum):
    ONE = 1


class Colour(enum.StrEnum):
    RED = "red"


class Line(BaseModel):
    sku: str
    count: int = 1


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str


class Dog(BaseModel):
    kind: Literal["dog"]
    age: int
    lines: list[Line] = []


class Card(msgspec.Struct, tag=True):
    x: int


class Cash(msgspec.Struct, tag=True):
    cents: int | None = None


@dataclasses.dataclass
class Data:
    x: int
    lines: list[Line] = dataclasses.field(default_factory=list)


class Typed(typing_extensions.TypedDict, total=False):
    x: int
    name: str


LEAVES = st.sampled_from(
    [
        int, float, bool, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, UUID, Number, Colour, Any,
        type(None), Literal["a", 1], Literal[True], Annotated[int, Field(ge=2)], Annotated[str, Field(min_length=1)],
        Line, Cat, Data, Typed, Card, Card | Cash, Annotated[Cat | Dog, Field(discriminator="kind")],
    ]
)  # fmt: skip


def _pair(two: tuple[Any, Any]) -> Any:
    return tuple.__class_getitem__(two)


def _either(two: tuple[Any, Any]) -> Any:
    return Union.__getitem__(two)


def _list(one: Any) -> Any:
    return list.__class_getitem__(one)


def _table(one: Any) -> Any:
    return dict.__class_getitem__((str, one))


def _optional(one: Any) -> Any:
    return Union.__getitem__((one, None))


ANNOTATIONS = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(_list)
        | inner.map(_table)
        | inner.map(_optional)
        | st.tuples(inner, inner).map(_pair)
        | st.tuples(inner, inner).map(_either)
    ),
    max_leaves=4,
)
TEXTS = [
    "", "a", "red", "YQ==", "1.50", "2024-01-01", "2024-01-01T00:00:00Z", "10:00", "PT1H", "cat", "dog", "Card", "NaN",
    "12345678-1234-1234-1234-123456789abc",
]  # fmt: skip
OBJECTS: list[dict[str, Any]] = [
    {"sku": "a"}, {"kind": "cat", "name": "x"}, {"kind": "dog", "age": 1, "lines": [{"sku": "a"}]}, {"kind": "emu"},
    {"type": "Card", "x": 1}, {"type": "Cash"}, {"x": 1}, {"x": 1, "name": "a"}, {"x": 1, "lines": [{"sku": "a", "n": 1}]},
]  # fmt: skip
NAMES = st.sampled_from(["a", "x", "sku", "kind", "name", "type"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, -1, 2**60, 30.0, 1.5])
    | st.sampled_from(TEXTS)
    | st.sampled_from(OBJECTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def outcome(taken: CompiledTool, whole: Any) -> Any:
    """What the function would get, or the error."""
    try:
        return taken.parse(json.dumps(whole).encode())["x"]
    except AgentError as error:
        return error


@given(ANNOTATIONS, st.lists(VALUES, min_size=10, max_size=30))
def test_any_type_with_any_value(annotation: Any, values: list[Any]) -> None:
    """What the validator takes the schema allows; what comes out fits the output schema; what is refused is explained."""
    try:
        taken = taking_tool(Annotated[annotation, Arg()])
        given_back = giving_tool(annotation)
    except DeclarationError as error:
        if "cannot be distinguished" not in str(error):  # two Structs met in a union
            raise
        return
    allowed = jsonschema.Draft202012Validator(taken.spec.input_schema)
    promised = jsonschema.Draft202012Validator(given_back.spec.output_schema)
    for value in values:
        whole = {"x": value}
        found = outcome(taken, whole)
        if isinstance(found, AgentError):
            assert found.code == "INVALID_ARGUMENTS"
            assert found.details is not None
            assert found.details["problems"]
            assert "\0" not in found.message
        else:
            assert allowed.is_valid(whole), whole
            assert promised.is_valid(json.loads(given_back.render(found))), found
