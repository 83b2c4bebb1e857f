"""What values of a type are called."""

from __future__ import annotations

from .kinds.choices import one_of

__all__ = ["noun_of_type", "one_of"]

_JSON_NOUNS = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip


def noun_of_type(name: str) -> str:
    """What a value of a JSON Schema type is called."""
    return _JSON_NOUNS.get(name, "a valid value")
