"""Types into core schemas: pydantic's own, with every definition in one place and Structs filled in.

What the schemas are used for is decided elsewhere: `argument_rules` turns them into validators of arguments, `output_rules` into
checks of outputs, `json_schema` into JSON Schema. All three are a `Rewriter`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec
import typing_extensions
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import CoreSchema, SchemaError

from .annotations import UnresolvedType, UnusableType, names_of_types, normalise
from .structs import annotations_of, is_struct, reference_of, struct_schema
from .type_guards import is_dict, is_list, is_tuple

Node = dict[str, Any]
"""One core schema. pydantic publishes them as TypedDicts, one per type; a walker over all of them needs none of that."""

# Where a node keeps its parts.
_ONE = (
    "schema", "items_schema", "keys_schema", "values_schema", "lax_schema", "strict_schema", "json_schema",
    "python_schema", "extras_schema", "extras_keys_schema", "arguments_schema", "return_schema", "serialization",
)  # fmt: skip
_LISTS = ("items_schema", "steps", "choices", "fields", "arguments_schema", "computed_fields")
_TABLES = ("fields", "choices")

_NO_JSON = {
    "callable": "functions",
    "is-subclass": "classes",
    "arguments": "argument lists",
    "arguments-v3": "argument lists",
    "call": "calls",
    "ellipsis": "an ellipsis",
    "complex": "complex numbers",
    "invalid": "what it names",
}
_KEY_TYPES = {
    "str", "int", "float", "bool", "bytes", "decimal", "date", "time", "datetime", "timedelta", "uuid", "url",
    "multi-host-url", "enum", "literal", "any",
}  # fmt: skip
"""What can be the name of a member of a JSON object."""


class Rewriter:
    """Rebuilds a schema, node by node. Subclasses add a method ``on_<type>`` for each type they change."""

    def visit(self, node: Node) -> Node:
        """The node rewritten; the one given is never changed."""
        method = getattr(self, "on_" + node["type"].replace("-", "_"), None)
        return self.parts(node) if method is None else method(node)

    def parts(self, node: Node) -> Node:
        """A copy of the node with its parts rewritten."""
        made = dict(node)
        for key in _ONE:
            part = node.get(key)
            if is_dict(part):
                made[key] = self.parts(part) if key == "serialization" else self.visit(part)
        for key in _LISTS:
            part = node.get(key)
            if is_list(part):
                made[key] = [self._item(item) for item in part]
        for key in _TABLES:
            part = node.get(key)
            if is_dict(part):
                made[key] = {name: self.visit(item) for name, item in part.items()}
        return made

    def _item(self, item: Any) -> Any:
        if is_tuple(item):
            return (self.visit(item[0]), *item[1:])
        return self.visit(item) if is_dict(item) else item


def parts_of(node: Node) -> Iterator[Node]:
    """The nodes that this one is made of. Its serialiser is not among them."""
    for key in _ONE:
        part = node.get(key)
        if key != "serialization" and is_dict(part):
            yield part
    for key in _LISTS:
        part = node.get(key)
        if is_list(part):
            yield from filter(is_dict, map(arm, part))
    for key in _TABLES:
        part = node.get(key)
        if is_dict(part):
            yield from part.values()


@dataclasses.dataclass(frozen=True, slots=True)
class Types:
    """The core schemas of some annotations.

    Attributes:
        fields: A typed-dict field for each annotation, by name.
        definitions: What ``definition-ref`` nodes refer to, by reference.
    """

    fields: Mapping[str, Node]
    definitions: Mapping[str, Node]

    def resolve(self, node: Node) -> Node:
        """The node itself, or the definition it refers to."""
        while node["type"] == "definition-ref":
            node = self.definitions[node["schema_ref"]]
        return node


class TypesRewriter(Rewriter):
    """Rewrites the nodes of some types, which it can look up."""

    def __init__(self, types: Types) -> None:
        self._types = types

    def visit(self, node: Node) -> Node:
        """Rewrite; references between definitions are kept, references of inlined nodes are of no use any more."""
        made = super().visit(node)
        if "ref" in made:
            made = {key: value for key, value in made.items() if key != "ref"}
        return made


def types_of(annotations: Mapping[str, Any]) -> Types:
    """Build the core schemas of annotations.

    Raises:
        UnusableType: One of them has no JSON form.
        UnresolvedType: One of them names something that is not defined yet.
    """
    expander = _Expander()
    try:
        return Types(expander.fields(annotations), expander.definitions)
    except NameError as problem:
        raise _undefined(str(problem.name)) from None


class _Expander(Rewriter):
    """Collects definitions, fills in Structs, refuses what JSON cannot carry."""

    def __init__(self) -> None:
        self.definitions: dict[str, Node] = {}
        self._inside: list[str] = []

    def fields(self, annotations: Mapping[str, Any]) -> dict[str, Node]:
        found: dict[str, Node] = self.visit(_typed_dict(annotations))["fields"]
        return found

    def on_definitions(self, node: Node) -> Node:
        for definition in node["definitions"]:
            ref = definition["ref"]
            if ref not in self.definitions:
                self.definitions[ref] = {}  # it may contain itself
                self.definitions[ref] = self.visit(definition)
        return self.visit(node["schema"])

    def on_is_instance(self, node: Node) -> Node:
        cls = node["cls"]
        if not is_struct(cls):
            raise UnusableType(
                f"{names_of_types(cls)} has no JSON form", "Use a model, a dataclass, a TypedDict or a msgspec Struct."
            )
        ref = reference_of(cls)
        if ref not in self.definitions:
            self.definitions[ref] = {}
            fields = self._struct_fields(cls)
            self.definitions[ref] = dict(struct_schema(cls, fields))
        return {"type": "definition-ref", "schema_ref": ref}

    def _struct_fields(self, cls: type[msgspec.Struct]) -> Any:
        node = _typed_dict(annotations_of(cls))
        made = self.visit(node)
        made.pop("ref", None)
        made["cls_name"] = cls.__name__
        made.pop("cls", None)
        return made

    def on_union(self, node: Node) -> Node:
        tagged = self._tagged_structs(node)
        return self.parts(node) if tagged is None else tagged

    def _tagged_structs(self, node: Node) -> Node | None:
        """A union of tagged Structs as a tagged union; None for any other."""
        choices = [arm(choice) for choice in node["choices"]]
        if not all(choice["type"] == "is-instance" and is_struct(choice["cls"]) for choice in choices):
            return None
        structs: list[type[msgspec.Struct]] = [choice["cls"] for choice in choices]
        fields = {struct.__struct_config__.tag_field for struct in structs}
        if len(fields) != 1 or None in fields:
            names = ", ".join(struct.__qualname__ for struct in structs)
            raise UnusableType(
                f"the Structs {names} cannot be told apart", "Give each a tag: 'class A(Struct, tag=True)'."
            )
        tags = {
            struct.__struct_config__.tag: self.visit(choice) for struct, choice in zip(structs, choices, strict=True)
        }
        return {"type": "tagged-union", "discriminator": fields.pop(), "choices": tags}

    def on_generator(self, node: Node) -> Node:
        # pydantic would check the items one by one while the tool runs; JSON arrives whole.
        made = self.parts({key: value for key, value in node.items() if key != "serialization"})
        return {**made, "type": "list"}

    def on_lax_or_strict(self, node: Node) -> Node:
        return {**node, "strict_schema": self.visit(node["strict_schema"])}

    def on_json_or_python(self, node: Node) -> Node:
        # What Python sees may be any class; JSON is what counts.
        return {**node, "json_schema": self.visit(node["json_schema"])}

    def on_dict(self, node: Node) -> Node:
        made = self.parts(node)
        key = made.get("keys_schema")
        if key is not None and not self._is_key(key):
            raise UnusableType(
                f"a dict has keys of type {key['type']}, which cannot be names in a JSON object",
                "Use str keys, or a list of objects.",
            )
        return made

    def _is_key(self, node: Node) -> bool:
        kind = node["type"]
        if kind in _KEY_TYPES:
            return True
        if kind == "union":
            return all(self._is_key(arm(item)) for item in node["choices"])
        if kind == "chain":
            return self._is_key(node["steps"][0])
        inner = node.get("schema") or node.get("json_schema") or node.get("strict_schema")
        if kind == "definition-ref":
            inner = self.definitions.get(node["schema_ref"])
        return kind == "function-plain" or (is_dict(inner) and bool(inner) and self._is_key(inner))

    def visit(self, node: Node) -> Node:
        refused = _NO_JSON.get(node["type"])
        if refused is not None:
            raise UnusableType(f"JSON cannot carry {refused}", "Use types that JSON has.")
        return super().visit(node)


def arm(choice: Any) -> Node:
    """A choice of a union without its label."""
    chosen: Node = choice[0] if is_tuple(choice) else choice
    return chosen


def whole(root: Node, definitions: Iterable[Node]) -> CoreSchema:
    """A root with what its references refer to."""
    # The one place where a node counts as one of pydantic's TypedDicts again.
    found = list(definitions)
    schema = {"type": "definitions", "schema": root, "definitions": found} if found else root
    return cast(CoreSchema, schema)


def object_of(fields: Mapping[str, Node]) -> Node:
    """A closed object with these fields."""
    return {"type": "typed-dict", "fields": dict(fields), "extra_behavior": "forbid"}


def says_extra(node: Node) -> bool:
    """True when the author of an object type said what to do with unknown fields."""
    config: Mapping[str, Any] = node.get("config") or {}
    if config.get("extra_fields_behavior") is not None or node.get("extras_schema") is not None:
        return True
    if node.get("type") != "typed-dict":
        return False
    # pydantic writes its own default into every typed-dict, so only the class can tell.
    behaviour = node.get("extra_behavior")
    return behaviour not in (None, "ignore") or "extra" in (getattr(node.get("cls"), "__pydantic_config__", None) or {})


def _typed_dict(annotations: Mapping[str, Any]) -> Node:
    normal = {name: normalise(annotation) for name, annotation in annotations.items()}
    make: Any = typing_extensions.TypedDict  # with fields known only now, which no type checker follows
    holder = make("Arguments", normal)
    # Lets Structs through as is-instance nodes, which `_Expander` fills in; whatever else comes through is refused there.
    holder.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on metadata that the engine reads itself
            schema: Any = TypeAdapter(holder).core_schema
    except PydanticUndefinedAnnotation as problem:
        raise _undefined(str(problem.name)) from None
    except (PydanticSchemaGenerationError, PydanticUserError, SchemaError) as problem:
        lines = str(problem).split("\n")
        # Of a validator that could not be built, the last line says why, such as a pattern that its engine does not know.
        text = lines[-1 if isinstance(problem, SchemaError) else 0].strip().removeprefix("error: ").rstrip(".")
        if getattr(problem, "code", None) == "class-not-fully-defined":
            raise UnresolvedType(text, "Define what it names at the level of its module.") from None
        raise UnusableType(f"a type has no schema: {text}", "Use types that JSON has.") from None
    return _without_holder(schema)


def _undefined(name: str) -> UnresolvedType:
    return UnresolvedType(f"'{name}' is not defined", "Define it at the level of a module; import it at run time.")


def _without_holder(schema: Node) -> Node:
    """The schema without what only the made-up TypedDict brought in."""
    if schema["type"] == "definitions":
        return {**schema, "schema": _without_holder(schema["schema"])}
    return {key: value for key, value in schema.items() if key not in ("cls", "config", "ref", "extra_behavior")}


__all__ = [
    "Node",
    "Rewriter",
    "Types",
    "TypesRewriter",
    "UnusableType",
    "arm",
    "object_of",
    "parts_of",
    "says_extra",
    "types_of",
    "whole",
]
