"""JSON Schema, draft 2020-12, of what a tool takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from .._model.type_guards import is_dict, is_list
from .annotations import UnusableType
from .defaults import check_examples, shown_defaults
from .kind import Walk
from .kinds.objects import names_taken
from .nodes import Node, Types, is_pydantics, object_of, whole
from .plain_values import json_form
from .table import TABLE

Schema = dict[str, Any]
Mode = Literal["validation", "serialization"]


def input_schema(types: Types, root: Node | None, descriptions: Mapping[str, str]) -> Schema:
    """The schema of the arguments, always an object.

    Args:
        types: One field per argument.
        root: The type whose fields are the arguments, None when the arguments are `types.fields`.
        descriptions: Texts for arguments that have none of their own.
    """
    shown = object_of(types.fields) if root is None else root
    made = _inlined(_generate(types, shown, "validation", shown_defaults(types)))
    made["type"] = "object"
    made.setdefault("properties", {})
    for name, text in descriptions.items():
        if name in made["properties"]:
            made["properties"][name].setdefault("description", text)
    return _ordered(made)


def output_schema(types: Types, root: Node) -> Schema:
    """The schema of the result."""
    return _ordered(_inlined(_generate(types, root, "serialization")))


def _generate(types: Types, root: Node, mode: Mode, defaults: Mapping[int, Any] | None = None) -> Schema:
    generator = Generator(types, defaults)
    try:
        return _untitled(generator.generate(whole(root, types.definitions.values()), mode), generator.names_of_enums)
    except (pydantic.PydanticInvalidForJsonSchema, pydantic.PydanticUserError) as problem:
        text = str(problem).split("\n", 1)[0].rstrip(".")
        raise UnusableType(f"a type has no schema: {text}", "Use types that JSON has.") from None


def _inlined(schema: Schema) -> Schema:
    """The root itself instead of a reference to a definition, which stays if something else refers to it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    definitions: Schema = schema.get("$defs", {})
    name = reference.rpartition("/")[2]
    root = {**definitions[name], **{key: value for key, value in schema.items() if key not in ("$ref", "$defs")}}
    used = _references(root)
    for _ in definitions:
        used |= {inner for outer in used if outer in definitions for inner in _references(definitions[outer])}
    kept = {key: value for key, value in definitions.items() if key in used}
    return {**root, "$defs": kept} if kept else root


def _untitled(schema: Schema, names: Collection[str]) -> Schema:
    """The schema without the titles that pydantic makes of the names of enums."""
    for part in (schema, *schema.get("$defs", {}).values()):
        if part.get("title") in names:
            del part["title"]
    return schema


def _references(schema: Any) -> set[str]:
    if is_dict(schema):
        found = {name for value in schema.values() for name in _references(value)}
        reference = schema.get("$ref")
        return found | {reference.rpartition("/")[2]} if isinstance(reference, str) else found
    if is_list(schema):
        return {name for item in schema for name in _references(item)}
    return set()


_FIRST = ("type", "description", "properties", "required", "additionalProperties")


def _ordered(schema: Schema) -> Schema:
    """What a reader looks for first comes first, at the root; the rest by name."""
    first = {key: schema[key] for key in _FIRST if key in schema}
    return {**first, **{key: schema[key] for key in sorted(schema) if key not in first}}


class Generator(GenerateJsonSchema):
    """pydantic's generator, with the table of types in front of it."""

    def __init__(self, types: Types, defaults: Mapping[int, Any] | None) -> None:
        super().__init__(by_alias=True)
        self._defaults = defaults
        self._tried: set[int] = set()
        self.names_of_enums: set[str] = set()
        self.types = types

    def build_schema_type_to_method(self) -> Any:
        """The rows of the table in front of pydantic's own methods."""
        own: Any = super().build_schema_type_to_method()
        return {kind: self._row(kind, method) for kind, method in own.items()}

    def _row(self, kind: str, method: Callable[[Any], Schema]) -> Callable[[Any], Schema]:
        row = TABLE.get(kind)
        return method if row is None else lambda schema: row.publish(self, schema, method)

    def generate_inner(self, schema: Any) -> Schema:
        """The schema of a node, whose examples have been tried."""
        made: Schema = super().generate_inner(schema)
        if self.mode == "validation" and is_list(made.get("examples")):
            self.try_examples(schema["schema"] if schema["type"].endswith("-field") else schema, made["examples"])
        return made

    def try_examples(self, node: Any, examples: list[Any]) -> None:
        """Refuse the declaration if an example is not taken as an argument."""
        if id(node) not in self._tried:
            self._tried.add(id(node))
            check_examples(self.types, node, examples)

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Nothing: a default without a JSON form is left out of the schema, and works."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def ser_schema(self, schema: Any) -> Schema | None:
        """Any JSON for a serialiser of the author that does not say what it returns."""
        if schema["type"] in ("function-plain", "function-wrap") and schema.get("return_schema") is None:
            return None if is_pydantics(schema) else {}
        return super().ser_schema(schema)

    def _named_required_fields_schema(self, named_required_fields: Sequence[Any]) -> Schema:
        """Every name under which a field is taken; of a required one, at least one has to be there."""
        made = super()._named_required_fields_schema(named_required_fields)
        if self.mode != "validation":
            return made
        either: list[Schema] = []
        for name, required, field in named_required_fields:
            names = names_taken(name, field)
            if names[0] not in made["properties"]:
                continue
            for other in names[1:]:
                made["properties"].setdefault(other, made["properties"][names[0]])
            if required and len(names) > 1:
                made["required"].remove(names[0])
                either.append({"anyOf": [{"required": [one]} for one in names]})
        if either:
            made["allOf"] = either
            if not made["required"]:
                del made["required"]
        return made

    def name_schema(self, node: Any) -> Schema:
        """The schema of the names in an object, for the type of a dict's keys; empty for any text."""
        resolved = self.types.resolve(node)
        if self.mode == "serialization" and "serialization" in resolved:
            return {}
        return TABLE[resolved["type"]].publish_name(self, resolved)

    def default_of(self, node: Any) -> tuple[Any] | None:
        """The JSON form of a default, None for one that has none or is not shown."""
        if self._defaults is not None:
            return (self._defaults[id(node)],) if id(node) in self._defaults else None
        default = node["default"]
        if default is msgspec.UNSET or default is pydantic.MISSING:
            return None
        if default is None and not Walk(TABLE, self.types, "accept").takes_null(node["schema"]):
            return None  # Python's "= None" without "| None": omitted, and null, give None
        try:
            shown = json_form(default)
        except (TypeError, ValueError):
            return None
        return None if shown is None and default is not None else (shown,)
