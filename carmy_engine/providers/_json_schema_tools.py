"""Ways through a JSON Schema: into its parts, past its references, down to what every provider understands."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .._json_schema import SchemaFault, bundled
from .._json_schema.keywords import LISTS, SINGLE, TABLES, subschemas
from .._model.type_guards import is_dict, is_list, is_mapping

Schema = dict[str, Any]

MAX_PARTS = 10_000
"""Parts of a schema without references. Definitions that use each other twice grow like powers of two."""


class _TooLargeError(Exception):
    """There are more than `MAX_PARTS`."""


def parts_of(node: Mapping[str, Any]) -> Iterator[Schema]:
    """The schemas right inside a schema that are objects, those of definitions included."""
    return (part for _, part in subschemas(node) if is_dict(part))


def mapped(node: Mapping[str, Any], change: Callable[[Schema], Schema]) -> Schema:
    """A copy with the schemas right inside it changed."""
    made = dict(node)
    for key in SINGLE:
        if is_dict(part := node.get(key)):
            made[key] = change(part)
    for key in LISTS:
        if is_list(parts := node.get(key)):
            made[key] = [change(_as_table(part)) for part in parts]
    for key in TABLES:
        if is_dict(table := node.get(key)):
            made[key] = {name: change(_as_table(part)) for name, part in table.items()}
    return made


def _as_table(part: Any) -> Schema:
    """A schema that is true or false, in the words of all others."""
    if is_dict(part):
        return part
    return {} if part is True else {"not": {}}


def referred(node: Mapping[str, Any]) -> str | None:
    """The name of the definition that a schema refers to."""
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/")):
        return reference.split("/", 2)[2].replace("~1", "/").replace("~0", "~")
    return None


def definitions_of(schema: Mapping[str, Any]) -> Schema:
    """The definitions of a schema by name, whichever word they stand under."""
    found = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    return {name: _as_table(part) for name, part in found.items()}


def resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or the definition that it refers to."""
    seen: set[str] = set()
    while (name := referred(node)) is not None and name in definitions and name not in seen:
        seen.add(name)
        node = definitions[name]
    return node


def inlined(schema: Mapping[str, Any]) -> Schema:
    """A schema with each reference replaced by what it refers to, but for those that go round in circles.

    What stands beside a reference, such as a description, wins over the definition's own.
    """
    with contextlib.suppress(SchemaFault):  # from elsewhere, of another dialect
        schema = bundled(dict(schema))
    definitions = definitions_of(schema)
    root = {key: value for key, value in schema.items() if key not in ("$defs", "definitions", "$schema")}
    # A root is an object with properties, not a reference to one, even where it goes round in circles.
    seen: set[str] = set()
    while (name := referred(root)) is not None and name in definitions and name not in seen:
        seen.add(name)
        root = {**definitions[name], **{key: value for key, value in root.items() if key != "$ref"}}
    try:
        return _inlined(root, definitions, frozenset(_circular(definitions)))
    except _TooLargeError:
        return _inlined(root, definitions, frozenset(definitions))


def _inlined(root: Schema, definitions: Schema, kept: frozenset[str]) -> Schema:
    used: dict[str, None] = {}
    count = 0

    def change(node: Schema) -> Schema:
        nonlocal count
        count += 1
        if count > MAX_PARTS and len(kept) < len(definitions):
            raise _TooLargeError
        name = referred(node)
        if name is None or name not in definitions:
            return mapped(node, change)
        beside = mapped({key: value for key, value in node.items() if key != "$ref"}, change)
        if name in kept:
            used[name] = None
            return {"$ref": f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}", **beside}
        return {**change(definitions[name]), **beside}

    made = change(root)
    done: Schema = {}
    while pending := [name for name in used if name not in done]:
        for name in pending:
            definition = definitions[name]
            done[name] = mapped(definition, change) if referred(definition) in (None, name) else change(definition)
    return {**made, "$defs": done} if done else made


def _circular(definitions: Mapping[str, Schema]) -> set[str]:
    """The definitions that lead back to themselves."""
    to = {name: set(_names_in(definition)) & definitions.keys() for name, definition in definitions.items()}
    found: set[str] = set()
    for start, first in to.items():
        reached, pending = set[str](), list(first)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += to[name]
        if start in reached:
            found.add(start)
    return found


def _names_in(node: Mapping[str, Any]) -> Iterator[str]:
    name = referred(node)
    if name is not None:
        yield name
    for part in parts_of(node):
        yield from _names_in(part)


AT_ROOT = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else")
"""Keywords that providers refuse in the root of a schema of arguments."""


