"""Schema, check and answer come from one table of types, so they agree."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime as dt
import enum
import ipaddress
import json
import pathlib
import sys
import typing
import zoneinfo
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import jsonschema
import msgspec
import pytest
import typing_extensions
from pydantic import (
    UUID4,
    AfterValidator,
    AliasChoices,
    AliasPath,
    AnyUrl,
    Base64Bytes,
    Base64Str,
    Base64UrlBytes,
    Base64UrlStr,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    JsonValue,
    SecretStr,
    Tag,
    TypeAdapter,
    WrapValidator,
    computed_field,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic_core import core_schema

from carmy_engine import Arg
from carmy_engine._schema.table import TABLE
from carmy_engine.errors import AgentError, DeclarationError
from carmy_engine.testing import CompiledTool
from carmy_engine.transport import encode_arguments
from tests.engine.declare.conftest import giving_tool, rendered, taking_tool


def refused(compiled: CompiledTool, value: Any) -> str:
    """The message of ``INVALID_OUTPUT``."""
    with pytest.raises(AgentError) as caught:
        compiled.render(value)
    assert caught.value.code == "INVALID_OUTPUT"
    return caught.value.message


def allows(schema: Any, value: Any) -> bool:
    """True if a schema allows a JSON value."""
    return jsonschema.Draft202012Validator(schema).is_valid(value)


class Line(BaseModel):
    sku: str
    count: int = 1
    tags: list[str] = []


class Shelf(BaseModel):
    lines: list[Line]
    label: str | None = None


@dataclasses.dataclass
class Data:
    sku: str
    size: int | None = None


class Part(msgspec.Struct):
    sku: str


class Typed(typing_extensions.TypedDict):
    sku: str


def broken(cls: Any, **values: Any) -> Any:
    """An object whose attributes were not checked."""
    made = cls.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_every_kind_of_core_schema_has_a_row() -> None:
    """A kind that a new version of pydantic adds needs a row, or a refusal, before the version is allowed."""
    kinds = {*typing.get_args(core_schema.CoreSchemaType), *typing.get_args(core_schema.CoreSchemaFieldType)}
    assert kinds == set(TABLE)


def test_a_kind_without_a_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type of a kind that the table lacks is refused where the tool is declared, never passed through."""
    without = {kind: row for kind, row in TABLE.items() if kind != "uuid"}
    monkeypatch.setattr("carmy_engine._schema.core_schema.TABLE", without)
    with pytest.raises(DeclarationError, match="types of the kind 'uuid' have no JSON form here"):
        taking_tool(list[UUID])


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (str, None, "the output must be a string"),
        (int, None, "the output must be an integer"),
        (bool, None, "the output must be true or false"),
        (dt.date, None, "the output must be"),
        (UUID, None, "the output must be"),
        (bytes, None, "the output must be"),
        (Literal["a"], None, "the output must be 'a'"),
        (Line, None, "the output must be an object"),
        (list[str], None, "the output must be a list"),
        (dict[str, Any], None, "the output must be an object"),
        (list[str], ["a", None], "'[1]' in the output must be a string"),
        (dict[str, int], {"a": None}, "'a' in the output must be an integer"),
        (tuple[int, str], (1, None), "'[1]' in the output must be a string"),
        (int | str, None, "the output must be an integer or a string"),
        (Line, Line.model_construct(sku=None), "'sku' in the output must be a string"),
        (list[Shelf], [Shelf(lines=[Line.model_construct(sku=None)])], "'[0].lines[0].sku' in the output"),
        (Data, Data(None), "'sku' in the output must be a string"),  # type: ignore[arg-type]
        (Part, Part(None), "'sku' in the output must be a string"),  # type: ignore[arg-type]
        (Typed, {"sku": None}, "'sku' in the output must be a string"),
    ],
)
def test_none_is_only_null_where_the_type_has_null(annotation: Any, value: Any, words: str) -> None:
    """None in place of a value is INVALID_OUTPUT with its path, wherever it stands."""
    assert words in refused(giving_tool(annotation), value)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (str | None, None, b"null"),
        (Shelf, Shelf(lines=[]), b'{"lines":[],"label":null}'),
        (Data, Data("a"), b'{"sku":"a","size":null}'),
        (list[int | None], [1, None], b"[1,null]"),
        (dict[str, Any], {"a": None}, b'{"a":null}'),
        (str, "null", b'"null"'),
    ],
)
def test_null_where_the_type_has_null_is_written(annotation: Any, value: Any, text: bytes) -> None:
    """None is written where the schema allows it."""
    assert giving_tool(annotation).render(value) == text


