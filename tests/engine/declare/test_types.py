"""The table of types: what each takes from JSON, and what it refuses. One table for every transport."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import math
import sys
import typing
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, RootModel

from carmy_engine.errors import AgentError

from .conftest import Taker, parsed, taking_tool


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    x: int
    y: str = "a"


UTC = dt.timezone.utc  # noqa: UP017 - compared with what pydantic makes
ID = "12345678-1234-1234-1234-123456789abc"


@pytest.mark.parametrize(
    ("annotation", "json", "value"),
    [
        (int, "30", 30),
        (int, "30.0", 30),
        (int, "3e1", 30),
        (int, "9007199254740993", 9007199254740993),
        (int, "123456789012345678901234567890", 123456789012345678901234567890),
        (float, "1", 1.0),
        (float, "1.5", 1.5),
        (bool, "true", True),
        (str, '"123"', "123"),
        (str, '"true"', "true"),
        (str, '"null"', "null"),
        (str, '"{\\"a\\":1}"', '{"a":1}'),
        (str, '"00123"', "00123"),
        (str, '"1e5"', "1e5"),
        (int | None, "null", None),
        (dt.date, '"2024-02-29"', dt.date(2024, 2, 29)),
        (dt.time, '"10:30"', dt.time(10, 30)),
        (dt.datetime, '"2024-02-29T10:30:00"', dt.datetime(2024, 2, 29, 10, 30)),  # noqa: DTZ001
        (dt.datetime, '"2024-02-29T10:30:00Z"', dt.datetime(2024, 2, 29, 10, 30, tzinfo=UTC)),
        (dt.timedelta, '"PT1H30M"', dt.timedelta(hours=1, minutes=30)),
        (dt.timedelta, '"-P1D"', dt.timedelta(days=-1)),
        (UUID, f'"{ID}"', UUID(ID)),
        (Decimal, "30.0", Decimal(30)),
        (Decimal, '"0.10000000000000000001"', Decimal("0.10000000000000000001")),
        (Decimal, "12345678901234567890123", Decimal(12345678901234567890123)),
        (bytes, '"//79"', b"\xff\xfe\xfd"),
        (bytes, '"YQ=="', b"a"),
        (Number, "1", Number.ONE),
        (Colour, '"red"', Colour.RED),
        (Literal[1, "a"], "1", 1),
        (Literal["a", None], "null", None),
        (Literal[True], "true", True),
        (Literal[Colour.RED], '"red"', Colour.RED),
        (list[int], "[1,2.0]", [1, 2]),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (set[int], "[1,1]", {1}),
        (frozenset[str], '["a"]', frozenset("a")),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (dict[int, str], '{"1":"a"}', {1: "a"}),
        (Sequence[int], "[1]", [1]),
        (Iterable[int], "[1]", [1]),
        (collections.deque[int], "[1]", collections.deque([1])),
        (Pair, "[1]", Pair(1)),
        (Any, '{"a":[1,null]}', {"a": [1, None]}),
        (int | str, "30.0", 30),
        (int | float, "30", 30),
        (RootModel[list[int]], "[1]", RootModel[list[int]]([1])),
        (Annotated[int, AfterValidator(lambda value: value + 1)], "1", 2),
    ],
)
def test_taken(take: Taker, annotation: Any, json: str, value: Any) -> None:
    """JSON of the right shape arrives as the Python value."""
    found = take(annotation, json)
    assert found == value
    assert type(found) is type(value)


DATE_TIME = "an ISO 8601 date and time such as '2024-12-31T23:59:00Z'"
DECIMAL = "a decimal number in a string, such as '12.50', or an integer"
BASE64 = "base64 in the standard alphabet, with padding"


@pytest.mark.parametrize(
    ("annotation", "json", "words"),
    [
        (int, "30.5", "an integer"),
        (int, '"30"', "an integer"),
        (int, "true", "an integer"),
        (int, "null", "an integer"),
        (int, "1e300", "an integer"),
        (int, "9007199254740994.0", "an integer"),
        (float, '"1"', "a number"),
        (float, "true", "a number"),
        (float, "NaN", "a finite number"),
        (float, "1e400", "a finite number"),
        (float, "-Infinity", "a finite number"),
        (bool, "1", "true or false"),
        (bool, '"yes"', "true or false"),
        (bool, "null", "true or false"),
        (str, "1", "a string"),
        (str, "null", "a string"),
        (str, "{}", "a string"),
        (dt.date, "12", "an ISO 8601 date such as '2024-12-31'"),
        (dt.date, '"12"', "an ISO 8601 date such as '2024-12-31'"),
        (dt.date, '"2024-02-30"', "an ISO 8601 date such as '2024-12-31'"),
        (dt.time, "12", "an ISO 8601 time such as '23:59:00'"),
        (dt.time, '"12"', "an ISO 8601 time such as '23:59:00'"),
        (dt.datetime, "12", DATE_TIME),
        (dt.datetime, "12.5", DATE_TIME),
        (dt.datetime, '"12"', DATE_TIME),
        (dt.datetime, '"1700000000"', DATE_TIME),
        (dt.datetime, '"2024-01-01"', DATE_TIME),
        (dt.datetime, '"\\ud7ff"', DATE_TIME),
        (dt.timedelta, "12", "an ISO 8601 duration such as 'PT1H30M'"),
        (dt.timedelta, '"12"', "an ISO 8601 duration such as 'PT1H30M'"),
        (dt.timedelta, '"1:00:00"', "an ISO 8601 duration such as 'PT1H30M'"),
        (UUID, '"x"', "a UUID in a string"),
        (UUID, "3", "a UUID in a string"),
        (Decimal, "1.5", DECIMAL),
        (Decimal, "true", DECIMAL),
        (Decimal, '"NaN"', DECIMAL),
        (Decimal, '"Infinity"', DECIMAL),
        (Decimal, '"1_0"', DECIMAL),
        (Decimal, '" 1"', DECIMAL),
        (bytes, '"YQ"', BASE64),
        (bytes, '"Y Q=="', BASE64),
        (bytes, '"YR=="', BASE64),
        (bytes, '"-_8="', BASE64),
        (bytes, '"ä"', BASE64),
        (bytes, "3", BASE64),
        (Number, "true", "one of 1, 2"),
        (Number, "3", "one of 1, 2"),
        (Number, '"1"', "one of 1, 2"),
        (Colour, '"RED"', "one of 'red', 'blue'"),
        (Literal[1, "a"], "true", "one of 1, 'a'"),
        (Literal[1, "a"], '"1"', "one of 1, 'a'"),
        (Literal[True], "1", "true"),
        (Literal[Number.ONE], "true", "1"),
        (list[int], '"[1]"', "a list"),
        (list[int], '{"a":1}', "a list"),
        (dict[str, int], "[]", "an object"),
        (int | str, "1.5", "an integer or a string"),
    ],
)
def test_refused(take: Taker, annotation: Any, json: str, words: str) -> None:
    """JSON of another shape is refused, saying what it must be."""
    assert take.refused(annotation, json) == f"argument 'x' must be {words}"


@pytest.mark.parametrize(
    ("annotation", "json", "words"),
    [
        (Annotated[int, Field(ge=3)], "2.0", "must be at least 3"),
        (Annotated[int, Field(gt=3)], "3", "must be greater than 3"),
        (Annotated[float, Field(lt=3)], "3", "must be less than 3"),
        (Annotated[int, Field(le=3)], "4", "must be at most 3"),
        (Annotated[int, Field(multiple_of=3)], "4", "must be a multiple of 3"),
        (Annotated[str, Field(min_length=1)], '""', "must have at least 1 character"),
        (Annotated[str, Field(max_length=2)], '"abc"', "must have at most 2 characters"),
        (Annotated[str, Field(pattern="^a$")], '"b"', "must match the pattern ^a$"),
        (Annotated[bytes, Field(max_length=1)], '"YWE="', "must have at most 1 byte"),
        (Annotated[list[int], Field(min_length=2)], "[1]", "must have at least 2 items"),
        (Annotated[Decimal, Field(ge=2)], '"1.0"', "must be at least 2"),
        (Annotated[Decimal, Field(decimal_places=2)], '"1.001"', "must have at most 2 decimal places"),
        (Annotated[dt.date, Field(gt=dt.date(2024, 1, 1))], '"2023-01-01"', "must be greater than 2024-01-01"),
        (
            AwareDatetime,
            '"2024-01-01T10:00:00"',
            "must have a time zone, such as the 'Z' in '2024-12-31T23:59:00Z'",
        ),
        (Annotated[int, msgspec.Meta(ge=3)], "2", "must be at least 3"),
    ],
)
def test_constraints(take: Taker, annotation: Any, json: str, words: str) -> None:
    """Constraints hold after the type, and say what they want."""
    assert take.refused(annotation, json) == f"argument 'x' {words}"


def test_a_field_marked_strict_stays_as_it_was_marked(take: Taker) -> None:
    """An author's own strictness wins over the table, either way (Y8)."""
    assert take.refused(Annotated[int, Field(strict=True)], "30.0") == "argument 'x' must be an integer"
    assert take(Annotated[int, Field(strict=False)], '"30"') == 30


