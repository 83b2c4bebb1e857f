"""pydantic's core schemas as plain data: nodes, what they are made of, and what they refer to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic_core import CoreSchema

from .._model.type_guards import is_dict, is_list, is_tuple

Node = dict[str, Any]
"""One core schema. pydantic publishes them as TypedDicts, one per type; a walker over all of them needs none of that."""

# Where a node keeps its parts.
_ONE = (
    "schema", "items_schema", "keys_schema", "values_schema", "lax_schema", "strict_schema", "json_schema",
    "python_schema", "extras_schema", "extras_keys_schema", "return_schema", "serialization",
)  # fmt: skip
_LISTS = ("items_schema", "steps", "choices", "fields", "computed_fields")
_DICTS = ("fields", "choices")

CONSTRAINTS = frozenset(
    {
        "ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "max_digits", "decimal_places",
        "tz_constraint", "now_op", "now_utc_offset", "version", "ascii_only", "allowed_schemes", "host_required",
    }
)  # fmt: skip
"""Keys by which a node restricts the values of its type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Types:
    """The core schemas of some annotations.

    Attributes:
        fields: A typed-dict field for each annotation, by name.
        definitions: What ``definition-ref`` nodes refer to, by reference.
    """

    fields: Mapping[str, Node]
    definitions: Mapping[str, Node]

    def resolve(self, node: Node) -> Node:
        """The node itself, or the definition it refers to."""
        while node["type"] == "definition-ref":
            node = self.definitions[node["schema_ref"]]
        return node


def rebuilt(node: Node, rewrite: Any) -> Node:
    """A copy of a node with `rewrite` applied to each of its parts."""
    made = dict(node)
    for key in _ONE:
        part = node.get(key)
        if is_dict(part):
            made[key] = rebuilt(part, rewrite) if key == "serialization" else rewrite(part)
    for key in _LISTS:
        part = node.get(key)
        if is_list(part):
            made[key] = [_rewritten(item, rewrite) for item in part]
    for key in _DICTS:
        part = node.get(key)
        if is_dict(part):
            made[key] = {name: rewrite(item) for name, item in part.items()}
    return made


def _rewritten(item: Any, rewrite: Any) -> Any:
    if is_tuple(item):
        return (rewrite(item[0]), *item[1:])
    return rewrite(item) if is_dict(item) else item


def parts_of(node: Node) -> Iterator[Node]:
    """The nodes that this one is made of. Its serialiser is not among them."""
    for key in _ONE:
        part = node.get(key)
        if key != "serialization" and is_dict(part):
            yield part
    for key in _LISTS:
        part = node.get(key)
        if is_list(part):
            yield from filter(is_dict, map(arm, part))
    for key in _DICTS:
        part = node.get(key)
        if is_dict(part):
            yield from part.values()


def arm(choice: Any) -> Node:
    """A choice of a union without its label."""
    chosen: Node = choice[0] if is_tuple(choice) else choice
    return chosen


def arms_of(node: Node) -> list[Node]:
    """The choices of a union of either kind."""
    choices: Any = node["choices"]
    return [arm(choice) for choice in (choices.values() if is_dict(choices) else choices)]


def inner_of(node: Node) -> Node | None:
    """The node that decides what JSON a transparent node takes; None where there is none."""
    if node["type"] == "chain":
        return arm(node["steps"][0])
    found = node.get("json_schema") or node.get("strict_schema") or node.get("schema")
    return found if is_dict(found) and "type" in found else None


def whole(root: Node, definitions: Iterable[Node]) -> CoreSchema:
    """A root with what its references refer to."""
    # The one place where a node counts as one of pydantic's TypedDicts again.
    found = list(definitions)
    schema = {"type": "definitions", "schema": root, "definitions": found} if found else root
    return cast(CoreSchema, schema)


def object_of(fields: Mapping[str, Node]) -> Node:
    """A closed object with these fields."""
    return {"type": "typed-dict", "fields": dict(fields), "extra_behavior": "forbid"}


def extra_of(node: Node) -> str | None:
    """The rule for unknown fields that the author of an object type set: ``allow``, ``forbid``, ``ignore``, or nothing."""
    config: Mapping[str, Any] = node.get("config") or {}
    found = config.get("extra_fields_behavior")
    if found is None and node["type"] == "typed-dict":
        # pydantic writes its own default into every typed-dict, so only the class has the author's.
        behaviour = node.get("extra_behavior")
        own: Node = getattr(node.get("cls"), "__pydantic_config__", None) or {}
        found = behaviour if behaviour not in (None, "ignore") or "extra" in own else None
    if found is None and node.get("extras_schema") is not None:
        return "allow"
    return found


def function_of(node: Mapping[str, Any]) -> Any:
    """The function of a validator's or a serialiser's node."""
    function = node["function"]
    return function["function"] if is_dict(function) else function


def is_pydantics(node: Mapping[str, Any]) -> bool:
    """True if the function of a node is part of pydantic, and not of the type's author."""
    function = function_of(node)
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).startswith("pydantic")


def without(node: Node, *keys: str) -> Node:
    """The node without some of its keys."""
    return {key: value for key, value in node.items() if key not in keys}
