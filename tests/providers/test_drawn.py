"""Exports of drawn signatures and schemas: whatever a tool takes, each format keeps to its provider's rules."""

from __future__ import annotations

import json
from typing import Any, Literal, Union

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from carmy_engine import ToolSpec, tool
from carmy_engine._json_schema import SchemaFault, Validator, bundled
from carmy_engine.providers import FORMATS
from carmy_engine.testing import compile_tool
from tests.json_schema.drawn import SCHEMAS, VALUES
from tests.providers.rules import RULES, nodes
from tests.providers.signatures import Address, Cat, Colour, Dog, Left, Level, Line, Node

LEAVES: list[Any] = [
    str, int, float, bool, bytes, Any, Address, Node, Left, Line, Colour, Level, Literal["a", 1], Cat | Dog,
    None, list, dict, tuple,
]  # fmt: skip
ANNOTATIONS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda part: list[part]),  # type: ignore[valid-type]
        inner.map(lambda part: dict[str, part]),  # type: ignore[valid-type]
        inner.map(lambda part: Union[part, None]),  # noqa: UP007 - not all of them know the operator
        inner.map(lambda part: tuple[part, ...]),  # type: ignore[valid-type]
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: tuple[tuple(parts)]),  # type: ignore[misc]
        st.tuples(inner, inner).map(lambda parts: Union[parts]),  # noqa: UP007
    ),
    max_leaves=4,
)

every_format = pytest.mark.parametrize("form", FORMATS)
drawn = hypothesis.settings(
    deadline=None, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)


@every_format
@drawn
@hypothesis.given(required=ANNOTATIONS, optional=ANNOTATIONS)
def test_drawn_signatures_are_exported_within_the_rules(form: str, required: Any, optional: Any) -> None:
    """A strict schema has nothing but the keywords that strict mode supports, and every format keeps to its rules."""

    def drawn_tool(first, second=None):  # type: ignore[no-untyped-def]
        """Take anything."""

    drawn_tool.__annotations__ = {"first": required, "second": Union[optional, None], "return": None}  # noqa: UP007
    spec = compile_tool(tool(effect="none", register=False)(drawn_tool), {}).spec
    made = FORMATS[form]([spec])
    assert list(RULES[form](made.tools)) == []
    _check_strict_mode_is_told(made, spec)


def _check_strict_mode_is_told(made: Any, spec: ToolSpec) -> None:
    for exported in made.tools:
        function = exported.get("function", exported)
        if "strict" in function:
            assert function["strict"] is (spec.name not in made.not_strict)
            for place, node in nodes(function["parameters"]):
                if node.get("type") == "array":
                    assert isinstance(node.get("items"), dict), place
        else:
            assert made.not_strict == {}


@every_format
@drawn
@hypothesis.given(root=SCHEMAS, part=SCHEMAS)
def test_drawn_schemas_of_tools_made_by_hand_are_exported_within_the_rules(form: str, root: Any, part: Any) -> None:
    """Whatever keywords a schema has, in its root or in a property, the export keeps to the provider's rules."""
    inner = root if isinstance(root, dict) else {}
    schema = {**inner, "type": "object", "properties": {**inner.get("properties", {}), "p": part}}
    spec = ToolSpec(name="x", description="y", input_schema=schema, output_schema={}, effect="none")  # type: ignore[arg-type]
    made = FORMATS[form]([spec])
    assert list(RULES[form](made.tools)) == []
    assert json.loads(json.dumps(made.tools)) == made.tools
    _check_strict_mode_is_told(made, spec)


