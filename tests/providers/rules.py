"""The providers' documented rules for tools, as checks that know nothing of how the tools were made.

Each gives a list of what is wrong, with its place; an empty one means that the provider would take the tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]
Found = Iterator[str]

_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("properties", "patternProperties", "$defs")


def nodes(schema: Schema, place: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside a schema that is an object, with its place."""
    if isinstance(schema, bool):
        return
    yield place, schema
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{place}/{key}")
    for key in _LISTS:
        for number, part in enumerate(schema.get(key, ())):
            yield from nodes(part, f"{place}/{key}/{number}")
    for key in _TABLES:
        for name, part in schema.get(key, {}).items():
            yield from nodes(part, f"{place}/{key}/{name}")


def _names(tools: list[dict[str, Any]], name_of: Callable[[dict[str, Any]], str], pattern: str) -> Found:
    names = [name_of(tool) for tool in tools]
    yield from (f"{name!r} is not a name" for name in names if not re.fullmatch(pattern, name))
    yield from (f"{name!r} is there twice" for name in set(names) if names.count(name) > 1)


def _json_schema(schema: Schema) -> Found:
    yield from (error.message for error in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
    for place, node in nodes(schema):
        if "$ref" in node and node["$ref"].removeprefix("#/$defs/") not in schema.get("$defs", {}):
            yield f"{place}: {node['$ref']} leads nowhere"


_STRICT = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref", "$defs",
    "description", "title", "pattern", "format", "multipleOf", "maximum", "exclusiveMaximum", "minimum",
    "exclusiveMinimum", "minItems", "maxItems",
}  # fmt: skip
_STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def openai_strict(schema: Schema) -> Found:
    """OpenAI, guide "Structured model outputs", sections "Supported schemas" and "JSON Schema limitations"."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "the root is not a plain object"
    total = 0
    for place, node in nodes(schema):
        yield from (f"{place}: {key} is not supported" for key in node.keys() - _STRICT)
        if "$ref" in node and node.keys() != {"$ref"}:
            yield f"{place}: something stands beside $ref"
        if not node.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
            yield f"{place}: has no type"
        kinds = node.get("type")
        if "object" in (kinds if isinstance(kinds, list) else [kinds]):
            total += len(node.get("properties", ()))
            if node.get("additionalProperties") is not False:
                yield f"{place}: an object that is not closed"
            if sorted(node.get("required", ())) != sorted(node.get("properties", {"?": 0})):
                yield f"{place}: not all fields are required"
        if kinds == "array" and "items" not in node:
            yield f"{place}: an array of anything"
        if node.get("format", "date") not in _STRICT_FORMATS:
            yield f"{place}: format {node['format']} is not supported"
    if total > 5_000:
        yield "too many properties"
    if _levels(schema) > 10:
        yield "too many levels"


def _levels(node: Schema) -> int:
    below = [
        _levels(part) for place, part in nodes(node) if place.count("/") and part is not node and _is_direct(node, part)
    ]
    return max(below, default=0) + (node.get("type") == "object")


def _is_direct(node: Schema, part: Schema) -> bool:
    parts = [node.get(key) for key in _SINGLE]
    parts += [inner for key in _LISTS for inner in node.get(key, ())]
    parts += [inner for key in _TABLES for inner in node.get(key, {}).values()]
    return any(part is inner for inner in parts)


def _openai_function(function: dict[str, Any]) -> Found:
    schema = function["parameters"]
    yield from _json_schema(schema)
    if schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum"}:
        yield "the root is not a plain object"
    if function["strict"]:
        yield from openai_strict(schema)


def openai(tools: list[dict[str, Any]]) -> Found:
    """OpenAI, API reference, "Create chat completion": ``tools``."""
    yield from _names(tools, lambda tool: tool["function"]["name"], "[a-zA-Z0-9_-]{1,64}")
    for tool in tools:
        if tool.keys() != {"type", "function"} or tool["type"] != "function":
            yield "not a function tool"
        yield from (f"{tool['function']['name']}{said}" for said in _openai_function(tool["function"]))


def openai_responses(tools: list[dict[str, Any]]) -> Found:
    """OpenAI, API reference, "Create a model response": ``tools``."""
    yield from _names(tools, lambda tool: tool["name"], "[a-zA-Z0-9_-]{1,64}")
    for tool in tools:
        if tool.keys() != {"type", "name", "description", "parameters", "strict"} or tool["type"] != "function":
            yield "not a function tool"
        yield from (f"{tool['name']}{said}" for said in _openai_function(tool))


def anthropic(tools: list[dict[str, Any]]) -> Found:
    """Anthropic, API reference, "Create a Message": ``tools``; guide "How to implement tool use"."""
    yield from _names(tools, lambda tool: tool["name"], "[a-zA-Z0-9_-]{1,64}")
    for tool in tools:
        schema = tool["input_schema"]
        yield from (f"{tool['name']}: {said}" for said in _json_schema(schema))
        if schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf"}:
            yield f"{tool['name']}: the root is not a plain object"
        yield from (f"{tool['name']}{place}: oneOf" for place, node in nodes(schema) if "oneOf" in node)


_OPENAPI = {
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required",
    "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "anyOf", "propertyOrdering", "default",
    "items", "minimum", "maximum",
}  # fmt: skip
_GEMINI_JSON = {
    "$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
    "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
}  # fmt: skip


def gemini_openapi(schema: Schema) -> Found:
    """Google, Gemini API reference, "Schema": a select subset of an OpenAPI 3.0 schema object."""
    for place, node in nodes(schema):
        yield from (f"{place}: {key} is not a field of Schema" for key in node.keys() - _OPENAPI)
        kind = node.get("type")
        if kind not in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT") and "anyOf" not in node:
            yield f"{place}: type {kind}"
        if "enum" in node and (kind != "STRING" or not all(isinstance(value, str) for value in node["enum"])):
            yield f"{place}: an enum of something else than texts"
        if kind == "STRING" and node.get("format", "enum") not in ("enum", "date-time"):
            yield f"{place}: format {node['format']}"
        if kind == "ARRAY" and "items" not in node:
            yield f"{place}: an array without items"
        if kind == "OBJECT" and not node.get("properties"):
            yield f"{place}: an object without properties"
        for name in node.get("properties", ()):
            if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                yield f"{place}: {name!r} is not the name of a parameter"
        if not set(node.get("required", ())) <= set(node.get("properties", ())):
            yield f"{place}: requires what it does not have"


def gemini_json(schema: Schema) -> Found:
    """Google, Gemini API reference, "GenerationConfig": the JSON Schema that ``responseJsonSchema`` supports."""
    yield from _json_schema({key: value for key, value in schema.items() if key != "propertyOrdering"})
    if schema.get("type") != "object":
        yield "the root is not an object"
    for place, node in nodes(schema):
        yield from (f"{place}: {key} is not supported" for key in node.keys() - _GEMINI_JSON)
        if "$ref" in node and any(not key.startswith("$") for key in node):
            yield f"{place}: something stands beside $ref"
        if not all(isinstance(value, str | int | float) for value in node.get("enum", ())):
            yield f"{place}: an enum of something else than texts and numbers"
        for name in node.get("required", ()):
            if any("$ref" in inner for _, inner in nodes(node.get("properties", {}).get(name, {}))):
                yield f"{place}: {name} goes round in circles, and is required"


def gemini(tools: list[dict[str, Any]]) -> Found:
    """Google, Gemini API reference, "FunctionDeclaration"; names by the narrowest edition of their rule."""
    yield from _names(tools, lambda tool: tool["name"], "[a-zA-Z_][a-zA-Z0-9_-]{0,62}")
    for tool in tools:
        if not tool.get("description"):
            yield f"{tool['name']}: no description"
        if {"parameters", "parametersJsonSchema"} <= tool.keys():
            yield f"{tool['name']}: both forms of parameters"
        if "parameters" in tool:
            yield from (f"{tool['name']}{said}" for said in gemini_openapi(tool["parameters"]))
        if "parametersJsonSchema" in tool:
            yield from (f"{tool['name']}{said}" for said in gemini_json(tool["parametersJsonSchema"]))


def mcp(tools: list[dict[str, Any]]) -> Found:
    """Model Context Protocol, specification 2025-11-25, "Tools"."""
    yield from _names(tools, lambda tool: tool["name"], "[a-zA-Z0-9_.-]{1,128}")
    for tool in tools:
        for key in ("inputSchema", "outputSchema"):
            if key in tool:
                yield from (f"{tool['name']} {key}: {said}" for said in _json_schema(tool[key]))
                if tool[key].get("type") != "object":
                    yield f"{tool['name']}: {key} is not an object"


RULES: dict[str, Callable[[list[dict[str, Any]]], Found]] = {
    "openai": openai,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "mcp": mcp,
}
"""By format."""


def json_schema_of_openapi(schema: Schema) -> Schema:
    """A ``Schema`` object of Gemini as the JSON Schema that means the same, to check values with."""
    made = {key: value for key, value in schema.items() if key not in ("nullable", "propertyOrdering", "format")}
    if "type" in made:
        made["type"] = made["type"].lower()
    for key, value in schema.get("properties", {}).items():
        made["properties"] = {**made["properties"], key: json_schema_of_openapi(value)}
    if "items" in schema:
        made["items"] = json_schema_of_openapi(schema["items"])
    if "anyOf" in schema:
        made["anyOf"] = [json_schema_of_openapi(arm) for arm in schema["anyOf"]]
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made