def test_a_model_marked_strict_stays_strict(take: Taker) -> None:
    """``ConfigDict(strict=True)`` holds for the model's own fields; a model inside it has its own configuration."""

    class Inner(BaseModel):
        a: int

    class Outer(BaseModel):
        model_config = ConfigDict(strict=True)
        a: int
        inner: Inner | None = None

    assert take.refused(Outer, '{"a":1.0}', whole=True) == "argument 'a' must be an integer"
    assert take.whole(Outer, '{"a":1,"inner":{"a":1.0}}') == Outer(a=1, inner=Inner(a=1))


@pytest.mark.parametrize(
    "name", ["self_", "type", "fields", "schema", "copy", "model_config", "_x", "__y", "json", "choices"]
)
def test_any_name_is_a_name(name: str) -> None:
    """No parameter name means anything to the machinery underneath."""
    compiled = taking_tool(int, 3, name)
    assert compiled.parse(b'{"%s":4}' % name.encode()) == {name: 4}
    assert compiled.spec.input_schema["properties"] == {name: {"type": "integer", "default": 3}}


@pytest.mark.parametrize("annotation", [int, float, str, Any, Decimal])
def test_numbers_nobody_can_read(annotation: Any) -> None:
    """A number of thousands of digits is refused, not a crash."""
    with pytest.raises(AgentError) as caught:
        taking_tool(annotation).parse(b'{"x":' + b"1" * 5000 + b"}")
    assert caught.value.code == "INVALID_REQUEST"


