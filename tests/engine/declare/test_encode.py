"""In-process arguments: the JSON a transport would have sent, through the same table of types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import types
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, HttpUrl

from carmy_engine.codec import MAX_JSON_DEPTH
from carmy_engine.errors import AgentError
from carmy_engine.transport import encode_arguments

from .conftest import taking_tool


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    a: int = 1
    when: dt.date = dt.date(2024, 1, 1)


@dataclasses.dataclass
class Data:
    a: int = 1


class Struct(msgspec.Struct, rename="camel"):
    one_two: int = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (2**70, str(2**70)),
        (Text("a"), '"a"'),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), '"2024-01-01T00:00:00Z"'),
        (dt.timedelta(hours=1), '"PT3600S"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (b"a", '"YQ=="'),
        (Colour.RED, '"red"'),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (Model(), '{"a":1,"when":"2024-01-01"}'),
        (Data(), '{"a":1}'),
        (Struct(), '{"oneTwo":1}'),
        (HttpUrl("http://a.b"), '"http://a.b/"'),
        ([None, {"a": None}], '[null,{"a":null}]'),
    ],
)
def test_python_values_take_their_json_form(value: Any, text: str) -> None:
    """Values that JSON has no type for are sent in the form that the table of types takes."""
    assert encode_arguments({"x": value}).decode() == f'{{"x":{text}}}'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dt.datetime, dt.datetime(2024, 1, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        (dt.date, dt.date(2024, 1, 1)),
        (dt.time, dt.time(1, 2, 3)),
        (dt.timedelta, dt.timedelta(days=-1, seconds=5, microseconds=6)),
        (UUID, UUID(int=1)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\xff\x00"),
        (Colour, Colour.RED),
        (list[Model], [Model()]),
        (list[Data], [Data()]),
        (list[Struct], [Struct()]),
    ],
)
def test_values_arrive_as_they_were(annotation: Any, value: Any) -> None:
    """What a Python caller passes is what the tool gets."""
    assert taking_tool(annotation).parse(encode_arguments({"x": value})) == {"x": value}


def test_no_arguments() -> None:
    """None means none."""
    assert encode_arguments(None) == b"{}"


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"x": float("nan")}, "INVALID_ARGUMENTS", "argument 'x' must be a finite number"),
        ({"x": {"y": [1, float("inf")]}}, "INVALID_ARGUMENTS", "argument 'x.y[1]' must be a finite number"),
        ({"x": [Data(float("nan"))]}, "INVALID_ARGUMENTS", "argument 'x[0].a' must be a finite number"),  # type: ignore[arg-type]
        ({"x": object()}, "INVALID_ARGUMENTS", "argument 'x' is of type object, which has no JSON form"),
        ({"x": [1, ValueError()]}, "INVALID_ARGUMENTS", "argument 'x[1]' is of type ValueError"),
        ({"x": {(1, 2): 3}}, "INVALID_ARGUMENTS", "argument 'x' has a key that cannot be a name in a JSON object"),
        ([1], "INVALID_ARGUMENTS", "the arguments must be a mapping of names to values"),
        ("{}", "INVALID_ARGUMENTS", "the arguments must be a mapping of names to values"),
        ({"x": "\ud800"}, "INVALID_REQUEST", "lone surrogate"),
        ({"\ud800": 1}, "INVALID_REQUEST", "lone surrogate"),
        ({"x": CIRCULAR}, "INVALID_REQUEST", "contain themselves"),
        ({"x": nested(MAX_JSON_DEPTH)}, "INVALID_REQUEST", "nested more than 128 levels"),
        ({"x": nested(100_000)}, "INVALID_REQUEST", "nested more than 128 levels"),
    ],
)
def test_what_json_cannot_carry(arguments: Any, code: str, words: str) -> None:
    """Values without a JSON form are refused with their path; none of them crashes or turns into null."""
    with pytest.raises(AgentError) as caught:
        encode_arguments(arguments)
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.__context__ is None


def test_the_deepest_that_passes() -> None:
    """Exactly the limit of levels is taken."""
    assert encode_arguments({"x": nested(MAX_JSON_DEPTH - 1)})