class Duck:
    """Has attributes like a model."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Line.model_construct(count=3), "'sku' in the output is missing"),
    ],
)
def test_an_object_that_lacks_fields_is_no_model(value: Any, words: str) -> None:
    """pydantic writes any object with attributes as a model, and leaves out what it lacks; here that is INVALID_OUTPUT."""
    assert words in refused(giving_tool(Line), value)
    assert words.replace("'sku'", "'[0].sku'") in refused(giving_tool(list[Line]), [value])
    assert words.replace("'sku'", "'lines[0].sku'") in refused(giving_tool(Shelf), Shelf.model_construct(lines=[value]))


@pytest.mark.parametrize("value", [Duck(), Duck(sku=3), Duck(count=1)])
def test_an_object_with_other_attributes_is_no_model(value: Any) -> None:
    """An object of any class is not written as an empty model."""
    assert "the output must be an object" in refused(giving_tool(Line), value)
    assert "'[0]' in the output must be an object" in refused(giving_tool(list[Line]), [value])


def test_a_dict_of_any_class_is_a_dict() -> None:
    """A mapping with attributes, such as an OrderedDict, is converted as a dict is, and not written as an empty object."""
    found = giving_tool(Line).render(collections.OrderedDict(sku="a"))
    assert json.loads(found) == {"sku": "a", "count": 1, "tags": []}


class Box(BaseModel):
    corner: tuple[int, int]
    days: set[dt.date] = set()
    when: dt.datetime | None = None
    data: bytes = b""

    @model_validator(mode="before")
    @classmethod
    def _see(cls, given: Any) -> Any:
        return given


class Pair(NamedTuple):
    x: int
    y: str = "a"


def same(value: Any) -> Any:
    """A validator that hands on what it gets."""
    return value


def through(value: Any, handler: Any) -> Any:
    """A validator round another."""
    return handler(value)


@pytest.mark.parametrize("validator", [BeforeValidator(same), WrapValidator(through), AfterValidator(same)])
@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (tuple[int, int], "[1,2]"),
        (set[int], "[1]"),
        (frozenset[int], "[1]"),
        (collections.deque[int], "[1]"),
        (Pair, '[1,"b"]'),
        (dt.date, '"2024-01-02"'),
        (dt.datetime, '"2024-01-02T03:04:05Z"'),
        (dt.time, '"10:30:00"'),
        (dt.timedelta, '"PT1H"'),
        (UUID, '"12345678-1234-1234-1234-123456789abc"'),
        (bytes, '"YQ=="'),
        (int, "30.0"),
        (float, "1"),
        (dict[int, str], '{"1":"a"}'),
        (Line, '{"sku":"a"}'),
        (Data, '{"sku":"a"}'),
        (Part, '{"sku":"a"}'),
        (list[Part], '[{"sku":"a"}]'),
        (Typed, '{"sku":"a"}'),
        (Box, '{"corner":[1,2],"days":["2024-01-01"],"when":"2024-01-02T03:04:05Z","data":"YQ=="}'),
    ],
)
def test_a_validator_before_a_type_changes_nothing(annotation: Any, text: str, validator: Any) -> None:
    """What a type takes, it takes behind a validator of the author, too."""
    bare = taking_tool(Annotated[annotation, Arg()]).parse(b'{"x":%s}' % text.encode())
    assert taking_tool(Annotated[annotation, validator, Arg()]).parse(b'{"x":%s}' % text.encode()) == bare


@pytest.mark.parametrize(
    "ready",
    [
        dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, tzinfo=dt.UTC), dt.time(1), dt.timedelta(1), UUID(int=1), b"a",
        (1, 2), {1}, Line(sku="a"), Data("a"), Part("a"),
    ],
)  # fmt: skip
def test_a_validator_may_hand_over_a_ready_value(ready: Any) -> None:
    """A validator before a type may make the value itself."""
    types: dict[Any, Any] = {tuple: tuple[int, int], set: set[int]}
    cls: Any = types.get(type(ready), type(ready))
    made = taking_tool(Annotated[cls, BeforeValidator(lambda _: ready), Arg()])
    assert made.parse(b'{"x":"tomorrow"}') == {"x": ready}


class Priced(BaseModel):
    cents: int

    @field_serializer("cents")
    def _shown(self, cents: int):  # type: ignore[no-untyped-def]
        return f"{cents / 100} €"


class Counted(BaseModel):
    cents: int

    @field_serializer("cents")
    def _shown(self, cents: int) -> int:
        return f"{cents}"  # type: ignore[return-value]


def test_a_serialiser_is_published_as_what_it_returns() -> None:
    """A serialiser without a return type may write anything, and one with a return type is held to it."""
    made = giving_tool(Priced)
    assert "type" not in made.spec.output_schema["properties"]["cents"]
    assert allows(made.spec.output_schema, json.loads(made.render(Priced(cents=150))))
    assert giving_tool(Counted).spec.output_schema["properties"]["cents"]["type"] == "integer"
    assert "in the output must be an integer" in refused(giving_tool(Counted), Counted(cents=1))


class Kind(enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Way(enum.Enum):
    NORTH = (0, 1)
    SOUTH = (0, -1)


class Slot(enum.IntEnum):
    ONE = 1
    TWO = 2


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Day(enum.Enum):
    FIRST = dt.date(2024, 1, 1)


class Cat(BaseModel):
    kind: Literal[Kind.CAT]


class Dog(BaseModel):
    kind: Literal[Kind.DOG]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (Pet, '{"kind":"cat"}', Cat(kind=Kind.CAT)),
        (Way, "[0,1]", Way.NORTH),
        (Literal[Way.SOUTH], "[0,-1]", Way.SOUTH),
        (Day, '"2024-01-01"', Day.FIRST),
        (Right, "3", Right.READ | Right.WRITE),
        (Right, "0", Right(0)),
        (dict[Slot, str], '{"1":"a"}', {Slot.ONE: "a"}),
        (dict[Literal["a", "b"], int], '{"a":1}', {"a": 1}),
        (dict[dt.date, int], '{"2024-01-01":1}', {dt.date(2024, 1, 1): 1}),
        (Base64Bytes, '"//79"', b"\xff\xfe\xfd"),
        (Base64UrlBytes, '"__79"', b"\xff\xfe\xfd"),
        (collections.Counter[str], '{"a":1}', collections.Counter("a")),
        (collections.OrderedDict[str, int], '{"a":1}', collections.OrderedDict(a=1)),
    ],
)
def test_what_the_schema_offers_is_taken_and_given(annotation: Any, text: str, value: Any) -> None:
    """Choices, flags, keys and encoded bytes have one form in JSON: in the schema, in arguments and in results."""
    taken = taking_tool(Annotated[annotation, Arg()])
    whole = f'{{"x":{text}}}'
    assert allows(taken.spec.input_schema, json.loads(whole))
    assert taken.parse(whole.encode()) == {"x": value}
    given = giving_tool(annotation)
    assert given.render(value).decode() == text
    assert allows(given.spec.output_schema, json.loads(text))


@pytest.mark.parametrize("text", ["__79", "//7 9", "!!!!", "a", "//79\n", "\u00e9"])
def test_base64_has_one_spelling(text: str) -> None:
    """Text that is no base64 is refused; pydantic's own coding leaves out what it does not know, and takes the rest."""
    taken = taking_tool(Annotated[Base64Bytes, Arg()])
    with pytest.raises(AgentError, match="must be base64 in the standard alphabet, with padding"):
        taken.parse(json.dumps({"x": text}).encode())
    assert taken.spec.input_schema["properties"]["x"] == {"type": "string", "contentEncoding": "base64"}


