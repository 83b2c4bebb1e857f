"""JSON Schema for OpenAI: in its strict mode, as its guide "Structured model outputs" describes under "Supported schemas", and without.

In strict mode all fields are required, optional ones may be null; objects are closed; a few keywords and formats are known,
and unions are ``anyOf``. All other keywords go into descriptions; the engine checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._model.type_guards import is_dict, is_list
from ._json_schema_tools import (
    AT_ROOT,
    Schema,
    accepts_null,
    definitions_of,
    described,
    item_schemas,
    mapped,
    order_of_items,
    parts_of,
    referred,
)

MAX_LEVELS = 10
MAX_PROPERTIES = 5_000
MAX_ENUM_VALUES = 1_000
MAX_LARGE_ENUM_CHARACTERS = 15_000
"""Of all values of an enum of texts that has more than 250."""
MAX_CHARACTERS = 120_000
"""Of all names of properties and definitions, and all values of enums."""
_LARGE_ENUM = 250

_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_KEPT = {
    "title", "description", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "minItems", "maxItems",
}  # fmt: skip
_READ = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf"}
_IMPOSSIBLE = (
    "allOf", "not", "if", "then", "else", "patternProperties", "dependentRequired", "dependentSchemas", "contains",
    "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip
_SILENT = {"$defs", "$schema", "$id", "$comment", "default", "unevaluatedItems"}
_SCALARS = {"string", "number", "integer", "boolean"}


class NotStrictError(Exception):
    """Strict mode cannot express the schema; the text names the reason."""


def strict_schema(schema: Mapping[str, Any]) -> Schema:
    """The same arguments in strict mode.

    Args:
        schema: From `_json_schema_tools.portable`.

    Raises:
        NotStrictError: Strict mode cannot express them.
    """
    definitions = definitions_of(schema)
    at_root = next((key for key in AT_ROOT if key in schema), None)
    if at_root is not None:
        raise NotStrictError(f"its root has '{at_root}'")
    made = _strict({**schema, "type": "object", "properties": schema.get("properties", {})}, definitions)
    if definitions:
        made["$defs"] = {name: _strict(node, definitions) for name, node in definitions.items()}
    _check_limits(made)
    return made


def loose_schema(schema: Mapping[str, Any]) -> Schema:
    """A schema for a function without strict mode: the interface refuses arrays that do not say what their items are.

    Args:
        schema: From `_json_schema_tools.portable`.
    """
    made = mapped(schema, loose_schema)
    kind = made.get("type")
    if "prefixItems" in made or "array" in (kind if is_list(kind) else [kind]):
        parts = item_schemas(made)
        notes = order_of_items(made)
        made.pop("prefixItems", None)
        made["items"] = _one_of(parts)
        return described(made, notes)
    return made


def _one_of(schemas: list[Schema]) -> Schema:
    """What fits any of some schemas; anything, if one of them does."""
    if not schemas or {} in schemas:
        return {}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _strict(node: Mapping[str, Any], definitions: Schema) -> Schema:
    if "$ref" in node:
        if referred(node) not in definitions:
            raise NotStrictError(f"it refers to {node['$ref']!r}")
        reference: Schema = {"$ref": node["$ref"]}
        text = node.get("description")
        return reference if text is None else {"anyOf": [reference], "description": text}
    impossible = next((word for word in _IMPOSSIBLE if word in node), None)
    if impossible is not None:
        raise NotStrictError(f"it has '{impossible}'")
    if "anyOf" in node:
        return _union(node, definitions)
    kept = {key: node[key] for key in ("title", "description") if key in node}
    if "enum" in node or "const" in node:
        return {**_choice(node), **kept}
    kind = node.get("type")
    if kind == "object":
        return _object(node, definitions)
    if kind == "array":
        return _array(node, definitions)
    kinds = kind if is_list(kind) else [kind]
    if not kinds or any(one not in _SCALARS and one != "null" for one in kinds):
        raise NotStrictError("it has values of any type" if kind is None else f"it has a choice of types: {kinds}")
    return _said({"type": kind, **_keywords(node)}, node)


def _keywords(node: Mapping[str, Any]) -> Schema:
    """What can be kept as it is."""
    kept = {key: value for key, value in node.items() if key in _KEPT}
    if kept.get("format", "date") not in _FORMATS:
        del kept["format"]
    if "(?" in kept.get("pattern", ""):  # looking ahead and behind is unknown there
        del kept["pattern"]
    return kept


def _said(made: Schema, node: Mapping[str, Any]) -> Schema:
    """Add the keywords that were not kept to the description."""
    notes = [(key, value) for key, value in node.items() if key not in made and key not in _READ | _SILENT]
    return described(made, notes)


def _choice(node: Mapping[str, Any]) -> Schema:
    values = node["enum"] if "enum" in node else [node["const"]]
    if not values or any(is_dict(value) or is_list(value) for value in values):
        raise NotStrictError("it has fixed values that are objects or lists, or none")
    kinds = list(dict.fromkeys(_kind_of(value) for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(values)}


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "integer" if isinstance(value, int) else "number"


def _union(node: Mapping[str, Any], definitions: Schema) -> Schema:
    arms: list[Schema] = []
    for arm in node["anyOf"]:
        made = _strict(arm, definitions)
        if made not in arms:
            arms.append(made)
    kept = {key: node[key] for key in ("title", "description") if key in node}
    return _said({"anyOf": arms, **kept}, node)


def _object(node: Mapping[str, Any], definitions: Schema) -> Schema:
    if node.get("additionalProperties", False) is not False or "properties" not in node:
        raise NotStrictError("it has an object with free names of fields")
    required = node.get("required", ())
    if not set(required) <= node["properties"].keys():
        raise NotStrictError("it requires fields that it does not describe")
    properties: Schema = {}
    for name, part in node["properties"].items():
        made = _strict(part, definitions)
        if name not in required:
            if not accepts_null(part, definitions):
                made = _nullable(made)
            if part.get("default") is not None:
                made = described(made, [("default", part["default"])])
        properties[name] = made
    made = {
        "type": "object",
        **{key: node[key] for key in ("title", "description") if key in node},
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return _said(made, node)


def _array(node: Mapping[str, Any], definitions: Schema) -> Schema:
    arms: list[Schema] = []
    for part in item_schemas(node):
        if (arm := _strict(part, definitions)) not in arms:
            arms.append(arm)
    if not arms:
        raise NotStrictError("it has a list of nothing")
    made = {"type": "array", **_keywords(node), "items": _one_of(arms)}
    return described(_said(made, node), order_of_items(node))


def _nullable(made: Schema) -> Schema:
    kind = made.get("type")
    if isinstance(kind, str) and kind in _SCALARS:
        return {**made, "type": [kind, "null"], **({"enum": [*made["enum"], None]} if "enum" in made else {})}
    if is_list(kind):
        return {**made, "type": [*kind, "null"], **({"enum": [*made["enum"], None]} if "enum" in made else {})}
    text = {"description": made["description"]} if "description" in made else {}
    if "anyOf" in made:
        return {**made, "anyOf": [*made["anyOf"], {"type": "null"}]}
    return {"anyOf": [{key: value for key, value in made.items() if key != "description"}, {"type": "null"}], **text}


def _check_limits(schema: Schema) -> None:
    properties = values = characters = 0
    pending = [(schema, 1)]
    while pending:
        node, level = pending.pop()
        if level > MAX_LEVELS:
            raise NotStrictError(f"it has more than {MAX_LEVELS} levels")
        names = node.get("properties", {})
        choices = node.get("enum", [])
        texts = [choice for choice in choices if isinstance(choice, str)]
        if len(choices) > _LARGE_ENUM and sum(map(len, texts)) > MAX_LARGE_ENUM_CHARACTERS:
            raise NotStrictError("it has too long a list of choices")
        properties += len(names)
        values += len(choices)
        characters += sum(map(len, [*names, *texts, *node.get("$defs", {})]))
        # Definitions count from where they stand: where they are used, they would go round in circles.
        pending += [(part, level + (node.get("type") == "object")) for part in parts_of(node)]
    if properties > MAX_PROPERTIES or values > MAX_ENUM_VALUES or characters > MAX_CHARACTERS:
        raise NotStrictError("it has too many properties, choices or characters")
