"""Whatever a signature says: the schema, the check of arguments and the answer agree.

Types are drawn from all rows of the table, nested in each other, with constraints, validators and aliases. Values are drawn
from what pydantic writes for the types, and from anything.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import enum
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Union
from uuid import UUID

import jsonschema
import msgspec
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
    WrapValidator,
    model_validator,
)

from carmy_engine import Arg
from carmy_engine.errors import AgentError, DeclarationError
from carmy_engine.testing import CompiledTool
from tests.engine.declare.conftest import giving_tool, taking_tool

FORMATS = jsonschema.FormatChecker(formats=["date", "uuid", "ipv4"])


@FORMATS.checks("date-time")
def is_date_time(text: object) -> bool:
    """True for a date and time, with or without a time zone."""
    return not isinstance(text, str) or re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", text) is not None


@FORMATS.checks("time")
def is_time(text: object) -> bool:
    """True for a time, with or without a time zone."""
    return not isinstance(text, str) or re.match(r"\d\d:\d\d", text) is not None


@FORMATS.checks("duration")
def is_duration(text: object) -> bool:
    """True for a duration, negative ones included."""
    return not isinstance(text, str) or re.match(r"-?P[0-9T]", text) is not None


def encoded(_: Any, encoding: Any, text: Any, __: Any) -> Any:
    """What the library lacks: the check of ``contentEncoding``."""
    if not isinstance(text, str):
        return
    try:
        is_valid = encoding != "base64" or base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        is_valid = False
    if not is_valid:
        yield jsonschema.ValidationError("not base64")


Validator: Any = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"contentEncoding": encoded})


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    INTEGER = 1
    TEXT = "1"
    PAIR = (0, 1)
    DATE = dt.date(2024, 1, 1)


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Kind(enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Line(BaseModel):
    sku: str
    count: int = 1
    note: str | None = None


class Cat(BaseModel):
    kind: Literal[Kind.CAT]
    name: str = "Tom"


class Dog(BaseModel):
    kind: Literal[Kind.DOG]
    age: Annotated[int, Field(ge=0)]
    lines: list[Line] = []


class Either(BaseModel, validate_by_name=True):
    order_id: int = Field(alias="orderId")
    other: str = Field("x", validation_alias=AliasChoices("a", "b"), serialization_alias="c")


class ByName(BaseModel, validate_by_name=True, validate_by_alias=False, serialize_by_alias=False):
    order_id: int = Field(alias="orderId")


class Seen(BaseModel):
    corner: tuple[int, int]
    days: set[dt.date] = set()

    @model_validator(mode="before")
    @classmethod
    def _see(cls, given: Any) -> Any:
        return given


class Open(BaseModel, extra="allow"):
    a: int = 1


class Valued(BaseModel, use_enum_values=True):
    colour: Colour
    number: Number | None = None


class Tree(BaseModel):
    name: str = ""
    kids: list[Tree] = []


@dataclasses.dataclass
class Data:
    x: int
    line: Line | None = None
    sizes: dict[str, float] = dataclasses.field(default_factory=dict)


class Typed(typing_extensions.TypedDict, total=False):
    x: int
    name: typing_extensions.Required[str]


class Pair(NamedTuple):
    x: int
    y: str = "a"


class Part(msgspec.Struct, rename="camel"):
    part_number: Annotated[int, msgspec.Meta(ge=1)]
    next_one: Part | None = None


class Card(msgspec.Struct, tag=True):
    x: int


class Cash(msgspec.Struct, tag=True):
    cents: int | None = None


def same(value: Any) -> Any:
    return value


LEAVES = st.sampled_from(
    [
        int, float, bool, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, UUID, Any, type(None),
        AwareDatetime, Base64Bytes, PurePosixPath, Number, Colour, Mixed, Right, Literal["a", 1], Literal[True],
        Literal[Mixed.PAIR, "b", None], Literal["a", "b"],
        Annotated[int, Field(ge=2)], Annotated[int, Field(multiple_of=2)], Annotated[float, Field(lt=2)],
        Annotated[str, Field(min_length=1)], Annotated[str, Field(pattern="^a+$")], Annotated[Decimal, Field(ge=1)],
        Annotated[list[int], Field(max_length=1)], Annotated[str, PlainSerializer(len, return_type=int)],
        Annotated[str, PlainSerializer(len)], Annotated[int, WrapSerializer(lambda value, handler: handler(value))],
        Annotated[int | None, PlainSerializer(str, return_type=str, when_used="unless-none")],
        Line, Cat, Either, ByName, Seen, Open, Valued, Tree, Data, Typed, Pair, Part, Card, Card | Cash,
        Annotated[Cat | Dog, Field(discriminator="kind")], RootModel[list[int]],
        dict[Number, int], dict[dt.date, int], dict[int, int], dict[UUID, int],
        collections.OrderedDict[str, int], collections.Counter[str], dict, list,
    ]
)  # fmt: skip


def _made(generic: Any, *types: Any) -> Any:
    return generic.__class_getitem__(types if len(types) > 1 else types[0])


def _annotated(pair: tuple[Any, Any]) -> Any:
    special: Any = Annotated  # with a type known only now, which no type checker follows
    return special[pair]


def _union(types: tuple[Any, ...]) -> Any:
    return Union.__getitem__(types)  # type: ignore[attr-defined]  # with types known only now


VALIDATORS = st.sampled_from(
    [AfterValidator(same), BeforeValidator(same), WrapValidator(lambda value, handler: handler(value))]
)
ANNOTATIONS = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lambda one: _made(list, one))
        | inner.map(lambda one: _made(dict, str, one))
        | inner.map(lambda one: _made(tuple, one, ...))
        | inner.map(lambda one: _made(collections.deque, one))
        | inner.map(lambda one: _union((one, None)))
        | st.tuples(inner, inner).map(lambda two: _made(tuple, *two))
        | st.tuples(inner, inner).map(_union)
        | st.tuples(inner, VALIDATORS).map(_annotated)
    ),
    max_leaves=4,
)

TEXTS = [
    "", "a", "aa", "red", "1", "YQ==", "1.50", "2024-01-01", "2024-01-01T00:00:00Z", "10:00", "PT1H", "cat", "dog", "Card",
    "12345678-1234-1234-1234-123456789abc",
]  # fmt: skip
OBJECTS: list[dict[str, Any]] = [
    {"sku": "a"}, {"sku": "a", "count": 2, "note": None}, {"kind": "cat"}, {"kind": "dog", "age": 1, "lines": [{"sku": "a"}]},
    {"kind": "emu"}, {"type": "Card", "x": 1}, {"type": "Cash"}, {"x": 1}, {"x": 1, "name": "a"}, {"name": "a"},
    {"orderId": 1}, {"order_id": 1, "a": "b"}, {"order_id": 1}, {"orderId": 1, "order_id": 1}, {"orderId": 1, "b": "x"},
    {"corner": [1, 2], "days": ["2024-01-01"]}, {"colour": "red", "number": 1}, {"name": "a", "kids": [{"name": "b"}]},
    {"partNumber": 1, "nextOne": {"partNumber": 2}}, {"part_number": 1}, {"1": 2}, {"2024-01-01": 1},
    {"x": 1, "line": {"sku": "a"}, "sizes": {"a": 1.5}},
]  # fmt: skip
NAMES = st.sampled_from(["a", "x", "sku", "kind", "name", "1"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, 3, -1, 2**60, 30.0, 1.5])
    | st.sampled_from(TEXTS)
    | st.sampled_from(OBJECTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PYTHON = st.recursive(
    st.sampled_from(
        [
            None, True, 0, 1, 2, 1.5, "", "a", "aa", "red", b"a", Decimal("1.50"), dt.date(2024, 1, 1),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1), dt.time(10), dt.timedelta(1), UUID(int=1),  # noqa: DTZ001
            PurePosixPath("/a"), Number.ONE, Colour.RED, Mixed.INTEGER, Mixed.TEXT, Mixed.PAIR, Right.READ, Right(3), Right(0),
            float("nan"), Line(sku="a"), Line(sku="a", note="b"), Line.model_construct(), Line.model_construct(sku=None),
            Cat(kind=Kind.CAT), Dog(kind=Kind.DOG, age=1), Dog.model_construct(kind=Kind.DOG, age=-1),
            Either.model_validate({"orderId": 1}), ByName.model_validate({"order_id": 1}), Seen(corner=(1, 2)), Open(), Open(b=None),  # type: ignore[call-arg]
            Valued(colour=Colour.RED), Tree(kids=[Tree()]), Data(1), Data(1, Line(sku="a")), Data(None), {"x": 1, "name": "a"},  # type: ignore[arg-type]
            {"x": None, "name": "a"}, {"name": "a", "y": 1}, Pair(1), Part(1), Part(0), Card(1), Cash(), RootModel[list[int]]([1]),
            {1: 2}, {Number.ONE: 1}, {dt.date(2024, 1, 1): 1}, {1: 1, "1": 2}, {None: 1}, collections.OrderedDict(a=1),
            collections.Counter("a"), {"sku": "a"},
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.lists(inner, max_size=2).map(collections.deque)
        | st.dictionaries(NAMES, inner, max_size=2)
    ),
    max_leaves=4,
)  # fmt: skip


def declared(make: Any, annotation: Any) -> CompiledTool | None:
    """The tool, or None where two Structs without tags met in a union."""
    try:
        found: CompiledTool = make(annotation)
    except DeclarationError as error:
        if "cannot be distinguished" not in str(error):
            raise
        return None
    return found


def pydantics(annotation: Any) -> Any:
    """pydantic's own strict validator of JSON, None for types that it does not know."""
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception:
        return None