@pytest.mark.parametrize("annotation", [Base64UrlBytes, Base64UrlStr, Base64Str])
@pytest.mark.parametrize("text", ["Y Q==", "!!!!", "YQ", "YQ==\n", "YR==", "\u00e9"])
def test_other_codings_have_one_spelling(annotation: Any, text: str) -> None:
    """So have base64 in the URL-safe alphabet and base64 of texts; what encodes no text is refused as such."""
    taken = taking_tool(Annotated[annotation, Arg()])
    with pytest.raises(AgentError, match=r"must be base64 in the (standard|URL-safe) alphabet, with padding"):
        taken.parse(json.dumps({"x": text}).encode())
    assert len(taken.parse(b'{"x":"YQ=="}')["x"]) == 1
    if annotation is not Base64UrlBytes:
        with pytest.raises(AgentError, match="must encode a text in UTF-8"):
            taken.parse(b'{"x":"gA=="}')


@pytest.mark.parametrize(
    ("annotation", "text", "words"),
    [
        (Way, "[1,0]", "argument 'x' must be one of [0,1], [0,-1]"),
        (Right, "4", "argument 'x' must be a sum of 1, 2"),
        (Right, "-1", "argument 'x' must be a sum of 1, 2"),
        (Pet, '{"kind":"emu"}', "argument 'x.kind' must be one of 'cat', 'dog'"),
        (dict[Slot, str], '{"3":"a"}', "the name '3' in argument 'x' must be one of '1', '2'"),
    ],
)
def test_what_the_schema_does_not_offer_is_refused(annotation: Any, text: str, words: str) -> None:
    """What the schema does not offer is refused in words, and is not in the schema."""
    taken = taking_tool(Annotated[annotation, Arg()])
    with pytest.raises(AgentError) as caught:
        taken.parse(f'{{"x":{text}}}'.encode())
    assert caught.value.message == words
    assert not allows(taken.spec.input_schema, json.loads(f'{{"x":{text}}}'))


