"""What tools may return, how it is rendered, and what happens to the rest."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import enum
import json
import typing
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    computed_field,
    field_validator,
    model_serializer,
    model_validator,
)

from carmy_engine._schema import json_form
from carmy_engine.errors import AgentError

from .conftest import Giver, Taking, giving_tool

NAN = float("nan")


class Colour(enum.Enum):
    RED = "red"


class Line(BaseModel):
    sku: str
    price: float = 1.0
    count: int = Field(default=1, alias="n")


class Gift(Line):
    paper: str = "plain"


class Base(BaseModel, polymorphic_serialization=True):
    """What inherits from it is written with what it adds."""


class Measured(Base):
    metre: float
    at: dt.date = Field(default=dt.date(2024, 1, 1), serialization_alias="when")


class Rated(BaseModel):
    stars: Annotated[int, Field(ge=1, le=5)]
    inner: list[Rated] = []


@dataclasses.dataclass
class Data:
    sku: str
    price: float = 1.0


class Typed(typing_extensions.TypedDict):
    sku: str


class Struct(msgspec.Struct, rename="camel"):
    item_count: int
    price: float = 1.0
    next_one: Struct | None = None


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    age: int


class Area(BaseModel):
    side: int

    @computed_field
    def area(self) -> int:
        return self.side**2


UTC = dt.timezone.utc  # noqa: UP017


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (None, None, "null"),
        (int, 2**70, str(2**70)),
        (float, 1, "1.0"),
        (str, "NaN and Infinity", '"NaN and Infinity"'),
        (Line, Line(sku="a"), '{"sku":"a","price":1.0,"n":1}'),
        (Line, {"sku": "a", "n": 2}, '{"sku":"a","price":1.0,"n":2}'),
        (Line, Gift(sku="a"), '{"sku":"a","price":1.0,"n":1}'),
        (SerializeAsAny[Line], Gift(sku="a"), '{"sku":"a","price":1.0,"n":1,"paper":"plain"}'),
        (list[Base], [Base(), Measured(metre=1)], '[{},{"metre":1.0,"when":"2024-01-01"}]'),
        (list[Base], [{}], "[{}]"),
        (Line | None, {"sku": "a"}, '{"sku":"a","price":1.0,"n":1}'),
        (list[Line], [{"sku": "a"}, Line(sku="b")], '[{"sku":"a","price":1.0,"n":1},{"sku":"b","price":1.0,"n":1}]'),
        (Rated, Rated(stars=3, inner=[Rated(stars=1)]), '{"stars":3,"inner":[{"stars":1,"inner":[]}]}'),
        (Area, Area(side=2), '{"side":2,"area":4}'),
        (Data, Data("a"), '{"sku":"a","price":1.0}'),
        (Data, {"sku": "a"}, '{"sku":"a","price":1.0}'),
        (Typed, {"sku": "a"}, '{"sku":"a"}'),
        (
            Struct,
            Struct(1, next_one=Struct(2)),
            '{"itemCount":1,"price":1.0,"nextOne":{"itemCount":2,"price":1.0,"nextOne":null}}',
        ),
        (Struct, {"itemCount": 1}, '{"itemCount":1,"price":1.0,"nextOne":null}'),
        (Cat | Dog, Dog(3), '{"type":"Dog","age":3}'),
        (list[Cat | Dog], [Cat("a"), {"type": "Dog", "age": 1}], '[{"type":"Cat","name":"a"},{"type":"Dog","age":1}]'),
        (RootModel[list[int]], RootModel[list[int]]([1]), "[1]"),
        (list[int], (1, 2), "[1,2]"),
        (tuple[int, str], [1, "a"], '[1,"a"]'),
        (collections.abc.Iterable[int], [1], "[1]"),
        (collections.abc.Sequence[int], (1,), "[1]"),
        (set[int], {1}, "[1]"),
        (dict[int, str], {1: "a"}, '{"1":"a"}'),
        (Colour, Colour.RED, '"red"'),
        (Literal["a"], "a", '"a"'),
        (bytes, b"\xff\xfe\xfd", '"//79"'),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (UUID, UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (dt.datetime, dt.datetime(2024, 1, 1, tzinfo=UTC), '"2024-01-01T00:00:00Z"'),
        (dt.timedelta, dt.timedelta(days=1), '"P1D"'),
        (PurePosixPath, PurePosixPath("/a"), '"/a"'),
        # Any: everything with a documented JSON form
        (Any, {"a": [1, 2.5, None, True, "x"]}, '{"a":[1,2.5,null,true,"x"]}'),
        (Any, {1: "a"}, '{"1":"a"}'),
        (Any, Line(sku="a"), '{"sku":"a","price":1.0,"n":1}'),
        (Any, [Data("a"), Cat("b")], '[{"sku":"a","price":1.0},{"type":"Cat","name":"b"}]'),
        (Any, (1, frozenset([2])), "[1,[2]]"),
        (Any, Colour.RED, '"red"'),
        (Any, b"a", '"YQ=="'),
        (Any, Decimal("1.10"), '"1.10"'),
        (Any, UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (dict, {"a": (1,)}, '{"a":[1]}'),
        (list, [Line(sku="a")], '[{"sku":"a","price":1.0,"n":1}]'),
        (dict[str, Any], {"a": b"a"}, '{"a":"YQ=="}'),
        (object, [1], "[1]"),
    ],
)
def test_rendered(give: Giver, annotation: Any, value: Any, text: str) -> None:
    """A value of the promised type, or of a shape that converts without loss, becomes JSON."""
    assert give(annotation, value).decode() == text


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (None, 3, "the output must be null"),
        (int, "5", "the output must be an integer"),
        (bool, 1, "the output must be true or false"),
        (str, 1, "the output must be a string"),
        (str, Colour.RED, "the output must be a string"),
        (float, NAN, "the output must be a finite number"),
        (float | None, NAN, "the output must be a finite number"),
        (list[float], [1.0, -float("inf")], "'[1]' in the output must be a finite number"),
        (Line, Line(sku="a", price=NAN), "'price' in the output must be a finite number"),
        (list[Data], [Data("a", NAN)], "'[0].price' in the output must be a finite number"),
        (Struct, Struct(1, NAN), "in the output must be a finite number"),
        (Any, {"a": [NAN]}, "'a[0]' in the output must be a finite number"),
        (dict[str, Any], {"a": {"b": NAN}}, "'a.b' in the output must be a finite number"),
        (Decimal, Decimal("NaN"), "the output must be a finite number"),
        (Decimal, 1.5, "the output must be an instance of Decimal"),
        (Line, {"sku": 3}, "'sku' in the output must be a string"),
        (Line, {}, "'sku' in the output is missing"),
        (Line, 3, "the output must be an object"),
        (Line, Line.model_construct(sku=3), "'sku' in the output must be a string"),
        (Data, Data(3), "'sku' in the output must be a string"),  # type: ignore[arg-type]
        (Struct, Struct("a"), "in the output must be an integer"),  # type: ignore[arg-type]
        (Typed, {}, "'sku' in the output is missing"),
        (Typed, {"sku": "a", "extra": 1}, "'extra' in the output is not known"),
        (Cat | Dog, 3, "the output"),
        (Rated, Rated.model_construct(stars=6), "'stars' in the output must be at most 5"),
        (Rated, {"stars": 1, "inner": [{"stars": 0}]}, "'inner[0].stars' in the output must be at least 1"),
        (Annotated[str, Field(max_length=2)], "abc", "the output must have at most 2 characters"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "the output must have at most 1 item"),
        (Literal["a"], "b", "the output must be 'a'"),
        (Colour, "red", "the output must be"),
        (list[int], [1, "a"], "'[1]' in the output must be an integer"),
        (list[int], {1}, "the output must be a list"),
        (list[int], iter([1]), "the output must be a list"),
        (collections.abc.Iterable[int], (i for i in [1]), "the output must be a list"),
        (dict[str, int], {1: 1}, "must be a string"),
        (UUID, "a", "the output must be an instance of UUID"),
        (bytes, "a", "the output must be bytes"),
        (dt.datetime, "2024-01-01T00:00:00", "the output must be a date and time"),
        (str, "\ud800", "the output contains a lone surrogate"),
        (Line, Line(sku="\ud800"), "'sku' in the output contains a lone surrogate"),
        (Any, {"a": "\ud800"}, "'a' in the output contains a lone surrogate"),
        (Any, object(), "the output is of type object, which has no JSON form"),
        (Any, {"a": [ValueError()]}, "'a[0]' in the output is of type ValueError"),
        (Any, (i for i in "ab"), "the output is of type generator"),
        (Any, {(1, 2): 3}, "the output has a key that cannot be a name in a JSON object"),
        (dict, {(1, 2): 3}, "the output has a key that cannot be a name in a JSON object"),
        (Any, CIRCULAR, "the output has no JSON form"),
        (Any, DEEP, "the output has no JSON form"),
        (list, CIRCULAR, "the output has no JSON form"),
    ],
)
def test_refused(give: Giver, annotation: Any, value: Any, words: str) -> None:
    """What does not fit the schema is INVALID_OUTPUT, naming the path: no crash, no repr, no silent null."""
    assert words in give.refused(annotation, value)


class Named(BaseModel):
    """Its fields have names that mean something in the schemas of types."""

    type: Annotated[int, Field(ge=1)] = 1
    default: Annotated[int, Field(ge=1)] = 1
    serialization: Annotated[int, Field(ge=1)] = 1
    metadata: float = 1.0


class Open(BaseModel, extra="allow"):
    """Takes what it does not know."""


class OpenLine(Line, extra="allow"):
    """The same, behind a validator that sees the object before its fields."""

    @model_validator(mode="before")
    @classmethod
    def _see(cls, given: Any) -> Any:
        return given


class OpenTyped(typing_extensions.TypedDict):
    """Takes what it does not name."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    sku: str