def taken_by(adapter: Any, text: str) -> bool:
    """True if pydantic takes JSON in its strict mode."""
    try:
        adapter.validate_json(text, strict=True)
    except ValidationError:
        return False
    return True


def outcome(function: Callable[[Any], Any], given: Any) -> Any:
    """What a function returns, or the error that it raises."""
    try:
        return function(given)
    except AgentError as error:
        return error


@given(ANNOTATIONS, st.lists(JSON, min_size=5, max_size=20))
def test_arguments(annotation: Any, values: list[Any]) -> None:
    """What is taken the schema allows; what pydantic takes and the schema allows is taken; the rest is explained."""
    tool = declared(taking_tool, Annotated[annotation, Arg()])
    if tool is None:
        return
    jsonschema.Draft202012Validator.check_schema(tool.spec.input_schema)
    allowed = Validator(tool.spec.input_schema, format_checker=FORMATS)
    adapter = pydantics(annotation)
    for value in values:
        found = outcome(tool.parse, json.dumps({"x": value}).encode())
        if isinstance(found, AgentError):
            assert found.code == "INVALID_ARGUMENTS"
            assert found.details is not None
            assert found.details["problems"]
            assert "\0" not in found.message
            if adapter is not None and taken_by(adapter, json.dumps(value)):
                assert not allowed.is_valid({"x": value}), value
        else:
            assert allowed.is_valid({"x": value}), value