def test_a_flag_is_an_integer_in_a_range() -> None:
    """The schema of a flag is an integer up to the sum of its members, without a title."""
    assert giving_tool(Right).spec.output_schema == {"type": "integer", "minimum": 0, "maximum": 3}
    assert taking_tool(list[Right]).spec.input_schema["$defs"] == {
        "Right": {"type": "integer", "minimum": 0, "maximum": 3}
    }


def test_a_flag_with_bits_that_it_does_not_have() -> None:
    """A flag with an unknown bit is INVALID_OUTPUT."""
    assert "the output must be" in refused(giving_tool(Right), Right(5))


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True, serialize_by_alias=False)
    order_id: int = Field(alias="orderId")


class Either(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    order_id: int = Field(alias="orderId")


class Choices(BaseModel):
    order_id: int = Field(validation_alias=AliasChoices("id", "orderId"))


class Path(BaseModel):
    first: str = Field(validation_alias=AliasPath("names", 0))


@pytest.mark.parametrize(
    ("cls", "taken", "not_taken"),
    [
        (ByName, ["order_id"], ["orderId"]),
        (Either, ["order_id", "orderId"], ["orderid"]),
        (Choices, ["id", "orderId"], ["order_id"]),
    ],
)
def test_the_schema_has_the_names_that_are_taken(cls: Any, taken: list[str], not_taken: list[str]) -> None:
    """The schema offers every name under which a field is taken, and no other."""
    made = taking_tool(cls)
    for name in taken:
        assert allows(made.spec.input_schema, {name: 1})
        assert made.parse(b'{"%s":1}' % name.encode())["x"].order_id == 1
    for name in not_taken:
        assert not allows(made.spec.input_schema, {name: 1})
        with pytest.raises(AgentError, match="INVALID_ARGUMENTS"):
            made.parse(b'{"%s":1}' % name.encode())
    assert not allows(made.spec.input_schema, {})


def test_a_path_as_an_alias_is_refused() -> None:
    """A value from inside another field has no name in the schema, so the declaration is refused."""
    with pytest.raises(DeclarationError, match="'first' takes its value from inside another one"):
        taking_tool(Path)


def test_a_model_that_is_written_by_name() -> None:
    """``serialize_by_alias=False`` holds for what is written and for its schema."""
    made = giving_tool(list[ByName])
    assert made.render([ByName.model_validate({"order_id": 1})]) == b'[{"order_id":1}]'
    assert made.render([{"order_id": 1}]) == b'[{"order_id":1}]'
    assert list(made.spec.output_schema["$defs"]["ByName"]["properties"]) == ["order_id"]
    assert giving_tool(Any).render([ByName.model_validate({"order_id": 1})]) == b'[{"order_id":1}]'
    assert giving_tool(Either).render(Either.model_validate({"order_id": 1})) == b'{"orderId":1}'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict, {2023: 10, "2023": 20}),
        (dict[str, Any], {"a": {2023: 10, "2023": 20}}),
        (Any, [{2023: 10, "2023": 20}]),
        (dict[int | str, int], {2023: 10, "2023": 20}),
        (list, [{Slot.ONE: 1, "1": 2}]),
    ],
)
def test_two_keys_of_one_name_are_no_output(annotation: Any, value: Any) -> None:
    """A dict with two keys that are one name in JSON is INVALID_OUTPUT; no value of it is lost."""
    assert "has two keys that are both" in refused(giving_tool(annotation), value)


