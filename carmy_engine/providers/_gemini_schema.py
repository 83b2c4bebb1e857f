"""The two forms of a schema that Gemini takes for the parameters of a function.

``parameters`` is the ``Schema`` object of the Gemini API reference, a part of OpenAPI 3.0. ``parametersJsonSchema`` is JSON
Schema with the keywords that the reference lists under ``responseJsonSchema``. The first is understood by every version of
the interface; the second expresses what the first cannot: recursion, free names of fields, any value, tuples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .._model.type_guards import is_dict, is_list
from ._json_schema_tools import Schema, described, mapped, parts_of

_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_COPIED = (
    "title", "description", "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "minProperties",
    "maxProperties", "pattern",
)  # fmt: skip
_READ = {
    *_COPIED, "type", "enum", "const", "format", "properties", "required", "items", "anyOf", "additionalProperties",
}  # fmt: skip
_IMPOSSIBLE = ("$ref", "$defs", "prefixItems", "allOf", "not", "if", "then", "else", "patternProperties")
_FORMATS = {"number": ("float", "double"), "integer": ("int32", "int64"), "string": ("date-time",)}

_JSON_KEYWORDS = {
    "$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
    "minimum", "maximum", "anyOf", "properties", "additionalProperties", "required",
}  # fmt: skip
_SILENT = {"default", "$schema", "$id", "$comment"}


class _NoFormError(Exception):
    """``parameters`` cannot say it."""


def openapi_schema(schema: Mapping[str, Any]) -> Schema | None:
    """The arguments as a ``Schema`` object; None when it has no form for them.

    Args:
        schema: From `_json_schema_tools.portable`, with properties.
    """
    try:
        return _openapi(schema)
    except _NoFormError:
        return None


def _openapi(node: Mapping[str, Any]) -> Schema:
    if any(word in node for word in _IMPOSSIBLE):
        raise _NoFormError
    nullable, bare = _without_null(node)
    made: Schema = {key: bare[key] for key in _COPIED if key in bare}
    if "anyOf" in bare:
        made["anyOf"] = [_openapi(arm) for arm in bare["anyOf"]]
    else:
        kind = bare.get("type")
        if "enum" in bare or "const" in bare:
            made.update(_choice(bare))
        elif kind == "object":
            made.update(_object(bare))
        elif kind == "array":
            if not is_dict(bare.get("items")):
                raise _NoFormError
            made.update(type="ARRAY", items=_openapi(bare["items"]))
        elif kind in ("string", "number", "integer", "boolean"):
            made["type"] = kind.upper()
            if bare.get("format") in _FORMATS.get(kind, ()):
                made["format"] = bare["format"]
        else:
            raise _NoFormError
    if nullable:
        made["nullable"] = True
    notes = [(key, value) for key, value in bare.items() if key not in _READ | _SILENT]
    if bare.get("default") is not None:
        notes.append(("default", bare["default"]))
    if "format" in bare and "format" not in made:
        notes.insert(0, ("format", bare["format"]))
    return described(made, notes)


def _without_null(node: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
    """Whether null is a value, and the schema of all others."""
    kind = node.get("type")
    if is_list(kind):
        kinds = [one for one in kind if one != "null"]
        if len(kinds) == 1:
            return len(kinds) < len(kind), {**node, "type": kinds[0]}
        arms = [{"type": one} for one in kinds]
        return len(kinds) < len(kind), {**{key: value for key, value in node.items() if key != "type"}, "anyOf": arms}
    if "anyOf" in node:
        arms = [arm for arm in node["anyOf"] if arm.get("type") != "null"]
        if len(arms) == 1 and len(node["anyOf"]) > 1:
            beside = {key: value for key, value in node.items() if key != "anyOf"}
            return True, {**_without_null(arms[0])[1], **beside}
        return len(arms) < len(node["anyOf"]), {**node, "anyOf": arms}
    if is_list(node.get("enum")) and None in node["enum"]:
        return True, {**node, "enum": [value for value in node["enum"] if value is not None]}
    return False, node


def _choice(node: Mapping[str, Any]) -> Schema:
    values: list[object] = node["enum"] if "enum" in node else [node["const"]]
    if values and all(isinstance(value, str) for value in values):
        return {"type": "STRING", "format": "enum", "enum": list(values)}
    # Values of an enum are texts there; numbers go into the description, and the engine checks them.
    for one, kind in ((bool, "BOOLEAN"), (int, "INTEGER"), (float, "NUMBER")):
        if all(type(value) is one for value in values):
            text = f"one of: {', '.join(str(value).lower() for value in values)}"
            said = node.get("description")
            return {"type": kind, "description": f"{said} ({text})" if said else text}
    raise _NoFormError


def _object(node: Mapping[str, Any]) -> Schema:
    properties = node.get("properties", {})
    # An object without properties is refused there, and one with free names has no form.
    if not properties or node.get("additionalProperties", False) is not False:
        raise _NoFormError
    if not all(_PROPERTY.fullmatch(name) for name in properties):
        raise _NoFormError
    made: Schema = {"type": "OBJECT", "properties": {name: _openapi(part) for name, part in properties.items()}}
    if node.get("required"):
        made["required"] = [name for name in node["required"] if name in properties]
    made["propertyOrdering"] = list(properties)
    return made


def json_schema(schema: Mapping[str, Any]) -> Schema:
    """The arguments in JSON Schema with the listed keywords only; the rest goes into descriptions.

    References that go round in circles may only stand in optional properties, so whatever holds one is not required.
    """
    made = mapped(schema, json_schema)
    if "$ref" in made:
        return {"$ref": made["$ref"]}  # nothing else may stand beside it
    if "const" in made:
        made["enum"] = [made.pop("const")]
    notes: list[tuple[str, object]] = []
    if "enum" in made and not all(isinstance(value, str | int | float) for value in made["enum"]):
        values = [value for value in made["enum"] if value is not None]
        notes.append(("one of", made.pop("enum")))
        if values and all(isinstance(value, str) for value in values):
            made["anyOf"] = [{"type": "string", "enum": values}, {"type": "null"}]
            made.pop("type", None)
    if "allOf" in made:
        notes.append(("all of", made.pop("allOf")))
    if "required" in made:
        made["required"] = [
            name for name in made["required"] if not _is_circular(made.get("properties", {}).get(name, {}))
        ]
    notes += [(key, value) for key, value in made.items() if key not in _JSON_KEYWORDS | _SILENT]
    if made.get("default") is not None:
        notes.append(("default", made["default"]))
    return described({key: value for key, value in made.items() if key in _JSON_KEYWORDS}, notes)


def _is_circular(node: Schema) -> bool:
    """Only references that go round in circles are left."""
    return "$ref" in node or any(_is_circular(part) for part in parts_of(node))
