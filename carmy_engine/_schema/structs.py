"""msgspec Structs inside pydantic's schemas: their fields under their wire names, built by class, dumped by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
import pydantic
from msgspec.structs import FieldInfo, StructConfig
from pydantic_core import CoreSchema, PydanticSerializationUnexpectedValue, core_schema

from .._model.content import CONTENT_KEYWORD, tag_of
from .annotations import UnusableType

STRUCT = "carmy_struct"
"""The key, in a core schema's metadata, of the Struct that it stands for."""
_FIELDS = "carmy_struct_fields"
"""The same for the node of its fields."""


def struct_of(node: dict[str, Any]) -> Any:
    """The Struct that a core schema stands for, None for other schemas."""
    metadata: dict[str, Any] = node.get("metadata") or {}
    return metadata.get(STRUCT)


def class_of(node: dict[str, Any]) -> Any:
    """The class of a typed-dict node, whose fields may be those of a Struct; None for one that was made up."""
    metadata: dict[str, Any] = node.get("metadata") or {}
    return metadata.get(_FIELDS) or node.get("cls")


def is_struct(cls: object) -> bool:
    """True for a msgspec Struct class."""
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct)


def reference_of(cls: type[msgspec.Struct]) -> str:
    """The name of a Struct's definition, in the form of pydantic's own."""
    return f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"


def annotations_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields as pydantic annotations, defaults included.

    Raises:
        UnusableType: The Struct is an array in JSON, so its fields have no names there.
    """
    config: StructConfig = cls.__struct_config__
    if getattr(cls, "__parameters__", ()):
        # pydantic loses the types in "Box[int]" before anybody could ask for them.
        name = cls.__qualname__
        raise UnusableType(f"Struct {name} is generic", f"Give its types in a class: 'class Int{name}({name}[int])'.")
    if config.array_like:
        raise UnusableType(
            f"Struct {cls.__qualname__} is array_like: its fields have no names", "Leave array_like out."
        )
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        found[field.name] = Annotated[field.type, _field(field)]
    if config.tag_field is not None:
        # Alone, a tagged Struct need not say its tag; in a union the union asks for it.
        found[config.tag_field] = Annotated[Literal[config.tag], pydantic.Field(default=config.tag)]
    return found


def _field(field: FieldInfo) -> Any:
    given: dict[str, Any] = {"alias": field.encode_name} if field.encode_name != field.name else {}
    if field.default_factory is not msgspec.NODEFAULT:
        given["default_factory"] = field.default_factory
    elif field.default is not msgspec.NODEFAULT:
        given["default"] = field.default
    return pydantic.Field(**given)


def struct_schema(cls: type[msgspec.Struct], fields: CoreSchema) -> CoreSchema:
    """The core schema of a Struct.

    Args:
        cls: The Struct.
        fields: A typed-dict schema of its fields, from `annotations_of`.
    """
    own: Any = fields
    own["metadata"] = {_FIELDS: cls}
    tag = tag_of(cls)
    if tag is not None:
        own["metadata"]["pydantic_js_extra"] = {CONTENT_KEYWORD: tag}
    return core_schema.no_info_after_validator_function(
        _builder(cls),
        fields,
        ref=reference_of(cls),
        serialization=core_schema.plain_serializer_function_ser_schema(as_dict(cls), return_schema=fields),
        metadata={STRUCT: cls},
    )


def _builder(cls: type[msgspec.Struct]) -> Callable[[dict[str, Any]], msgspec.Struct]:
    tag_field = cls.__struct_config__.tag_field

    def build(values: dict[str, Any]) -> msgspec.Struct:
        if tag_field is not None:
            values.pop(tag_field, None)
        try:
            return cls(**values)
        except TypeError as problem:
            raise ValueError(str(problem)) from None  # a __post_init__ that refuses, as msgspec understands it

    return build


def as_dict(cls: type[msgspec.Struct]) -> Callable[[Any], Any]:
    """A function from a Struct to its fields by attribute name, unset ones left out.

    The function raises `PydanticSerializationUnexpectedValue` for anything that is not a `cls`.
    """
    config: StructConfig = cls.__struct_config__
    names = cls.__struct_fields__
    tag: Mapping[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}

    def dump(value: Any) -> Any:
        if not isinstance(value, cls):
            raise PydanticSerializationUnexpectedValue(f"expected {cls.__qualname__}")
        found = dict(tag)
        for name in names:
            item = getattr(value, name, msgspec.UNSET)
            if item is not msgspec.UNSET:
                found[name] = item
        return found

    return dump