def test_none_is_no_key() -> None:
    """None as a key is INVALID_OUTPUT, and not the name "None"."""
    assert "the output" in refused(giving_tool(dict[str, int]), {None: 1})


ODD = dt.timezone(dt.timedelta(minutes=19, seconds=32))
ODD_OFFSETS = [
    dt.timedelta(microseconds=5), dt.timedelta(microseconds=-5), dt.timedelta(seconds=5), dt.timedelta(seconds=-5),
    dt.timedelta(minutes=1, microseconds=3), dt.timedelta(minutes=-1, microseconds=3), dt.timedelta(minutes=19, seconds=32),
]  # fmt: skip


class Dated(BaseModel):
    at: dt.datetime


@dataclasses.dataclass
class Timed:
    at: dt.time


class Stamped(msgspec.Struct):
    at: dt.datetime


@pytest.mark.parametrize("offset", ODD_OFFSETS, ids=str)
def test_every_part_of_a_minute_in_an_offset_is_refused(offset: dt.timedelta) -> None:
    """Seconds and microseconds of an offset are refused at any place of any output and argument, also where they would become Z."""
    time = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(offset))
    for annotation, value in [
        (dt.datetime, time),
        (dt.time, time.timetz()),
        (dt.datetime | None, time),
        (list[dt.datetime], [time]),
        (tuple[dt.datetime, ...], (time,)),
        (set[dt.datetime], {time}),
        (dict[str, dt.datetime], {"a": time}),
        (Dated, Dated(at=time)),
        (list[Timed], [Timed(time.timetz())]),
        (Stamped, Stamped(time)),
        (Any, time),
        (Any, {"a": [time.timetz()]}),
    ]:
        assert "whole minutes" in refused(giving_tool(annotation), value), (annotation, value)
        with pytest.raises(AgentError, match="whole minutes"):
            encode_arguments({"x": value})


def test_utc_is_written() -> None:
    """Times in UTC are written with Z, however UTC is spelled."""
    for zone in (dt.UTC, dt.timezone(dt.timedelta()), zoneinfo.ZoneInfo("UTC")):
        time = dt.datetime(2024, 1, 1, tzinfo=zone)
        assert giving_tool(list[dt.datetime]).render([time]) == b'["2024-01-01T00:00:00Z"]'
        assert giving_tool(Any).render({"a": time}) == b'{"a":"2024-01-01T00:00:00Z"}'
        assert encode_arguments({"x": time}) == b'{"x":"2024-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dt.datetime, dt.datetime(1930, 1, 1, tzinfo=ODD)),
        (list[dt.datetime], [dt.datetime(1930, 1, 1, tzinfo=ODD)]),
        (Any, {"a": dt.datetime(1930, 1, 1, tzinfo=ODD)}),
        (dt.time, dt.time(1, tzinfo=ODD)),
    ],
)
def test_an_offset_with_seconds_is_never_cut(annotation: Any, value: Any) -> None:
    """ISO 8601 has no offsets with seconds, so such a time is refused."""
    assert "whole minutes" in refused(giving_tool(annotation), value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"x": dt.datetime(1930, 1, 1, tzinfo=ODD)},
            "argument 'x' must have a time zone whose offset is whole minutes",
        ),
        ({"x": [{"y": dt.time(1, tzinfo=ODD)}]}, "argument 'x[0].y' must have a time zone"),
        ({"x": {2023: 1, "2023": 2}}, "argument 'x' has two keys that are both '2023' in JSON"),
        ({"x": {2023: 1, 2024: 2}}, None),
    ],
)
def test_arguments_in_process_lose_nothing(arguments: dict[str, Any], words: str | None) -> None:
    """Arguments given as Python values are refused where JSON would cut a time or lose a key."""
    if words is None:
        assert encode_arguments(arguments) == b'{"x":{"2023":1,"2024":2}}'
        return
    with pytest.raises(AgentError) as caught:
        encode_arguments(arguments)
    assert caught.value.message.startswith(words)