@given(ANNOTATIONS, st.lists(PYTHON, min_size=5, max_size=20))
def test_outputs(annotation: Any, values: list[Any]) -> None:
    """What is written fits the published schema and has each name once; whatever else is returned is INVALID_OUTPUT."""
    tool = declared(giving_tool, annotation)
    if tool is None:
        return
    jsonschema.Draft202012Validator.check_schema(tool.spec.output_schema)
    promised = Validator(tool.spec.output_schema, format_checker=FORMATS)
    for value in values:
        found = outcome(tool.render, value)
        if isinstance(found, AgentError):
            assert found.code == "INVALID_OUTPUT"
            assert "\0" not in found.message
        else:
            assert promised.is_valid(json.loads(found, object_pairs_hook=unique)), (value, found)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which no name stands twice."""
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@given(ANNOTATIONS, st.lists(JSON, min_size=5, max_size=20))
def test_the_way_through(annotation: Any, values: list[Any]) -> None:
    """What was taken as an argument can be returned, and fits the schema of results."""
    taken, given_back = declared(taking_tool, Annotated[annotation, Arg()]), declared(giving_tool, annotation)
    if taken is None or given_back is None:
        return
    promised = Validator(given_back.spec.output_schema, format_checker=FORMATS)
    for value in values:
        found = outcome(taken.parse, json.dumps({"x": value}).encode())
        if not isinstance(found, AgentError):
            assert promised.is_valid(json.loads(given_back.render(found["x"]))), found


@given(ANNOTATIONS, st.lists(PYTHON, min_size=3, max_size=8))
def test_defaults(annotation: Any, defaults: list[Any]) -> None:
    """A default is refused at declaration, or works; if it is shown, the schema and the tool take it."""
    for default in defaults:
        try:
            tool = taking_tool(Annotated[annotation, Arg()], default)
        except DeclarationError as error:
            if not any(words in str(error) for words in ("does not fit its type", "cannot be distinguished")):
                raise
            continue
        tool.parse(b"{}")
        argument = tool.spec.input_schema["properties"]["x"]
        if "default" in argument:
            whole = {"x": argument["default"]}
            assert Validator(tool.spec.input_schema, format_checker=FORMATS).is_valid(whole), whole
            tool.parse(json.dumps(whole).encode())