class Computed(BaseModel):
    side: int

    @computed_field
    def half(self) -> float:
        return self.side * NAN


class Written(BaseModel):
    share: Annotated[int, PlainSerializer(lambda share: share * NAN, return_type=float)]


class Level(enum.Enum):
    LOST = NAN


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Named, Named.model_construct(type=0), "'type' in the output must be at least 1"),
        (Named, Named.model_construct(default=0), "'default' in the output must be at least 1"),
        (Named, Named.model_construct(serialization=0), "'serialization' in the output must be at least 1"),
        (Named, Named(metadata=NAN), "'metadata' in the output must be a finite number"),
        (Open, Open(more=NAN), "must be a finite number"),  # type: ignore[call-arg]
        (OpenLine, OpenLine(sku="a", more=NAN), "'more' in the output must be a finite number"),  # type: ignore[call-arg]
        (OpenTyped, {"sku": "a", "more": NAN}, "'more' in the output must be a finite number"),
        (list[OpenTyped], [{"sku": "a", "more": [NAN]}], "'[0].more[0]' in the output must be a finite number"),
        (Base, Measured(metre=NAN), "'metre' in the output must be a finite number"),
        (SerializeAsAny[Line], Gift(sku="a", price=NAN), "'price' in the output must be a finite number"),
        (Base, 3, "the output must be an object"),
        (Computed, Computed(side=1), "must be a finite number"),
        (Written, Written(share=1), "must be a finite number"),
        (RootModel[dict[str, tuple[int, float]]], RootModel({"a": (1, NAN)}), "must be a finite number"),
        (list[int | float], [1, NAN], "must be an integer or a number"),
    ],
)
def test_values_that_only_a_close_look_finds(give: Giver, annotation: Any, value: Any, words: str) -> None:
    """Wherever a type may hide a number that JSON lacks, or a constraint, the output is looked at."""
    assert words in give.refused(annotation, value)