@pytest.mark.parametrize("text", ['"1930-01-01T00:00:00+00:19:32"', '"1930-01-01T00:00:00+001932"'])
def test_an_offset_with_seconds_is_no_argument(text: str) -> None:
    """A time with seconds in its offset is refused as an argument."""
    with pytest.raises(AgentError, match="must be an ISO 8601 date and time"):
        taking_tool(dt.datetime).parse(b'{"x":%s}' % text.encode())


def test_other_offsets_are_written() -> None:
    """An offset of whole minutes is written."""
    zone = dt.timezone(dt.timedelta(hours=-5, minutes=-30))
    assert giving_tool(dt.datetime).render(dt.datetime(2024, 1, 1, tzinfo=zone)) == b'"2024-01-01T00:00:00-05:30"'


class Described(msgspec.Struct):
    """A thing.

    Attributes:
        sku: What it is called.
    """

    sku: str
    size: int = 1
    """In metres."""


class Told(BaseModel):
    """An order.

    Attributes:
        sku: What is ordered.
    """

    sku: str


@pytest.mark.parametrize(("cls", "text"), [(Described, "A thing."), (Told, "An order.")])
def test_docstrings_are_in_the_schema(cls: Any, text: str) -> None:
    """The docstring of a type is in the schema, as the input itself, inside it, and in results; so are its fields'."""
    whole = taking_tool(cls).spec.input_schema
    assert whole["description"] == text
    assert whole["properties"]["sku"]["description"].startswith("What")
    for schema in (taking_tool(list[cls]).spec.input_schema, giving_tool(list[cls]).spec.output_schema):
        (inner,) = schema["$defs"].values()
        assert inner["description"] == text
        assert inner["properties"]["sku"]["description"].startswith("What")


class Wrong(BaseModel):
    count: int = "many"  # type: ignore[assignment]


class Inner(BaseModel):
    size: Annotated[int, Field(ge=1)] = 0


