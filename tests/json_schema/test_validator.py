"""The validator of JSON Schema: the form of schemas, references, laziness, and what the nesting of a value can cost."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import hypothesis
import jsonschema
import msgspec
import pytest
from hypothesis import strategies as st

from carmy_engine._json_schema import SchemaFault, Validator
from carmy_engine._json_schema.equality import are_unique
from tests.json_schema.drawn import SCHEMAS, VALUES


@hypothesis.settings(deadline=None, max_examples=300, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(schema=SCHEMAS, value=VALUES)
def test_verdicts_are_those_of_the_reference_library(schema: Any, value: Any) -> None:
    """Drawn schemas and values get the verdict that the library `jsonschema` gives."""
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert Validator(schema).is_valid(value) is expected


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, "a", "[", [], [1], ["a", "a"], {}, {"a": 1}, [{}], [3]]
)
KEYWORDS = [
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$schema", "additionalProperties", "allOf", "anyOf", "const",
    "contains", "contentEncoding", "contentSchema", "default", "dependentRequired", "dependentSchemas", "deprecated",
    "description", "else", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items",
    "maxContains", "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "not", "oneOf", "patternProperties", "prefixItems", "properties",
    "propertyNames", "readOnly", "required", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems", "writeOnly",
]  # fmt: skip


@hypothesis.settings(deadline=None, max_examples=300)
@hypothesis.given(keyword=st.sampled_from(KEYWORDS), value=JUNK, nested=st.booleans())
def test_the_form_of_keywords_is_that_of_the_meta_schema(keyword: str, value: Any, nested: bool) -> None:
    """A keyword with a value of the wrong form is refused exactly if the meta-schema refuses it, with its place."""
    schema = {"properties": {"x": {keyword: value}}} if nested else {keyword: value}
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        is_right = True
    except jsonschema.SchemaError:
        is_right = False
    place: tuple[str | int, ...] | None = None
    try:
        Validator(schema)
    except SchemaFault as fault:
        place = fault.place
    assert (place is None) is is_right
    assert place is None or place[: 3 if nested else 1] == (("properties", "x", keyword) if nested else (keyword,))


UNUSABLE: list[tuple[Any, tuple[str, ...], str]] = [
    ({"$ref": "#"}, (), "refers to itself without end"),
    ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, (), "without end"),
    ({"pattern": "("}, ("pattern",), "not a regular expression"),
    ({"patternProperties": {"[": {}}}, ("patternProperties", "["), "not a regular expression"),
    ({"$ref": "#/$defs/a"}, ("$ref",), "does not point into the schema itself"),
    ({"items": {"$ref": "https://example.com/x"}}, ("items", "$ref"), "does not point into the schema itself"),
    ({"$ref": "file:///etc/passwd"}, ("$ref",), "does not point into the schema itself"),
    ({"$dynamicRef": "#node"}, ("$dynamicRef",), "does not point into the schema itself"),
    ({"$ref": "#/default", "default": 3}, (), "no schema"),
    ({"$ref": "#/x", "x": {"type": "objekt"}}, ("x", "type"), "must be one of array"),
]


@pytest.mark.parametrize(("schema", "place", "reason"), UNUSABLE)
def test_schemas_that_cannot_be_used(schema: Any, place: tuple[str, ...], reason: str) -> None:
    """A schema that cannot be used is refused when it is compiled, with the place and the reason."""
    with pytest.raises(SchemaFault, match=reason) as caught:
        Validator(schema)
    assert caught.value.place[: len(place)] == place


MEANINGS: list[tuple[Any, Any, Any]] = [
    ({"properties": {"$id": {"type": "string"}}}, {"$id": "#not/a uri"}, {"$id": 1}),
    ({"properties": {"$anchor": {"type": "integer"}, "$ref": {"type": "integer"}}}, {"$ref": 1}, {"$anchor": "a"}),
    ({"properties": {"default": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "null"}}}, {"default": None}, {"default": 1}),
    ({"properties": {"enum": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "null"}}}, {"enum": None}, {"enum": 1}),
    ({"$ref": "#/$defs/a%20b%25", "$defs": {"a b%": {"type": "null"}}}, None, 1),
    ({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": {"type": "null"}}}, None, 1),
    ({"enum": [{"$id": "x", "$ref": "nowhere"}]}, {"$id": "x", "$ref": "nowhere"}, {}),
    ({"multipleOf": 0.5}, 10**400, 0.25),
    ({"multipleOf": 0.0001}, 0.0075, 0.00751),
    ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1}, {"y": 1}),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    ({"patternProperties": {"^x": {}}, "unevaluatedProperties": False}, {"x1": 1}, {"y": 1}),
    ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}}, None, 1),
    ({"type": "integer"}, 1.0, 1.5),
    ({"enum": [1]}, 1.0, True),
    ({"pattern": "^a$"}, "a", "a\n"),
    ({"pattern": r"^\p{Letter}+$"}, "é", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "right", "wrong"), MEANINGS)
def test_what_schemas_mean(schema: Any, right: Any, wrong: Any) -> None:
    """Names of properties are not keywords, references are URIs, and numbers are the decimal numbers that were sent."""
    validator = Validator(schema)
    assert validator.is_valid(right)
    assert not validator.is_valid(wrong)


def test_a_schema_that_decides_nothing_accepts_all() -> None:
    """A schema of annotations alone needs no evaluation."""
    passive = {"description": "x", "format": "date", "$ref": "#/$defs/a", "$defs": {"a": {"title": "y"}}}
    deciding: list[Any] = [False, {"type": "string"}, {"properties": {"a": False}}]
    assert [Validator(schema).accepts_all for schema in (True, {}, passive)] == [True] * 3
    assert [Validator(schema).accepts_all for schema in deciding] == [False] * 3


@pytest.mark.parametrize("pattern", ["^(?=(a+)+$)b", "^(?!b)a*$", r"(a)\1", "(?<=x)y"])
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_a_pattern_that_needs_backtracking_is_refused(place: str, pattern: str) -> None:
    """Lookaround and back-references are a fault of the schema: a text of 40 characters could hold the process for hours."""
    with pytest.raises(SchemaFault, match="needs lookaround or back-references"):
        Validator({place: pattern if place == "pattern" else {pattern: {}}})


LISTS: list[tuple[list[Any], bool]] = [
    ([1, True], True),
    ([1, 1.0], False),
    ([0, False, None, "", [], {}], True),
    ([[1], [True]], True),
    ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
    ([10**400, 10**400 + 1], True),
    ([2**53, float(2**53)], False),
    ([1e300, 10**300], True),
    (["1", 1, "[1]", [1]], True),
    ([0.0, -0.0], False),
]


@pytest.mark.parametrize(("values", "unique"), LISTS)
def test_items_are_unique_as_json_values(values: list[Any], unique: bool) -> None:
    """1 equals 1.0 but not true, and the order of names does not count."""
    assert are_unique(values) is unique


def test_failures_are_found_one_by_one() -> None:
    """A caller that takes one failure does not pay for the others."""
    validator = Validator({"items": {"anyOf": [{"type": "integer"}, {"items": {"type": "integer"}, "type": "array"}]}})
    one = _steps(lambda: next(validator.failures([""] * 10_000)))
    assert one < 100


NODE = {"$ref": "#/$defs/node"}
BINARY: dict[str, Any] = {
    "anyOf": [
        {"properties": {"c": NODE}, "required": ["a"]},
        {"properties": {"c": NODE}, "required": ["b"]},
    ]
}
EXPLODING: dict[str, dict[str, Any]] = {
    "anyOf of itself": BINARY,
    "allOf of itself": {"allOf": [{"properties": {"c": NODE}}, {"properties": {"c": NODE}}]},
    "oneOf of itself": {"oneOf": [{"properties": {"c": NODE}}, {"properties": {"c": NODE}}, {"required": ["z"]}]},
    "unevaluated": {
        "allOf": [{"properties": {"c": NODE}}, {"properties": {"c": NODE}}],
        "unevaluatedProperties": False,
    },
    "if and then": {"if": {"properties": {"c": NODE}}, "then": {"properties": {"c": NODE}}},
}


@pytest.mark.parametrize("case", EXPLODING)
def test_the_work_grows_with_the_nesting_and_does_not_double(case: str) -> None:
    """A schema that leads back to itself in two ways is evaluated once for each level of a value."""
    validator = Validator({"$defs": {"node": EXPLODING[case]}, **NODE})

    def nested(levels: int) -> Any:
        value: Any = {}
        for _ in range(levels):
            value = {"c": value}
        return value

    few, many = (_steps(lambda levels=levels: validator.is_valid(nested(levels))) for levels in (60, 120))
    assert many < few * 2.5


FLAT: dict[str, tuple[Any, Any]] = {
    "items of a type": ({"items": {"type": "integer"}}, [1]),
    "wrong items of three types": (
        {"items": {"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "boolean"}]}},
        [""],
    ),
    "right items of three types": (
        {"items": {"oneOf": [{"type": "integer"}, {"type": "null"}, {"minLength": 1}]}},
        [1],
    ),
    "unique objects": ({"uniqueItems": True}, [{"a": 1}]),
    "a recursive list": ({"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "integer"}]}, [[1]]),
    "contained items": ({"contains": {"type": "string"}, "unevaluatedItems": {"type": "integer"}}, [1]),
    "nested choices": ({"anyOf": [{"items": {"anyOf": [{"type": "null"}, {"const": 3}]}}, {"type": "string"}]}, [1]),
    "exact multiples": ({"items": {"multipleOf": 0.1}}, [0.3]),
}


@pytest.mark.parametrize("case", FLAT)
def test_the_work_at_most_doubles_with_the_size_of_a_list(case: str) -> None:
    """Validation of twice as many items takes twice as many steps, whether they fit or not."""
    schema, items = FLAT[case]
    validator = Validator(schema)

    def values(count: int) -> list[Any]:
        return [{"a": number} for number in range(count)] if case == "unique objects" else items * count

    few, many = (
        _steps(lambda count=count: list(itertools.islice(validator.failures(values(count)), 100)))
        for count in (500, 1000)
    )
    assert many < few * 2.2


def test_deep_values_and_deep_schemas_need_no_recursion() -> None:
    """The nesting of a value is no recursion of Python, so arguments at the engine's limit of levels always pass."""
    validator = Validator({"$defs": {"list": {"allOf": [{"items": {"$ref": "#/$defs/list"}}]}}, "$ref": "#/$defs/list"})
    value: Any = msgspec.json.decode(b"[" * 128 + b"]" * 128)
    depths: list[int] = []

    def profile(frame: Any, _event: str, _argument: Any) -> None:
        depth = 0
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        depths.append(depth)

    sys.setprofile(profile)
    try:
        assert validator.is_valid(value)
    finally:
        sys.setprofile(None)
    assert max(depths) - min(depths) < 20


def _steps(action: Any) -> int:
    """The calls of functions and generators that an action makes."""
    count = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