def portable(schema: Mapping[str, Any]) -> Schema:
    """A schema of arguments in the words that providers share: without references where it can be, one word for unions."""

    def change(node: Schema) -> Schema:
        made = mapped(node, change)
        if "oneOf" in made:
            arms = made.pop("oneOf")
            made["anyOf"] = arms if "anyOf" not in made else [{"allOf": [{"anyOf": arms}, {"anyOf": made["anyOf"]}]}]
        if "anyOf" in made and "required" in made and "properties" not in made:
            # Move the required names of a union into each of its arms.
            needed = made.pop("required")
            made.pop("type", None)
            made["anyOf"] = [
                {**arm, "required": list(dict.fromkeys([*arm.get("required", ()), *needed]))}
                if "properties" in arm
                else arm
                for arm in made["anyOf"]
            ]
        return made

    return change(inlined(schema))


def with_plain_root(schema: Mapping[str, Any]) -> Schema:
    """A schema from `portable` whose root is an object with properties.

    The root's other keywords are left to the engine, which checks them anyway. Fields with two names, one of which is required,
    are described.
    """
    root = {key: value for key, value in schema.items() if key not in AT_ROOT}
    root = {**root, "type": "object", "properties": root.get("properties", {})}
    return described(root, [("one is required", " or ".join(names)) for names in _names_of_one_field(schema)])


def _names_of_one_field(schema: Mapping[str, Any]) -> Iterator[list[str]]:
    """The names of each required field that has several: ``allOf`` of ``anyOf`` of ``required``, as the engine writes it."""
    for part in schema.get("allOf", ()):
        arms: list[Any] = part.get("anyOf", []) if part.keys() == {"anyOf"} else []
        required = [arm["required"] for arm in arms if arm.keys() == {"required"} and len(arm["required"]) == 1]
        if arms and len(required) == len(arms):
            yield [names[0] for names in required]


def item_schemas(node: Mapping[str, Any]) -> list[Schema]:
    """The different schemas that the items of an array may have; an empty one among them if they may be anything."""
    prefix = node.get("prefixItems", [])
    rest = node.get("items", {})
    is_closed = rest is False or node.get("maxItems", math.inf) <= len(prefix)
    found: list[Schema] = []
    for part in [*prefix, *([] if is_closed else [rest])]:
        if (made := _as_table(part)) not in found:
            found.append(made)
    return found


def order_of_items(node: Mapping[str, Any]) -> list[tuple[str, object]]:
    """The note on the order of items of different types, where `item_schemas` takes its place."""
    if len(item_schemas(node)) < 2:
        return []
    kinds = [_as_table(part).get("type", "any") for part in node.get("prefixItems", ())]
    return [("items in order", kinds)] if kinds else []


def accepts_null(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """True when null is a value that the schema takes."""
    node = resolved(node, definitions)
    if "const" in node:
        return node["const"] is None
    if is_list(node.get("enum")):
        return None in node["enum"]
    for union in ("anyOf", "oneOf"):
        if union in node:
            return any(accepts_null(arm, definitions) for arm in node[union])
    kind = node.get("type")
    return kind is None or kind == "null" or (is_list(kind) and "null" in kind)


def described(node: Schema, notes: Iterable[tuple[str, object]]) -> Schema:
    """The schema, with notes added to its description."""
    told = "; ".join(f"{word}: {_shown(value)}" for word, value in notes)
    if not told:
        return node
    text = node.get("description")
    return {**node, "description": f"{text} ({told})" if text else told}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def without_nulls(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value without the nulls that stand for fields left out: in strict mode a model has to send them all.

    Args:
        value: What the model sent.
        schema: The tool's, from `portable`.
    """
    return _without_nulls(value, schema, definitions_of(schema))


def _without_nulls(value: Any, node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    node = resolved(node, definitions)
    arms = [arm for union in ("anyOf", "oneOf") for arm in node.get(union, ())]
    if arms:
        node = _arm_for(value, [resolved(arm, definitions) for arm in arms]) or node
    if is_dict(value):
        properties = node.get("properties", {})
        required = node.get("required", ())
        return {
            name: _without_nulls(part, properties.get(name, {}), definitions)
            for name, part in value.items()
            if part is not None
            or name not in properties
            or name in required
            or accepts_null(properties[name], definitions)
        }
    if is_list(value):
        tuples = node.get("prefixItems", [])
        items = node.get("items", {})
        return [
            _without_nulls(
                part, tuples[place] if place < len(tuples) else items if is_mapping(items) else {}, definitions
            )
            for place, part in enumerate(value)
        ]
    return value


def _arm_for(value: Any, arms: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The arm of a union that a value was written for, judged by names and fixed values."""
    if is_dict(value):
        fitting = [arm for arm in arms if "properties" in arm and value.keys() <= arm["properties"].keys()]
        return next((arm for arm in fitting if _agrees(value, arm)), None)
    if is_list(value):
        return next((arm for arm in arms if arm.get("type") == "array"), None)
    return None


def _agrees(value: Mapping[str, Any], arm: Mapping[str, Any]) -> bool:
    """Fields with one possible value have it."""
    for name, part in arm["properties"].items():
        if name in value and is_mapping(part) and "const" in part and value[name] != part["const"]:
            return False
    return set(arm.get("required", ())) <= value.keys()