@pytest.mark.parametrize(
    ("annotation", "default", "words"),
    [
        (int, "a", "the default of 'x' does not fit its type: it must be an integer"),
        (Annotated[int, Field(ge=3)], 1, "the default of 'x' does not fit its type: it must be at least 3"),
        (str, b"a", "the default of 'x' does not fit its type: it must be a string"),
        (list[int], [1, "a"], "the default of 'x' does not fit its type: it must be an integer"),
        (Literal["a", "b"], "c", "the default of 'x' does not fit its type: it must be 'a' or 'b'"),
        (dt.date, "2024-01-01", "the default of 'x' does not fit its type"),
        (Line, 3, "the default of 'x' does not fit its type: it must be an object"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(annotation: Any, default: Any, words: str) -> None:
    """A default of another type than its parameter's is refused where the tool is declared."""
    with pytest.raises(DeclarationError) as caught:
        taking_tool(Annotated[annotation, Arg()], default)
    assert words in str(caught.value)


@pytest.mark.parametrize("cls", [Wrong, Inner, list[Wrong], dict[str, Inner]])
def test_a_default_of_a_field_that_does_not_fit_is_refused(cls: Any) -> None:
    """The defaults of the fields of a model are looked at, too."""
    with pytest.raises(DeclarationError, match=r"the default of '(count|size)' does not fit its type"):
        taking_tool(cls)


def odd(value: int) -> int:
    """A validator that takes odd numbers."""
    if value % 2 == 0:
        raise ValueError("even")
    return value


def fatal(value: int) -> int:
    """A validator that ends the process."""
    raise SystemExit(value)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 3, 3),
        (float, 3, 3),
        (Annotated[int, AfterValidator(odd)], 3, 3),
        (Annotated[int, AfterValidator(odd)], 2, None),
        (Annotated[int, AfterValidator(fatal)], 2, None),
        (Annotated[dt.date, BeforeValidator(same)], dt.date(2024, 1, 1), "2024-01-01"),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (Right, Right.READ, 1),
        (Way, Way.NORTH, [0, 1]),
        (Line, Line(sku="a"), {"sku": "a", "count": 1, "tags": []}),
        (Part, Part("a"), {"sku": "a"}),
        (Either, Either.model_validate({"order_id": 1}), {"orderId": 1}),
        (float, float("nan"), None),
        (int, None, None),
    ],
)
def test_a_default_that_is_shown_is_taken(annotation: Any, default: Any, shown: Any) -> None:
    """The schema shows a default only in a form that a caller could send."""
    made = taking_tool(Annotated[annotation, Arg()], default)
    assert made.spec.input_schema["properties"]["x"].get("default") == shown
    assert made.parse(b"{}")["x"] is default or made.parse(b"{}")["x"] == default
    if shown is not None:
        assert made.parse(json.dumps({"x": shown}).encode())["x"] is not None


@pytest.mark.parametrize(
    ("examples", "is_taken"), [([1, 2], True), ([1, "two"], False), ([0], False), ([], True), ([None], False)]
)
def test_an_example_that_is_not_taken_is_refused(examples: list[Any], is_taken: bool) -> None:
    """An example that a caller could not send is refused where the tool is declared."""
    annotation = Annotated[int, Field(ge=1, examples=examples)]
    if is_taken:
        assert taking_tool(annotation).spec.input_schema["properties"]["x"]["examples"] == examples
    else:
        with pytest.raises(DeclarationError, match=r"does not fit its type\. Give examples that a caller could send"):
            taking_tool(annotation)


def test_examples_of_a_model_are_taken() -> None:
    """Examples of a whole class are looked at, too."""

    class Good(BaseModel):
        model_config = ConfigDict(json_schema_extra={"examples": [{"a": 1}]})
        a: int

    class Bad(BaseModel):
        model_config = ConfigDict(json_schema_extra={"examples": [{"b": 1}]})
        a: int

    assert taking_tool(list[Good]).spec.input_schema["$defs"]["Good"]["examples"] == [{"a": 1}]
    with pytest.raises(DeclarationError, match="does not fit its type"):
        taking_tool(list[Bad])


class Computed(BaseModel):
    hidden: int = Field(1, exclude=True)
    seen: int | None = Field(None, exclude_if=lambda value: value is None)

    @computed_field(alias="cc")  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def c(self) -> str:
        """Computed."""
        return "c"


class Renamed(BaseModel):
    a: int

    @model_serializer
    def _write(self) -> dict[str, int]:
        return {"q": self.a}


class Free(BaseModel):
    a: int

    @model_serializer
    def _write(self):  # type: ignore[no-untyped-def]
        return self.a


@dataclasses.dataclass
class Started:
    x: int
    y: dataclasses.InitVar[int] = 2
    z: int = dataclasses.field(init=False, default=5)

    def __post_init__(self, y: int) -> None:
        self.z = y


class Custom(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    a: int = Field(alias="A")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)


class Whole(BaseModel):
    k: int


class Text(BaseModel):
    k: str


def kind_of(value: Any) -> str:
    """A discriminator that is a function."""
    return "whole" if isinstance(value["k"] if isinstance(value, dict) else value.k, int) else "text"


Told_apart = Annotated[Annotated[Whole, Tag("whole")] | Annotated[Text, Tag("text")], Discriminator(kind_of)]


