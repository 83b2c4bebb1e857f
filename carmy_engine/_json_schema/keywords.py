"""The keywords of JSON Schema 2020-12 that hold schemas, and the form that each keyword's value has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._model.type_guards import is_dict, is_list

SINGLE = (
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
"""Keywords whose value is a schema."""
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
"""Keywords whose value is a list of schemas."""
TABLES = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
"""Keywords whose value is an object of schemas."""

ANNOTATIONS = {
    "$comment", "contentEncoding", "contentMediaType", "default", "deprecated", "description", "examples", "format",
    "readOnly", "title", "writeOnly",
}  # fmt: skip
"""Keywords that decide nothing and hold no schema."""
NAMING = {"$anchor", "$dynamicAnchor", "$id", "$schema", "$vocabulary"}
"""Keywords that say what a schema is called, or in which words it is written."""

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The schemas right inside a schema of a checked form, each with its place."""
    for keyword in SINGLE:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in LISTS:
        for place, part in enumerate(schema.get(keyword, ())):
            yield (keyword, place), part
    for keyword in TABLES:
        for name, part in schema.get(keyword, {}).items():
            yield (keyword, name), part


def misformed(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first keyword whose value has the wrong form, with what it must be; None if all are right.

    The rules are those of the meta-schema, https://json-schema.org/draft/2020-12/schema.
    """
    for keyword, value in schema.items():
        rule = _FORMS.get(keyword)
        if rule is not None and not rule[0](value):
            return keyword, rule[1]
    return None


def _is_schema(value: Any) -> bool:
    return isinstance(value, bool) or is_dict(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list_of_names(value: Any) -> bool:
    return is_list(value) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    return (
        value in TYPES if isinstance(value, str) else bool(value) and _is_list_of_names(value) and {*value} <= {*TYPES}
    )


def _is_table_of_schemas(value: Any) -> bool:
    return is_dict(value) and all(map(_is_schema, value.values()))


def _is_list_of_schemas(value: Any) -> bool:
    return is_list(value) and bool(value) and all(map(_is_schema, value))


def _is_table_of_names(value: Any) -> bool:
    return is_dict(value) and all(map(_is_list_of_names, value.values()))


def _matches(pattern: str) -> Callable[[Any], bool]:
    matcher = re.compile(pattern)
    return lambda value: isinstance(value, str) and matcher.fullmatch(value) is not None


_NAME = (_matches("[A-Za-z_][-A-Za-z0-9._]*"), "must be a letter or '_', then letters, digits, '-', '.' and '_'")
_COUNT = (_is_count, "must be a whole number from 0")
_NUMBER = (_is_number, "must be a number")
_TEXT = (_is_text, "must be a string")
_FLAG = (_is_flag, "must be true or false")
_NAMES = (_is_list_of_names, "must be a list of different strings")
_SCHEMA = (_is_schema, "must be a schema: an object, true or false")
_SCHEMAS = (_is_list_of_schemas, "must be a list of schemas")
_TABLE = (_is_table_of_schemas, "must be an object of schemas")

_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(SINGLE, _SCHEMA),
    **dict.fromkeys(LISTS, _SCHEMAS),
    **dict.fromkeys(TABLES, _TABLE),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _NAME),
    **dict.fromkeys(
        ("$comment", "$dynamicRef", "$ref", "$schema", "contentEncoding", "contentMediaType", "description", "format",
         "pattern", "title"),
        _TEXT,
    ),
    **dict.fromkeys(
        ("maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength",
         "minProperties"),
        _COUNT,
    ),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _NUMBER),
    **dict.fromkeys(("deprecated", "readOnly", "uniqueItems", "writeOnly"), _FLAG),
    "$id": (_matches("[^#]*#?"), "must be a URI without a fragment"),
    "$vocabulary": (is_dict, "must be an object"),
    "dependentRequired": (_is_table_of_names, "must be an object of lists of different strings"),
    "enum": (is_list, "must be a list"),
    "examples": (is_list, "must be a list"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "must be a number above 0"),
    "required": _NAMES,
    "type": (_is_type, f"must be one of {', '.join(TYPES)}, or a list of some of them"),
}  # fmt: skip