class Painted(BaseModel, use_enum_values=True):
    coats: Annotated[int, Field(ge=1)] = 1
    colour: Colour
    others: list[Colour] = []


class Plain(BaseModel, use_enum_values=True):
    colour: Colour | None


def test_enums_that_became_their_values(give: Giver) -> None:
    """A model may keep the values of its enums, beside constraints too, which still hold."""
    painted = Painted(colour=Colour.RED, others=[Colour.RED])
    assert give(Painted, painted) == b'{"coats":1,"colour":"red","others":["red"]}'
    assert "'coats' in the output must be at least 1" in give.refused(Painted, painted.model_copy(update={"coats": 0}))
    assert "'colour' in the output" in give.refused(Painted, painted.model_copy(update={"colour": "green"}))
    assert give(list[Plain], [Plain(colour=Colour.RED)]) == b'[{"colour":"red"}]'
    assert "'colour' in the output" in give.refused(Plain, Plain.model_construct(colour="green"))


@pytest.mark.parametrize("open_one", [OpenLine(sku="a", more=Struct(1)), Open(sku="a", more=Struct(1))])  # type: ignore[call-arg]
def test_what_comes_beside_the_fields(give: Giver, open_one: BaseModel) -> None:
    """Members that an open type does not name are written like values of type Any, whatever validators it has."""
    assert b'"more":{"itemCount":1' in give(type(open_one), open_one)
    assert b'"more":{"itemCount":1' in give(OpenTyped, {"sku": "a", "more": Struct(1)})