REFERRING: dict[str, dict[str, Any]] = {
    "the root": {"properties": {"next": {"$ref": "#"}}},
    "a place": {"properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
    "an anchor": {"properties": {"a": {"$ref": "#word"}}, "$defs": {"w": {"$anchor": "word", "type": "string"}}},
    "a resource": {"properties": {"a": {"$ref": "word"}}, "$defs": {"w": {"$id": "word", "type": "string"}}},
    "an encoded name": {"properties": {"a": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": {"type": "string"}}},
    "a dynamic anchor": {"$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}}},
    "something closed": {
        "properties": {"a": {"$ref": "#/$defs/o", "properties": {"y": {}}}},
        "$defs": {"o": {"type": "object", "properties": {"x": {}}}},
    },
    "a boolean": {
        "properties": {"a": {"$ref": "#/$defs/yes"}, "b": {"$ref": "#/$defs/no"}},
        "$defs": {"yes": True, "no": False},
    },
    "the root from the root": {"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": {"$ref": "#/$defs/o"}}}}},
}


@every_format
@pytest.mark.parametrize("case", REFERRING)
def test_every_kind_of_reference_is_exported(form: str, case: str) -> None:
    """References to the root, to places, anchors and resources lead somewhere in the export as well."""
    schema = {"type": "object", **REFERRING[case]}
    spec = ToolSpec(name="x", description="y", input_schema=schema, output_schema={}, effect="none")  # type: ignore[arg-type]
    made = FORMATS[form]([spec]).tools
    assert list(RULES[form](made)) == []
    text = json.dumps(made)
    assert "$anchor" not in text
    assert "$dynamicRef" not in text
    assert not [name for name in REFERRING[case].get("properties", {}) if f'"{name}"' not in text]


@drawn
@hypothesis.given(part=SCHEMAS, value=VALUES, reference=st.sampled_from(["#/$defs/part", "#part", "#", "part#"]))
def test_a_bundled_schema_means_the_same(part: Any, value: Any, reference: str) -> None:
    """After references have one form, the same values fit."""
    named = {"$id": "part", **part} if isinstance(part, dict) and reference == "part#" else part
    named = {"$anchor": "part", **part} if isinstance(part, dict) and reference == "#part" else named
    schema = {"properties": {"a": {"$ref": reference, "type": ["object", "string"]}}, "$defs": {"part": named}}
    try:
        validator = Validator(schema)
    except SchemaFault:
        return
    made = bundled(schema)
    assert all(node["$ref"].startswith("#/$defs/") for _, node in nodes(made) if "$ref" in node)
    for tried in (value, {"a": value}, {"a": {"a": value}}):
        assert Validator(made).is_valid(tried) is validator.is_valid(tried)
    Draft202012Validator.check_schema(made)


def test_what_strict_mode_cannot_say_is_told_with_the_reason() -> None:
    """A tool with free names of fields is exported without strict mode, and its arrays say what their items are."""

    @tool(effect="none", register=False)
    def box(corner: tuple[float, str], options: dict[str, int] = {}) -> None:  # noqa: B006 - as users write it
        """Draw a box."""

    made = FORMATS["openai"]([compile_tool(box, {}).spec])
    assert made.not_strict == {"box": "it has an object with free names of fields"}
    function = made.tools[0]["function"]
    assert function["strict"] is False
    assert function["parameters"]["properties"]["corner"] == {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        "description": 'items in order: ["number", "string"]',
    }


def test_nulls_for_fields_left_out_are_dropped_behind_every_kind_of_reference() -> None:
    """A null that strict mode asks for stands for a field left out, also in what a reference to a place leads to."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False},
            "b": {"$ref": "#/properties/a"},
        },
        "required": ["a", "b"],
    }
    spec = ToolSpec(name="x", description="y", input_schema=schema, output_schema={}, effect="none")  # type: ignore[arg-type]
    made = FORMATS["openai"]([spec])
    assert made.not_strict == {}
    function = {"name": "x", "arguments": '{"a":{"x":null},"b":{"x":null}}'}
    (call,) = made.parse({"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]})
    assert isinstance(call.arguments, msgspec.Raw)
    assert json.loads(bytes(call.arguments)) == {"a": {}, "b": {}}
