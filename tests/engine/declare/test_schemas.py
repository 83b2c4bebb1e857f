"""The JSON Schemas that are published."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import sys
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import jsonschema
import msgspec
import pytest
import typing_extensions
from pydantic import BaseModel, Field

from carmy_engine import Arg, tool
from carmy_engine.testing import CompiledTool, compile_tool

from .conftest import Taking


class Colour(enum.StrEnum):
    RED = "red"


class Line(BaseModel):
    """One line of an order.

    Attributes:
        sku: What is ordered.
    """

    sku: str
    count: int = 1
    """How many."""
    note: Annotated[str, "For the packer"] = ""
    colour: Colour = Field(Colour.RED, description="Explicit")
    """Not this."""


@dataclasses.dataclass
class Data:
    sku: str
    """What is ordered."""
    count: Annotated[int, "How many"] = 1


class Typed(typing_extensions.TypedDict):
    sku: str
    """What is ordered."""
    count: typing_extensions.NotRequired[Annotated[int, "How many"]]


class Struct(msgspec.Struct, rename="camel"):
    """A struct."""

    sku: str
    """What is ordered."""
    item_count: Annotated[int, msgspec.Meta(ge=1, description="How many")] = 1


class Tree(BaseModel):
    kids: list[Tree] = []


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    age: int


def test_a_whole_schema() -> None:
    """Root object, closed, in the order of the parameters, with texts and real defaults and no titles."""

    @tool(effect="read", register=False)
    async def search(query: str, limit: Annotated[int, Field(ge=1)] = 10, exact: bool = False) -> list[str]:
        """Search the catalog.

        Words are matched whole.

        Args:
            query: Words to look for,
                in any order.
            limit: Most results to return.

        Returns:
            Names.
        """
        return []

    spec = compile_tool(search, {}).spec
    assert spec.description == "Search the catalog.\n\nWords are matched whole.\n\nReturns:\n    Names."
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to look for, in any order."},
            "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "Most results to return."},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert list(spec.input_schema["properties"]) == ["query", "limit", "exact"]
    assert spec.output_schema == {"type": "array", "items": {"type": "string"}}


def test_no_arguments() -> None:
    """A tool without arguments accepts exactly an empty object."""

    @tool(effect="none", register=False)
    def ping() -> None: ...

    spec = compile_tool(ping, {}).spec
    assert spec.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert spec.output_schema == {"type": "null"}


def test_explicit_text_wins() -> None:
    """``Field(description)`` and text in ``Annotated`` win over the docstring."""

    @tool(effect="none", register=False)
    def f(
        a: Annotated[int, Field(description="field")],
        b: Annotated[int, "text"],
        c: Annotated[int, typing_extensions.Doc("doc")],
        d: Annotated[Line, Arg(), "line"],
    ) -> None:
        """F.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
        """

    properties = compile_tool(f, {}).spec.input_schema["properties"]
    assert [properties[name]["description"] for name in "abcd"] == ["field", "text", "doc", "line"]


@pytest.mark.parametrize(
    ("cls", "texts"),
    [
        (
            Line,
            {"sku": "What is ordered.", "count": "How many.", "note": "For the packer", "colour": "Explicit"},
        ),
        (Data, {"sku": "What is ordered.", "count": "How many"}),
        (Typed, {"sku": "What is ordered.", "count": "How many"}),
        (Struct, {"sku": "What is ordered.", "itemCount": "How many"}),
    ],
)
def test_texts_of_fields(taking: Taking, cls: Any, texts: dict[str, str]) -> None:
    """Every kind of object has the texts of its fields: attribute docstrings, ``Attributes:``, ``Annotated``."""
    schema = taking(cls).spec.input_schema
    found = {name: schema["properties"][name].get("description") for name in schema["properties"]}
    assert found == texts
    assert schema["required"] == ["sku"]
    assert schema["additionalProperties"] is False


def test_a_class_that_was_typed_in(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a prompt or in ``python -c`` there is no source to read the texts in, and the tool is declared without them."""

    class Typed(BaseModel):
        """One line of an order.

        Attributes:
            sku: What is ordered.
        """

        sku: str
        count: int = 1
        """Lost."""

    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # a worker of the suite has none
    Typed.__module__ = "__main__"
    properties = taking(Typed).spec.input_schema["properties"]
    assert properties["sku"]["description"] == "What is ordered."
    assert "description" not in properties["count"]


