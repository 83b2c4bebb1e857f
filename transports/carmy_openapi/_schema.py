"""Schemas of OpenAPI as JSON Schema 2020-12, with the definitions that they refer to."""

from __future__ import annotations

from typing import Any

from ._references import MAX_DEPTH, MAX_PARTS, Document, DocumentError, is_array, is_object

_DROPPED = frozenset(
    {
        "$schema",
        "$comment",
        "deprecated",
        "discriminator",
        "example",
        "externalDocs",
        "nullable",
        "readOnly",
        "writeOnly",
        "xml",
    }
)
_ONE = frozenset(
    {
        "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems",
        "unevaluatedProperties",
    }
)  # fmt: skip
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"dependentSchemas", "patternProperties"})
_REFUSED = frozenset({"$anchor", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "definitions"})


class Schemas:
    """The schemas of one operation's arguments.

    Args:
        document: The document that they are part of.

    Attributes:
        definitions: Those that the converted schemas refer to.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._pending: list[tuple[str, str]] = []
        self._parts = 0
        self.definitions: dict[str, Any] = {}

    def convert(self, schema: Any, depth: int = 0) -> Any:
        """A schema of a request; what only answers have is left out.

        Raises:
            DocumentError: It is too large, or has a form without a counterpart.
        """
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise DocumentError(f"its schemas have more than {MAX_PARTS} parts")
        if depth > MAX_DEPTH:
            raise DocumentError(f"a schema has more than {MAX_DEPTH} levels")
        if isinstance(schema, bool):
            return schema
        if not is_object(schema):
            raise DocumentError("a schema is no object")
        if refused := sorted(_REFUSED & schema.keys()):
            raise DocumentError(f"a schema has {', '.join(refused)}, which is not supported")
        reference = schema.get("$ref")
        made: dict[str, Any] = {}
        if isinstance(reference, str):
            made["$ref"] = f"#/$defs/{self._define(reference)}"
            if self._document.is_3_0:
                return made  # what stands beside a reference has no meaning there
        for key, value in schema.items():
            if key == "properties":
                made[key] = self._properties(value, depth)
            elif key in _ONE:
                made[key] = self.convert(value, depth + 1)
            elif key in _LISTS and is_array(value):
                made[key] = [self.convert(item, depth + 1) for item in value]
            elif key in _NAMED and is_object(value):
                made[key] = {name: self.convert(item, depth + 1) for name, item in value.items()}
            elif key not in _DROPPED and key != "$ref" and not key.startswith("x-"):
                made[key] = value
        if is_array(required := made.get("required")) and "properties" in made:
            hidden = schema["properties"].keys() - made["properties"].keys()
            made["required"] = [name for name in required if name not in hidden]
        return _as_2020(schema, made) if self._document.is_3_0 else made

    def _properties(self, properties: Any, depth: int) -> dict[str, Any]:
        if not is_object(properties):
            raise DocumentError("the properties of a schema are no object")
        return {
            name: self.convert(item, depth + 1)
            for name, item in properties.items()
            if not (is_object(item) and item.get("readOnly") is True)
        }

    def _define(self, pointer: str) -> str:
        """The name of the definition of what a reference refers to."""
        name = self._names.get(pointer)
        if name is None:
            base = "".join(letter if letter.isalnum() else "_" for letter in pointer.rpartition("/")[2]) or "schema"
            name, number = base, 1
            while name in self.definitions:
                number += 1
                name = f"{base}_{number}"
            self._names[pointer] = name
            self.definitions[name] = True
            self._pending.append((name, pointer))
        return name

    def finish(self) -> None:
        """Convert the definitions that have been referred to. They may refer to further ones, and to themselves.

        Raises:
            DocumentError: See `convert`.
        """
        while self._pending:
            name, pointer = self._pending.pop()
            self.definitions[name] = self.convert(self._document.at(pointer))


def _as_2020(schema: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """The parts of a schema of OpenAPI 3.0 that have another form in JSON Schema."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and limit in made:
            made[exclusive] = made.pop(limit)
    if schema.get("nullable") is not True:
        return made
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if is_array(made.get("enum")) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return made
    return {"anyOf": [made, {"type": "null"}]}
