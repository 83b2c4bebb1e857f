"""What values of a type are called, and whether null is one of them."""

from __future__ import annotations

import enum
from typing import Any

from .core_schema import Node, Types, arm
from .type_guards import is_dict


def accepts_null(types: Types, node: Node) -> bool:
    """True when null is a value of the type in its own right."""
    node = types.resolve(node)
    kind = node["type"]
    if kind in ("nullable", "none", "any", "json", "function-plain", "missing-sentinel"):
        return True
    if kind in ("union", "tagged-union"):
        choices = node["choices"]
        found = choices.values() if is_dict(choices) else choices
        return any(accepts_null(types, arm(choice)) for choice in found)
    if kind == "literal":
        return None in node["expected"]
    if kind == "model" and not node.get("root_model"):
        return False
    inner = node.get("strict_schema") or node.get("json_schema") or node.get("schema")
    if kind == "chain":
        inner = node["steps"][0]
    return is_dict(inner) and kind != "dataclass" and "type" in inner and accepts_null(types, inner)


_NOUNS = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "none": "null",
    "bytes": "a base64 string", "decimal": "a decimal number in a string", "date": "a date", "time": "a time",
    "datetime": "a date and time", "timedelta": "a duration", "uuid": "a UUID", "url": "a URL",
    "multi-host-url": "a URL", "list": "a list", "set": "a list", "frozenset": "a list", "tuple": "a list",
    "deque": "a list", "dict": "an object", "typed-dict": "an object", "model": "an object",
    "dataclass": "an object", "tagged-union": "an object", "json": "a string of JSON",
}  # fmt: skip


def noun_of(types: Types, node: Node) -> str:
    """What a value of the type is called, with its article."""
    node = types.resolve(node)
    kind = node["type"]
    if kind == "literal":
        return one_of(node["expected"])
    if kind == "enum":
        return one_of([member.value for member in node["members"]])
    noun = _NOUNS.get(kind)
    if noun is not None:
        return noun
    inner = node.get("strict_schema") or node.get("json_schema") or node.get("schema")
    if kind == "chain":
        inner = node["steps"][0]
    return noun_of(types, inner) if is_dict(inner) and "type" in inner else "a valid value"


def one_of(values: list[Any]) -> str:
    """``one of 'a', 'b'``, or the only value."""
    shown = [_shown(value.value if isinstance(value, enum.Enum) else value) for value in values]
    return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"'{value}'" if isinstance(value, str) else str(value)


_JSON_NOUNS = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip


def noun_of_type(name: str) -> str:
    """What a value of a JSON Schema type is called."""
    return _JSON_NOUNS.get(name, "a valid value")
