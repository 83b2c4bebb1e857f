"""Signatures and models of the kinds that users report trouble with, each with a value that it takes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from carmy_engine import AgentContext, Arg, State, tool

T = TypeVar("T")


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    """Where somebody lives."""

    street: str = Field(description="With the number.")
    city: str | None = None


class Person(BaseModel):
    name: str
    home: Address = Field(description="Where letters go.")
    work: Address | None = None


class Node(BaseModel):
    word: str
    children: list[Node] = []


class Left(BaseModel):
    word: str
    other: Right | None = None


class Right(BaseModel):
    number: int
    other: Left | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Card(msgspec.Struct, tag=True):
    number: str


class Cash(msgspec.Struct, tag=True):
    cents: int
    tip: int = 0


class Line(msgspec.Struct):
    sku: str
    count: int = 1


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    """Upwards."""


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Aliased(BaseModel):
    order_id: str = Field(alias="orderId")
    ship_to: str = Field("here", alias="shipTo")


class TwoNames(BaseModel):
    order_id: str = Field(validation_alias=AliasChoices("orderId", "id"))
    ship_to: str = Field("here", validation_alias=AliasChoices("shipTo", "to"))


class Base(BaseModel):
    id: int


class Derived(Base):
    note: str = "none"


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Strictest(BaseModel):
    code: str = Field(min_length=2, max_length=4, pattern="^[A-Z]+$")
    share: float = Field(gt=0, le=1)
    tags: list[str] = Field(default_factory=list, max_length=3)
    even: int = Field(2, multiple_of=2)


class Empty(BaseModel):
    """No fields."""


class Deep(BaseModel):
    one: Person
    two: list[Person]
    three: dict[str, Person] = {}


STATE: dict[Any, object] = {dict: {}}
"""State for the tools that ask for some."""

CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}


def case(**value: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a tool with a value for its arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = (function, value)
        return function

    return decorate


def logged(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A decorator like many."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@case()
@tool(effect="none", register=False)
async def nothing() -> None:
    """Take nothing."""


@case(a="x", b=1, c=1.5, d=True)
@tool(effect="none", register=False)
async def scalars(a: str, b: int, c: float, d: bool) -> None:
    """Take scalars.

    Args:
        a: A text.
    """


@case(query="mouse")
@tool(effect="none", register=False)
async def defaults(query: str, limit: int = 10, exact: bool = False, words: str = "all") -> None:
    """Take defaults."""


@case(sku="AB-12", count=None)
@tool(effect="none", register=False)
async def optionals(sku: str, warehouse: str | None = None, count: int | None = 3) -> None:
    """Take what may be null."""


@case(value=None)
@tool(effect="none", register=False)
async def required_null(value: int | None) -> None:
    """Need a value, which may be null."""


@case(value="x")
@tool(effect="none", register=False)
async def unions(value: int | str | bool, other: list[int] | str = "a") -> None:
    """Take one of several."""


@case(colour="red", level=2, word="a", flag=True)
@tool(effect="none", register=False)
async def enums(
    colour: Colour, level: Level, word: Literal["a", "b"], flag: Literal[True], mixed: Literal[1, "x"] = 1
) -> None:
    """Take choices."""


@case(colour=None)
@tool(effect="none", register=False)
async def optional_enums(
    colour: Colour | None = Colour.RED, maybe: Literal["a", None] = None, level: Level = Level.LOW
) -> None:
    """Take choices or nothing."""


@case(a="2024-02-29", b="2024-02-29T12:00:00Z", c="12:00:00", d="PT1H", e="3f2b8c1e-6d0a-4b7e-9a53-0c8d2f5e7a11")
@tool(effect="none", register=False)
async def dates(a: dt.date, b: dt.datetime, c: dt.time, d: dt.timedelta, e: uuid.UUID) -> None:
    """Take dates."""


@case(price="12.50", share="0.5")
@tool(effect="none", register=False)
async def decimals(price: decimal.Decimal, share: Annotated[decimal.Decimal, Field(ge=0)] = decimal.Decimal(1)) -> None:
    """Take exact numbers."""


@case(data="AAEC")
@tool(effect="none", register=False)
async def binary(data: bytes) -> None:
    """Take bytes."""


@case(a=[1, 2], b=["x"], c=[1, "x"], d=[1, 2])
@tool(effect="none", register=False)
async def lists(a: list[int], b: set[str], c: tuple[int, str], d: tuple[int, ...]) -> None:
    """Take lists."""


@case(scores={"a": 1})
@tool(effect="none", register=False)
async def dicts(scores: dict[str, int]) -> None:
    """Take free names."""


@case(value={"a": [1, None]})
@tool(effect="none", register=False)
async def anything(value: Any) -> None:
    """Take any value."""


@case(values=[])
@tool(effect="none", register=False)
async def any_list(values: list) -> None:
    """Take a list of anything."""


@case(name="ana", home={"street": "Way 1"})
@tool(effect="none", register=False)
async def nested(person: Person) -> None:
    """Take a model with models in it."""


@case(word="a", children=[{"word": "b", "children": [{"word": "c"}]}])
@tool(effect="none", register=False)
async def recursive(node: Node) -> None:
    """Take a tree."""


@case(tree={"word": "a", "children": []}, limit=1)
@tool(effect="none", register=False)
async def recursive_argument(tree: Annotated[Node, Arg()], limit: int) -> None:
    """Take a tree and a number."""


@case(word="a", other={"number": 1, "other": {"word": "b"}})
@tool(effect="none", register=False)
async def mutually_recursive(left: Left) -> None:
    """Take two that hold each other."""


@case(pet={"kind": "cat"})
@tool(effect="none", register=False)
async def discriminated(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None:
    """Take one of two models, told apart by a field."""


@case(pet={"kind": "dog", "tricks": ["sit"]})
@tool(effect="none", register=False)
async def optional_discriminated(pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None) -> None:
    """Take one of two models, or nothing."""


@case(pets=[{"kind": "dog"}, {"kind": "cat", "lives": 7}])
@tool(effect="none", register=False)
async def plain_union(pets: list[Cat | Dog]) -> None:
    """Take models that nothing tells apart but their fields."""


@case(payment={"type": "Cash", "cents": 5})
@tool(effect="none", register=False)
async def tagged_structs(payment: Card | Cash) -> None:
    """Take one of two Structs."""


@case(sku="AB-12")
@tool(effect="none", register=False)
async def struct(line: Line) -> None:
    """Take a Struct."""


@case(x=1.5)
@tool(effect="none", register=False)
async def dataclass(point: Point) -> None:
    """Take a dataclass."""


@case(depth=1)
@tool(effect="none", register=False)
async def typed_dict(options: Options) -> None:
    """Take a TypedDict with a field that may be missing."""


@case(options={"depth": 1}, points=[{"x": 1.0}])
@tool(effect="none", register=False)
async def objects_in_arguments(options: Annotated[Options, Arg()], points: list[Point]) -> None:
    """Take objects as arguments."""


@case(name="a", more=[1])
@tool(effect="none", register=False)
async def open_model(input: Open) -> None:  # noqa: A002 - the name is what is tested
    """Take fields that nobody knows."""


@case(orderId="1")
@tool(effect="none", register=False)
async def aliases(order: Aliased) -> None:
    """Take fields under other names."""


@case(id=1)
@tool(effect="none", register=False)
async def inherited(input: Derived) -> None:  # noqa: A002 - as above
    """Take inherited fields."""


@case(items=[1, 2])
@tool(effect="none", register=False)
async def generic(page: Page[int]) -> None:
    """Take a generic model."""


@case(page={"items": [{"street": "Way 1"}]}, other={"items": []})
@tool(effect="none", register=False)
async def generic_twice(page: Annotated[Page[Address], Arg()], other: Annotated[Page[str], Arg()]) -> None:
    """Take two of them."""


@case(code="AB", share=0.5)
@tool(effect="none", register=False)
async def constrained(input: Strictest) -> None:  # noqa: A002 - as above
    """Take what is limited."""


@case(limit=5, name="a")
@tool(effect="none", register=False)
async def annotated(
    limit: Annotated[int, "Most results.", Field(ge=1, le=10)], name: Annotated[str, msgspec.Meta(max_length=5)]
) -> None:
    """Take annotated arguments."""


@case(empty={})
@tool(effect="none", register=False)
async def empty_object(empty: Annotated[Empty, Arg()]) -> None:
    """Take an object without fields."""


@case()
@tool(effect="none", register=False)
async def optional_object(home: Annotated[Address | None, Arg()] = None, tags: list[str] = []) -> None:  # noqa: B006 - never changed
    """Take an object or nothing."""


@case(one={"name": "a", "home": {"street": "b"}}, two=[])
@tool(effect="none", register=False)
async def deep(input: Deep) -> None:  # noqa: A002 - as above
    """Take the same model in several places."""


@case(wanted={"word": "a"})
@tool(effect="none", register=False)
async def forward(wanted: Annotated[Later, Arg()]) -> None:
    """Take what is defined further down."""


@case(word="a")
@tool(effect="none", register=False)
@logged
async def decorated(word: Annotated[str, "What to say."]) -> None:
    """Be wrapped."""


@case(table="a")
@tool(effect="none", register=False)
async def injected(ctx: AgentContext, db: State[dict], table: str) -> None:
    """Be injected into."""


@case(id="a", shipTo="b")
@tool(effect="none", register=False)
async def two_names(order: TwoNames) -> None:
    """Take either of two names for a field."""


@case(orders=[{"orderId": "a"}, {"id": "a", "to": "b"}])
@tool(effect="none", register=False)
async def nested_two_names(orders: list[TwoNames]) -> None:
    """Take either of two names for a field of an item."""


@case(**{"class": "a", "from_": 1})
@tool(effect="none", register=False)
async def words(class_: Annotated[str, Field(alias="class")], from_: int) -> None:
    """Take names that Python keeps for itself."""


@case(code="a", email="a@b.c")
@tool(effect="none", register=False)
async def patterns(
    code: Annotated[str, Field(pattern="^a[0-9]?$")],
    email: Annotated[str, Field(json_schema_extra={"format": "email"})],
) -> None:
    """Take patterns."""


class Later(BaseModel):
    word: str
