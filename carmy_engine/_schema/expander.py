"""The first rewriting of core schemas: every definition in one place, Structs filled in, what JSON lacks refused."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
import typing_extensions
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError

from .annotations import UnresolvedType, UnusableType, normalise
from .kind import Kind, Walk
from .nodes import Node, Types, without
from .structs import annotations_of, reference_of, struct_schema


class Expander(Walk):
    """Expands annotations by the ``expand`` of each row."""

    def __init__(self, table: Mapping[str, Kind]) -> None:
        self.definitions: dict[str, Node] = {}
        super().__init__(table, Types({}, self.definitions), "expand")

    def fields(self, annotations: Mapping[str, Any]) -> dict[str, Node]:
        """The fields of an object with these annotations."""
        found: dict[str, Node] = self.visit(_typed_dict(annotations))["fields"]
        return found

    def define(self, definition: Node) -> None:
        """Expand what references may refer to."""
        ref = definition["ref"]
        if ref not in self.definitions:
            self.definitions[ref] = {"type": "any"}  # it may contain itself
            self.definitions[ref] = self.visit(definition)

    def struct(self, cls: type[msgspec.Struct]) -> Node:
        """A reference to the definition of a Struct."""
        ref = reference_of(cls)
        if ref not in self.definitions:
            self.definitions[ref] = {"type": "any"}
            before, self.config = self.config, {}
            fields: Any = without(self.visit(_typed_dict(annotations_of(cls))), "ref", "cls")
            self.config = before
            fields["cls_name"] = cls.__name__
            self.definitions[ref] = dict(struct_schema(cls, fields))
        return {"type": "definition-ref", "schema_ref": ref}


def _typed_dict(annotations: Mapping[str, Any]) -> Node:
    normal = {name: normalise(annotation) for name, annotation in annotations.items()}
    make: Any = typing_extensions.TypedDict  # with fields known only now, which no type checker follows
    holder = make("Arguments", normal)
    # Lets Structs through as is-instance nodes, which are filled in; whatever else comes through is refused there.
    holder.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on metadata that the engine reads itself
            schema: Any = TypeAdapter(holder).core_schema
    except PydanticUndefinedAnnotation as problem:
        raise undefined(str(problem.name)) from None
    except (PydanticSchemaGenerationError, PydanticUserError, SchemaError) as problem:
        lines = str(problem).split("\n")
        # The last line gives the reason why a validator cannot be built, such as an unsupported pattern.
        text = lines[-1 if isinstance(problem, SchemaError) else 0].strip().removeprefix("error: ").rstrip(".")
        if getattr(problem, "code", None) == "class-not-fully-defined":
            raise UnresolvedType(text, "Define what it names at the level of its module.") from None
        raise UnusableType(f"a type has no schema: {text}", "Use types that JSON has.") from None
    return _without_holder(schema)


def undefined(name: str) -> UnresolvedType:
    """The error for an annotation that names what does not exist."""
    return UnresolvedType(f"'{name}' is not defined", "Define it at the level of a module; import it at run time.")


def _without_holder(schema: Node) -> Node:
    """The schema without what only the made-up TypedDict brought in."""
    if schema["type"] == "definitions":
        return {**schema, "schema": _without_holder(schema["schema"])}
    return without(schema, "cls", "config", "ref", "extra_behavior")
