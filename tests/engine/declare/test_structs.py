"""msgspec Structs: at the top, in each other, in lists and unions, and inside what pydantic knows."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict

from carmy_engine.errors import AgentError

from .conftest import Giver, Taker, Taking

T = TypeVar("T")


class Part(msgspec.Struct, rename="camel", frozen=True):
    part_number: Annotated[int, msgspec.Meta(ge=1)]
    tags: tuple[str, ...] = ()


class Node(msgspec.Struct):
    name: str
    kids: list[Node] = []


class Card(msgspec.Struct, tag="card", tag_field="by"):
    number: str


class Cash(msgspec.Struct, tag="cash", tag_field="by"):
    cents: int


class Patch(msgspec.Struct):
    name: str | msgspec.UnsetType = msgspec.UNSET


class Positive(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a is below zero")


@dataclasses.dataclass
class Data:
    part: Part


class Typed(typing_extensions.TypedDict):
    part: Part


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    part: Part
    paid: Card | Cash | None = None


class Outer(msgspec.Struct):
    model: Model
    data: Data | None = None


PART = '{"partNumber":3}'


@pytest.mark.parametrize(
    ("annotation", "json", "value"),
    [
        (list[Part], f"[{PART}]", [Part(3)]),
        (dict[str, Part], f'{{"a":{PART}}}', {"a": Part(3)}),
        (Part | None, "null", None),
        (Part | int, PART, Part(3)),
        (Card | Cash, '{"by":"cash","cents":2}', Cash(2)),
        (Card | Cash | None, '{"by":"card","number":"1"}', Card("1")),
        (list[Card | Cash | int], '[1,{"by":"cash","cents":2}]', [1, Cash(2)]),
        (list[Node], '[{"name":"a","kids":[{"name":"b"}]}]', [Node("a", [Node("b")])]),
        (list[Patch], '[{},{"name":"a"}]', [Patch(), Patch("a")]),
        (list[Data], f'[{{"part":{PART}}}]', [Data(Part(3))]),
        (list[Typed], f'[{{"part":{PART}}}]', [{"part": Part(3)}]),
        (list[Model], f'[{{"part":{PART},"paid":{{"by":"cash","cents":1}}}}]', [Model(part=Part(3), paid=Cash(1))]),
        (list[Outer], f'[{{"model":{{"part":{PART}}}}}]', [Outer(Model(part=Part(3)))]),
    ],
)
def test_structs_anywhere(take: Taker, give: Giver, annotation: Any, json: str, value: Any) -> None:
    """Structs are built by class wherever they stand, and come out as they went in."""
    found = take(annotation, json)
    assert found == value
    assert take(annotation, give(annotation, found).decode()) == value


@pytest.mark.parametrize(
    ("annotation", "json", "words"),
    [
        (list[Part], '[{"part_number":3}]', "'x[0].partNumber' is missing; argument 'x[0].part_number' is not known"),
        (list[Part], '[{"partNumber":0}]', "'x[0].partNumber' must be at least 1"),
        (list[Part], '[{"partNumber":"3"}]', "'x[0].partNumber' must be an integer"),
        (list[Model], '[{"part":{"partNumber":true}}]', "'x[0].part.partNumber' must be an integer"),
        (list[Outer], '[{"model":{"part":{}}}]', "'x[0].model.part.partNumber' is missing"),
        (Card | Cash, '{"cents":1}', "'x.by' is missing"),
        (Card | Cash, '{"by":"cheque"}', "'x.by' must be one of 'card', 'cash'"),
        (list[Positive], '[{"a":-1}]', "argument 'x[0]': a is below zero"),
        (Patch | int, '{"name":1}', "'x.name' must be a string"),
    ],
)
def test_structs_are_strict(take: Taker, annotation: Any, json: str, words: str) -> None:
    """The table, the rule of unknown fields and the constraints hold inside Structs."""
    assert words in take.refused(annotation, json)


class Array(msgspec.Struct, array_like=True):
    a: int


class Plain(msgspec.Struct):
    a: int


class Box(msgspec.Struct, Generic[T]):
    inner: T


class IntBox(Box[int]):
    pass


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Array, "Struct Array is array_like"),
        (Plain | Positive, "the Structs Plain, Positive cannot be distinguished. Give each a tag"),
        (Box[int], "Struct Box is generic. Give its types in a class: 'class IntBox(Box[int])'"),
    ],
)
def test_structs_that_do_not_fit(taking: Taking, annotation: Any, words: str) -> None:
    """What cannot work is refused at decoration, saying what to do."""
    with pytest.raises(TypeError) as caught:
        taking(list[annotation])
    assert words in str(caught.value)


def test_generic_structs_with_their_types(take: Taker) -> None:
    """A class with its types filled in works."""
    assert take(list[IntBox], '[{"inner":1}]') == [IntBox(1)]
    assert take.refused(list[IntBox], '[{"inner":"a"}]') == "argument 'x[0].inner' must be an integer"


def test_a_model_without_permission(taking: Taking) -> None:
    """The permission a model needs for a Struct is pydantic's own rule, at the class."""
    with pytest.raises(Exception, match="arbitrary_types_allowed"):

        class Strict(BaseModel):
            part: Part


def test_unset_fields_stay_out(give: Giver) -> None:
    """A field that is UNSET is not rendered."""
    assert give(Patch, Patch()) == b"{}"
    assert give(list[Patch], [Patch("a")]) == b'[{"name":"a"}]'


def test_the_whole_struct_is_the_input(taking: Taking) -> None:
    """A Struct as the only parameter is the input; its tag need not be sent."""
    compiled = taking(Card)
    assert compiled.parse(b'{"number":"1"}') == {"x": Card("1")}
    with pytest.raises(AgentError, match="argument 'by' must be 'card'"):
        compiled.parse(b'{"number":"1","by":"cash"}')
