"""Schemas and values that hypothesis draws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# Values that are often equal, or look as if they were.
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -1, 2, 0.0, 1.0, 0.5, 2**53, 2**53 + 1, 10**400, 1e300, "", "a", "1", "ab"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ab", "$id"]), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "b", "ab", "$id", "$anchor", "default", "enum"])
COUNTS = st.integers(0, 3)


def _schemas_with(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
            | st.lists(st.sampled_from(["object", "array", "string"]), min_size=1, unique=True),
            "enum": st.lists(VALUES, max_size=3),
            "const": VALUES,
            "minimum": st.sampled_from([0, 0.5, -1]),
            "exclusiveMaximum": st.sampled_from([1, 2, 2**53]),
            "minLength": COUNTS,
            "maxItems": COUNTS,
            "minProperties": COUNTS,
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^a", "b$", "."]),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
            "prefixItems": lists,
            "items": inner,
            "contains": inner,
            "minContains": COUNTS,
            "maxContains": COUNTS,
            "allOf": lists,
            "anyOf": lists,
            "oneOf": lists,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "unevaluatedItems": inner,
            "unevaluatedProperties": inner,
            "$defs": st.dictionaries(NAMES, inner, max_size=2),
        },
    )


SCHEMAS = st.recursive(
    st.booleans() | _schemas_with(st.booleans()), lambda inner: st.booleans() | _schemas_with(inner), max_leaves=6
)
