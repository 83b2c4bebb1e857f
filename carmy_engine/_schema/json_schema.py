"""JSON Schema, draft 2020-12, of what a tool takes and gives."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import pydantic
import typing_extensions
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from . import docstrings
from .annotations import QUALIFIERS, UnusableType
from .core_schema import Node, Types, object_of, says_extra, whole
from .structs import struct_of
from .type_guards import is_dict, is_list
from .type_names import accepts_null

Schema = dict[str, Any]
Mode = Literal["validation", "serialization"]

_DECIMAL_PATTERN = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def input_schema(types: Types, root: Node | None, descriptions: Mapping[str, str]) -> Schema:
    """The schema of the arguments, always an object.

    Args:
        types: One field per argument.
        root: The type whose fields are the arguments, None when the arguments are `types.fields`.
        descriptions: Texts for arguments that have none of their own.
    """
    made = _inlined(_generate(types, object_of(types.fields) if root is None else root, "validation"))
    if root is not None:
        made.pop("description", None)  # of the class; the tool has its own
    made["type"] = "object"
    made.setdefault("properties", {})
    for name, text in descriptions.items():
        if name in made["properties"]:
            made["properties"][name].setdefault("description", text)
    return _ordered(made)


def output_schema(types: Types, root: Node) -> Schema:
    """The schema of the result."""
    return _ordered(_inlined(_generate(types, root, "serialization")))


def _generate(types: Types, root: Node, mode: Mode) -> Schema:
    generator = _Generator(types)
    try:
        return _untitled(generator.generate(whole(root, types.definitions.values()), mode))
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


def _untitled(schema: Schema) -> Schema:
    """The schema without the titles that pydantic makes of the names of enums."""
    for name, definition in schema.get("$defs", {}).items():
        if ("enum" in definition or "const" in definition) and definition.get("title") == name:
            del definition["title"]
    if "enum" in schema or "const" in schema:
        schema.pop("title", None)
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


class _Generator(GenerateJsonSchema):
    """pydantic's generator with the engine's table of types."""

    def __init__(self, types: Types) -> None:
        super().__init__(by_alias=True)
        self._types = types

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Nothing: a default without a JSON form is left out of the schema, and works."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        """The JSON form of a default; the caller leaves it out of the schema when there is none."""
        if isinstance(dft, float) and not math.isfinite(dft):
            raise PydanticSerializationError("JSON has no such number")
        return to_jsonable_python(dft, bytes_mode="base64", by_alias=True)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        inner: Any = schema["schema"]
        if "default" not in schema:
            return self.generate_inner(inner)
        default = schema["default"]
        if default is None and not accepts_null(self._types, inner):
            # Python's "= None" without "| None": omitted, and null, give None.
            return self.generate_inner(inner)
        return super().default_schema(schema)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> Schema:
        return {"type": "string", "contentEncoding": "base64"}

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> Schema:
        text: Schema = {"type": "string", "pattern": _DECIMAL_PATTERN}
        if self.mode == "serialization":
            return text
        whole: Schema = {"type": "integer"}
        self.update_with_validations(whole, {**schema, "type": "int"}, self.ValidationsMapping.numeric)
        return {"anyOf": [text, {key: _plain(value) for key, value in whole.items()}]}

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> Schema:
        made = super().tagged_union_schema(schema)
        # A word of OpenAPI; each arm says its tag itself.
        made.pop("discriminator", None)
        choices: Schema = dict(schema["choices"])
        if any(struct_of(self._types.resolve(choice)) is not None for choice in choices.values()):
            # A tag is optional in a Struct on its own.
            made = {"type": "object", "required": [schema["discriminator"]], **made}
        return made

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        cls = schema["cls"]
        made = super().model_schema(schema)
        config: Any = schema.get("config") or {}
        titled = cls.model_config.get("title") is not None or cls.model_config.get("model_title_generator") is not None
        return self._object(made, cls, config, titled=titled, closable=not schema.get("root_model"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        cls = schema["cls"]
        own: Any = getattr(cls, "__pydantic_config__", None) or {}
        made = super().dataclass_schema(schema)
        return self._object(made, cls, schema.get("config") or {}, titled="title" in own, closable=True)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> Schema:
        cls = schema.get("cls")
        made = super().typed_dict_schema(schema)
        own: Any = getattr(cls, "__pydantic_config__", None) or {}
        closable = not says_extra(dict(schema))
        return self._object(made, cls, {}, titled="title" in own, closable=closable)

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> Schema:
        made = super().function_after_schema(schema)
        cls = struct_of(dict(schema))
        if cls is None:
            return made
        return self._object(made, cls, {}, titled=False, closable=True)

    def _object(self, made: Schema, cls: Any, config: Mapping[str, Any], *, titled: bool, closable: bool) -> Schema:
        """Own words and own rules for the schema of a class."""
        if "$ref" in made or "properties" not in made:
            if not titled:
                made.pop("title", None)
            return made
        if not titled:
            made.pop("title", None)
        extra = config.get("extra_fields_behavior")
        if closable and self.mode == "validation" and extra is None and "additionalProperties" not in made:
            made["additionalProperties"] = False
        if cls is None:
            return made
        doc = cls.__dict__.get("__doc__")
        if isinstance(doc, str) and made.get("description", inspect.cleandoc(doc)) == inspect.cleandoc(doc):
            text = docstrings.class_description(doc)
            made.pop("description", None)
            if text and not text.startswith(f"{cls.__name__}("):
                made["description"] = text
        self._describe(made["properties"], cls)
        return made

    def _describe(self, properties: Schema, cls: Any) -> None:
        texts = {**docstrings.fields_of(cls), **_annotated_texts(cls)}
        for name, text in texts.items():
            for key in _wire_names(cls, name):
                if key in properties:
                    properties[key].setdefault("description", text)


def _annotated_texts(cls: Any) -> dict[str, str]:
    """Plain strings in the ``Annotated`` of a class's fields."""
    fields: Any = getattr(cls, "__pydantic_fields__", None)
    if is_dict(fields):
        return {
            name: next(item for item in field.metadata if isinstance(item, str))
            for name, field in fields.items()
            if any(isinstance(item, str) for item in field.metadata)
        }
    try:
        hints = typing_extensions.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
    found: dict[str, str] = {}
    for name, hint in hints.items():
        while typing.get_origin(hint) in QUALIFIERS:
            hint = typing.get_args(hint)[0]  # noqa: PLW2901 - peeled
        for item in getattr(hint, "__metadata__", ()):
            if isinstance(item, str):
                found[name] = item
    return found


def _wire_names(cls: Any, name: str) -> list[str]:
    fields: Any = getattr(cls, "__pydantic_fields__", None)
    if is_dict(fields) and name in fields:
        field = fields[name]
        return [
            alias
            for alias in (field.validation_alias, field.serialization_alias, field.alias, name)
            if isinstance(alias, str)
        ]
    config = getattr(cls, "__struct_config__", None)
    if config is not None:
        encoded = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        return [encoded.get(name, name)]
    return [name]


def _plain(value: Any) -> Any:
    """A bound of a Decimal as a JSON number."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == int(value) else float(value)