@pytest.mark.parametrize("depth", [1_000, 20_000, 100_000])
def test_deep_nesting(depth: int) -> None:
    """Arguments nested beyond any limit are refused in known and in unknown names, never a RecursionError."""
    for name in ("x", "y"):
        with pytest.raises(AgentError) as caught:
            parsed(taking_tool(Any), b'{"%s":%s%s}' % (name.encode(), b"[" * depth, b"]" * depth))
        assert caught.value.code == "INVALID_REQUEST"


@pytest.mark.parametrize("text", ["", "null", " \n null "])
def test_arguments_that_are_null(take: Taker, text: str) -> None:
    """Arguments of null mean an empty object."""
    assert take.whole(int, text or "{}", default=3) == 3


@pytest.mark.parametrize("text", ["[]", '""', '"{}"', "3", "true", "[{}]"])
def test_arguments_that_are_no_object(take: Taker, text: str) -> None:
    """An array or a scalar in place of the arguments is INVALID_ARGUMENTS."""
    assert take.refused(int, text, whole=True) == "the arguments must be a JSON object"


@pytest.mark.parametrize(
    ("annotation", "default"), [(int, 3), (str, "d"), (list[int], []), (int, None), (Literal["a"], "a"), (bytes, b"")]
)
def test_null_for_a_default_means_omitted(take: Taker, annotation: Any, default: Any) -> None:
    """Null for a parameter with a default that does not take null gives the default, as omitting it does."""
    assert take(annotation, "null", default=default) == default
    assert take.whole(annotation, "{}", default=default) == default


def test_null_where_null_is_a_value(take: Taker) -> None:
    """A parameter that takes null gets null, whatever its default."""
    assert take(int | None, "null", default=3) is None


def test_the_string_null_is_a_string(take: Taker) -> None:
    """The text "null" is never turned into null."""
    assert take(str | None, '"null"', default=None) == "null"


def test_null_does_not_excuse_a_missing_argument(take: Taker) -> None:
    """Null for a required parameter is refused."""
    assert take.refused(int, "null") == "argument 'x' must be an integer"


def test_defaults_inside_models(take: Taker) -> None:
    """The rule of null holds for fields of nested objects too."""

    class Inner(BaseModel):
        count: int = 7

    assert take(list[Inner], '[{"count":null}]') == [Inner()]


def test_field_as_a_default(take: Taker) -> None:
    """``x: int = Field(10, ge=5)`` is a default with a constraint; the function gets the default itself."""
    assert take.whole(int, "{}", default=Field(10, ge=5)) == 10
    assert take.whole(list[int], "{}", default=Field(default_factory=list)) == []


def test_arguments_are_fresh_each_time(take: Taker) -> None:
    """A call's keyword arguments are its own."""
    compiled = taking_tool(int, 3)
    assert compiled.parse(b"{}") is not compiled.parse(b"{}")


class Closed(BaseModel):
    a: int = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class Careless(BaseModel):
    model_config = ConfigDict(extra="ignore")
    a: int = 1


@dataclasses.dataclass
class Data:
    a: int = 1


class Typed(typing_extensions.TypedDict, total=False):
    a: int


class OldTyped(typing.TypedDict):
    a: typing_extensions.NotRequired[int]


class Struct(msgspec.Struct):
    a: int = 1


class Holder(BaseModel):
    inner: Closed = Closed()


OBJECTS: list[Any] = [Closed, Data, Typed, OldTyped, Struct]