def test_a_refusal_says_nothing_of_how_it_was_found() -> None:
    """An output that is refused leaves neither pydantic's error nor the trick that found it in the traceback."""
    with pytest.raises(AgentError) as caught:
        giving_tool(Line).render(Line.model_construct(sku=3))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_no_filter_lets_a_wrong_output_pass(give: Giver) -> None:
    """What a host does with Python's warnings changes nothing: a wrong output is refused, and Python issues no warning."""
    for action in ("ignore", "always", "error"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            assert "'[0].sku' in the output must be a string" in give.refused(list[Line], [Line.model_construct(sku=3)])
        assert caught == []


class Wrapped(BaseModel):
    """Its author has a say in how it is written."""

    sku: str

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return written


Loud = Annotated[str, WrapSerializer(lambda value, handler: handler(value) * 2)]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Wrapped, Wrapped.model_construct(sku=3)),
        (list[Wrapped], [Wrapped.model_construct(sku=3)]),
        (Loud, 3),
        (dict[str, Loud], {"a": 3}),
        (Annotated[int, PlainSerializer(lambda _: [3], return_type=list[Loud])], 1),
        (Base, 3),
        (list[Base], [Measured.model_construct(metre="far")]),
    ],
)
def test_what_is_wrapped_is_no_way_round(give: Giver, annotation: Any, value: Any) -> None:
    """A serialiser of the author that wraps pydantic's own lets nothing pass that does not fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "the output" in give.refused(annotation, value)
    assert caught == []


def test_what_is_wrapped_is_written(give: Giver) -> None:
    """A serialiser of the author that wraps pydantic's own decides what is written."""
    assert give(Loud, "a") == b'"aa"'
    assert give(Wrapped, Wrapped(sku="a")) == b'{"sku":"a"}'


def test_warnings_are_errors_on_this_python() -> None:
    """Where a warning can be stopped on its way, it is, or rendering takes twice as long."""
    assert json_form._WARNINGS is True


def test_a_python_that_lets_warnings_pass(give: Giver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that cannot be done, pydantic is asked for errors, and outputs are what they are everywhere."""
    monkeypatch.setattr(json_form, "_WARNINGS", "error")
    monkeypatch.setattr(json_form, "__warningregistry__", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not json_form._are_warnings_errors()
        assert "'[0].sku' in the output must be a string" in give.refused(list[Line], [Line.model_construct(sku=3)])
        assert give(list[int], (1, 2)) == b"[1,2]"


def test_a_warning_of_the_author_stays_a_warning(give: Giver) -> None:
    """A computed field that issues a warning is written all the same."""

    class Old(BaseModel):
        @computed_field
        def area(self) -> int:
            warnings.warn("use size", DeprecationWarning, stacklevel=2)
            return 4

    with pytest.warns(DeprecationWarning, match="use size"):
        assert give(Old, Old()) == b'{"area":4}'


@pytest.mark.parametrize(
    "annotation",
    [
        type,
        collections.abc.Callable,
        complex,
        Fraction,
        dict[tuple[int, int], str],
        NAN.__class__ | type,
        Level,
        Literal[Level.LOST],
    ],
)
def test_types_without_a_schema(giving: Taking, annotation: Any) -> None:
    """A return type that JSON does not have is refused at decoration."""
    with pytest.raises(TypeError, match="give"):
        giving(annotation)


def test_the_size_limit() -> None:
    """Exactly the limit passes; one byte more is OUTPUT_TOO_LARGE, states both sizes and that the tool ran."""
    compiled = giving_tool(str, max_output_bytes=10)
    assert compiled.render("x" * 8) == b'"xxxxxxxx"'
    with pytest.raises(AgentError) as caught:
        compiled.render("x" * 9)
    assert caught.value.code == "OUTPUT_TOO_LARGE"
    assert "the tool ran" in caught.value.message
    assert caught.value.details == {"size_bytes": 11, "limit_bytes": 10}


def test_validators_of_the_author_do_not_run_again() -> None:
    """Checking a model that a tool has made runs none of its author's validators a second time."""
    runs: list[int] = []

    class Counted(BaseModel):
        a: Annotated[int, Field(ge=0)]

        @field_validator("a")
        @classmethod
        def _count(cls, value: int) -> int:
            runs.append(value)
            return value

        def model_post_init(self, context: Any) -> None:
            runs.append(-1)

    compiled = giving_tool(Counted)
    value = Counted(a=1)
    runs.clear()
    assert compiled.render(value) == b'{"a":1}'
    assert runs == []


def test_a_property_that_fails_is_an_invalid_output(give: Giver) -> None:
    """A computed field that raises does not crash the engine, and its author finds the cause."""

    class Broken(BaseModel):
        @computed_field
        def area(self) -> int:
            raise KeyError("secret")

    with pytest.raises(AgentError) as caught:
        give(Broken, Broken())
    assert caught.value.code == "INVALID_OUTPUT"
    assert "secret" not in caught.value.message


def test_typing_typed_dict(give: Giver) -> None:
    """``typing.TypedDict`` works on every Python, nested too."""
    Old = typing.TypedDict("Old", {"a": int})  # noqa: UP013
    assert give(list[Old], [{"a": 1}]) == b'[{"a":1}]'


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_any_json_survives(value: Any) -> None:
    """Every JSON-shaped value of type Any comes out as it went in."""
    assert json.loads(ANY.render(value)) == value


ANY = giving_tool(Any)