@pytest.mark.parametrize(
    ("annotation", "text", "written"),
    [
        (Computed, '{"hidden":1,"seen":2}', '{"seen":2,"cc":"c"}'),
        (Computed, "{}", '{"cc":"c"}'),
        (Renamed, '{"a":1}', '{"q":1}'),
        (Free, '{"a":1}', "1"),
        (Started, '{"x":1,"y":3}', '{"x":1,"z":3}'),
        (Custom, '{"A":1}', '{"A":1}'),
        (Custom, '{"a":1}', '{"A":1}'),
        (Told_apart, '{"k":1}', '{"k":1}'),
        (Told_apart, '{"k":"s"}', '{"k":"s"}'),
        (ipaddress.IPv4Address, '"1.2.3.4"', '"1.2.3.4"'),
        (pathlib.PurePosixPath, '"/a"', '"/a"'),
        (AnyUrl, '"http://a.b/"', '"http://a.b/"'),
        (Json[int], '"1"', "1"),
        (ByteSize, '"1KB"', "1000"),
        (collections.defaultdict[str, list[int]], '{"a":[1]}', '{"a":[1]}'),
        (collections.abc.Mapping[str, int], '{"a":1}', '{"a":1}'),
        (collections.abc.Sequence[Line], '[{"sku":"a"}]', '[{"sku":"a","count":1,"tags":[]}]'),
        (JsonValue, '{"a":[1,null]}', '{"a":[1,null]}'),
        (SecretStr, '"x"', '"**********"'),
        (Base64Str, '"YQ=="', '"YQ=="'),
        (UUID4, '"7f0b1c9e-3c1f-4c5e-9a43-1d2f0a9f6f11"', '"7f0b1c9e-3c1f-4c5e-9a43-1d2f0a9f6f11"'),
        (dict[bool, int], '{"true":1}', '{"true":1}'),
        (dict[float, int], '{"1.5":1}', '{"1.5":1}'),
        (dict[bytes, int], '{"YQ==":1}', '{"YQ==":1}'),
        (dict[ipaddress.IPv4Address, int], '{"1.2.3.4":1}', '{"1.2.3.4":1}'),
        (dict[Annotated[str, Field(pattern="^a")], int], '{"ab":1}', '{"ab":1}'),
    ],
)
def test_types_of_pydantic_and_of_authors(annotation: Any, text: str, written: str) -> None:
    """Types that pydantic or an author gave validators and serialisers of their own agree with their schemas."""
    taken = taking_tool(Annotated[annotation, Arg()])
    whole = f'{{"x":{text}}}'
    assert allows(taken.spec.input_schema, json.loads(whole))
    given = giving_tool(annotation)
    found = given.render(taken.parse(whole.encode())["x"]).decode()
    assert found == written
    assert allows(given.spec.output_schema, json.loads(found))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[str], [None] * 100_000),
        (list[int], ["a"] * 100_000),
        (list[Line], [{}] * 100_000),
        (list[Line], [Line.model_construct()] * 100_000),
        (dict[str, int], {str(number): None for number in range(100_000)}),
        (tuple[int, ...], (None,) * 100_000),
    ],
)
def test_many_wrong_items_are_one_problem(annotation: Any, value: Any) -> None:
    """An output of many wrong items is refused for the first of them."""
    with pytest.raises(AgentError) as caught:
        rendered(giving_tool(annotation), value)
    assert caught.value.details is not None
    assert len(caught.value.details["problems"]) == 1


def test_python_reads_what_is_written() -> None:
    """What a model writes, pydantic reads again."""
    made = giving_tool(list[Shelf])
    shelves = [Shelf(lines=[Line(sku="a")], label="x")]
    assert TypeAdapter(list[Shelf]).validate_json(made.render(shelves)) == shelves


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of type parameters")
def test_type_parameters_with_constraints() -> None:
    """A generic function is declared by the constraints of its type parameters, with postponed annotations, too."""
    names: dict[str, Any] = {}
    code = (
        "from __future__ import annotations\n"
        "from carmy_engine import tool\n"
        "@tool(effect='none', register=False)\n"
        "def first[T: (int, str)](items: list[T]) -> T:\n"
        "    return items[0]\n"
    )
    exec(code, names)
    assert names["first"].__carmy_tool__.parts is not None