@pytest.mark.parametrize("cls", OBJECTS)
def test_unknown_fields_are_refused(take: Taker, cls: Any) -> None:
    """A field that an object type does not have is refused: as the input, as an argument, in a list, in a dict."""
    assert take.refused(cls, '{"b":1}', whole=True) == "argument 'b' is not known; the arguments are 'a'"
    assert take.refused(list[cls], '[{"b":1}]') == "argument 'x[0].b' is not known; the fields are 'a'"
    assert take.refused(dict[str, cls], '{"k":{"b":1}}') == "argument 'x.k.b' is not known; the fields are 'a'"
    assert take.refused(cls | None, '{"b":1}') == "argument 'x.b' is not known; the fields are 'a'"


def test_unknown_fields_of_nested_models(take: Taker) -> None:
    """The rule reaches models that pydantic has built before."""
    assert "'inner.b' is not known" in take.refused(Holder, '{"inner":{"b":1}}', whole=True)


def test_extras_that_a_type_allows(take: Taker) -> None:
    """``extra="allow"`` keeps unknown fields, an explicit ``extra="ignore"`` drops them."""
    assert take.whole(Open, '{"b":1}').model_dump() == {"a": 1, "b": 1}
    assert take.whole(Careless, '{"b":1}').model_dump() == {"a": 1}


@pytest.mark.parametrize("cls", OBJECTS)
def test_objects_are_strict_inside(take: Taker, cls: Any) -> None:
    """The table holds for the fields of every kind of object."""
    assert take.refused(cls, '{"a":"1"}', whole=True) == "argument 'a' must be an integer"
    assert take.refused(cls, '{"a":true}', whole=True) == "argument 'a' must be an integer"
    found = take.whole(cls, '{"a":2.0}')
    assert (found["a"] if isinstance(found, dict) else found.a) == 2


def test_a_model_with_its_own_init_is_strict(take: Taker) -> None:
    """A user-defined ``__init__`` runs, and does not by-pass the table."""
    seen: list[Any] = []

    class Custom(BaseModel):
        a: int

        def __init__(self, **data: Any) -> None:
            seen.append(data)
            super().__init__(**data)

    assert take.whole(Custom, '{"a":1}').a == 1
    assert seen == [{"a": 1}]
    assert take.refused(Custom, '{"a":"1"}', whole=True) == "argument 'a' must be an integer"
    assert "'b' is not known" in take.refused(Custom, '{"a":1,"b":1}', whole=True)


def test_aliases_are_the_names_on_the_wire(take: Taker) -> None:
    """An alias is what callers send; the function gets its own name."""
    compiled = taking_tool(Annotated[int, Field(alias="n")])
    assert compiled.parse(b'{"n":1}') == {"x": 1}
    with pytest.raises(AgentError, match="'x' is not known; the arguments are 'n'"):
        compiled.parse(b'{"x":1}')


def test_recursive_models(take: Taker) -> None:
    """A model that contains itself is strict at every level."""
    assert take.refused(Tree, '{"kids":[{"kids":[{"kidz":[]}]}]}', whole=True) == (
        "argument 'kids[0].kids[0].kidz' is not known; did you mean 'kids'?"
    )


class Tree(BaseModel):
    kids: list[Tree] = []


@pytest.mark.parametrize("json", ['{"x":', "{x:1}", '{"x":"\\ud800"}', '{"x":1}}'])
def test_broken_json_is_no_valid_request(take: Taker, json: str) -> None:
    """Syntax errors and lone surrogates are INVALID_REQUEST."""
    with pytest.raises(AgentError) as caught:
        take.whole(str, json)
    assert caught.value.code == "INVALID_REQUEST"
    assert caught.value.__context__ is None


@given(st.integers(-(2**53), 2**53))
def test_whole_fractions_are_integers(number: int) -> None:
    """Every integral float up to 2**53 is the same integer."""
    assert INT.parse(b'{"x":%d.0}' % number) == {"x": number}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_arrive_exactly(number: float) -> None:
    """Every finite float survives the way through JSON."""
    found = FLOAT.parse(b'{"x":%s}' % repr(number).encode())["x"]
    assert found == number
    assert math.copysign(1, found) == math.copysign(1, number)


INT = taking_tool(int)
FLOAT = taking_tool(float)


Alias = typing_extensions.TypeAliasType("Alias", Closed)
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | int | None")  # type: ignore[misc]


def test_type_aliases(take: Taker) -> None:
    """An alias made with `TypeAliasType` is what it stands for, also when it contains itself."""
    assert take.whole(Alias, '{"a":2}') == Closed(a=2)
    assert take(Json, '{"a":[1,null,{"b":2}]}') == {"a": [1, None, {"b": 2}]}
    assert "x.a[0]" in take.refused(Json, '{"a":[true]}')


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_type_statements(take: Taker) -> None:
    """So is an alias made with ``type``."""
    names: dict[str, Any] = {"Closed": Closed}
    exec("type Alias = Closed", names)
    assert take.whole(names["Alias"], '{"a":2}') == Closed(a=2)