def test_the_text_of_a_class_is_in_the_schema(taking: Taking) -> None:
    """The description of a class is there without its field list: at the root, of the input's class, and nested."""
    assert taking(Line).spec.input_schema["description"] == "One line of an order."
    nested = taking(list[Line]).spec.input_schema["$defs"]["Line"]
    assert nested["description"] == "One line of an order."


def walk(schema: Any) -> Any:
    """Every schema inside a schema."""
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from walk(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from walk(part)


EVERYTHING = [
    int, float, bool, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, UUID, Colour, Line, Data, Typed, Struct,
    Tree, Cat | Dog, Line | Data, list[Line], dict[str, Struct], tuple[int, str], set[int], int | None, Any,
    typing_extensions.Literal["a", 1], Annotated[Line | None, Field(description="x")],
]  # fmt: skip


@pytest.mark.parametrize("annotation", EVERYTHING)
def test_every_schema_is_valid_and_plain(taking: Taking, giving: Taking, annotation: Any) -> None:
    """Schemas are valid draft 2020-12, rooted in an object, without generated titles, and the same every time."""
    compiled = taking(annotation)
    schema = compiled.spec.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert not any(isinstance(part.get("title"), str) for part in walk(schema))
    assert json.dumps(schema) == json.dumps(taking(annotation).spec.input_schema)
    output = giving(annotation).spec.output_schema
    jsonschema.Draft202012Validator.check_schema(output)
    assert not any(isinstance(part.get("title"), str) for part in walk(output))


def accepts(compiled: CompiledTool, text: str) -> bool:
    return jsonschema.Draft202012Validator(compiled.spec.input_schema).is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("annotation", "taken", "refused"),
    [
        (int, ["1", "1.0"], ["1.5", '"1"', "true", "null"]),
        (Decimal, ['"1.50"', "12"], ["true", '"NaN"', '"x"']),
        (
            Cat | Dog,
            ['{"type":"Cat","name":"a"}'],
            ['{"name":"a"}', '{"type":"Cow"}', '{"type":"Cat","name":"a","x":1}'],
        ),
        (Tree, ['{"kids":[{"kids":[]}]}'], ['{"kids":[{"kid":[]}]}']),
        (tuple[int, str], ['[1,"a"]'], ["[1]", '[1,"a",2]']),
        (Colour, ['"red"'], ['"blue"', "1"]),
    ],
)
def test_schema_and_validator_agree(taking: Taking, annotation: Any, taken: list[str], refused: list[str]) -> None:
    """What the schema states is what the validator does."""
    compiled = taking(Annotated[annotation, Arg()])
    for text in taken:
        assert accepts(compiled, f'{{"x":{text}}}'), text
        compiled.parse(f'{{"x":{text}}}'.encode())
    for text in refused:
        whole = f'{{"x":{text}}}'
        if annotation is not Decimal or "x" not in text:
            assert not accepts(compiled, whole), text
        with pytest.raises(Exception, match="argument"):
            compiled.parse(whole.encode())


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (Decimal, Decimal("1.50"), "1.50"),
        (bytes, b"a", "YQ=="),
        (Colour, Colour.RED, "red"),
        (dt.timedelta, dt.timedelta(1), "P1D"),
        (int | None, None, None),
        (list[int], [1], [1]),
    ],
)
def test_defaults_are_shown_in_json(taking: Taking, annotation: Any, default: Any, shown: Any) -> None:
    """A default appears as what a caller would send for it."""
    schema = taking(annotation, default).spec.input_schema
    assert schema["properties"]["x"]["default"] == shown
    assert "required" not in schema


@pytest.mark.parametrize("default", [object(), float("nan"), float("inf")])
def test_defaults_without_a_json_form_are_left_out(taking: Taking, default: Any) -> None:
    """A default that JSON cannot show does not break the schema."""
    annotation = Any if type(default) is object else float
    assert "default" not in taking(annotation, default).spec.input_schema["properties"]["x"]


def test_an_optional_parameter_keeps_its_plain_type(taking: Taking) -> None:
    """A parameter with a default has its own type, not a union with null."""
    assert taking(int, 3).spec.input_schema["properties"]["x"] == {"type": "integer", "default": 3}


def test_a_recursive_input_has_an_object_at_its_root(taking: Taking) -> None:
    """An input that contains itself is written out at the root, and referred to below it."""
    schema = taking(Tree).spec.input_schema
    assert schema["type"] == "object"
    assert schema["properties"]["kids"]["items"] == {"$ref": "#/$defs/Tree"}
