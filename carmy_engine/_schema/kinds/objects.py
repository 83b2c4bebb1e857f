"""Models, dataclasses, TypedDicts and Structs: objects with named fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from pydantic_core import core_schema

from ..._model.type_guards import is_dict, is_list
from .. import docstrings
from ..annotations import UnusableType
from ..kind import PLAIN, Ask, Errors, Kind, Proof, Steps, Walk, certain, uncertain
from ..nodes import Node, extra_of, without
from ..plain_values import plain
from ..structs import class_of

_OBJECT: Errors = dict.fromkeys(
    ("model_type", "model_attributes_type", "dataclass_type", "dataclass_exact_type", "arguments_type"),
    ("wrong_type", "must be an object"),
) | {"missing": ("missing", "is missing"), "recursion_loop": ("invalid", "contains itself")}


class Field(Kind):
    """One field of an object."""

    is_finite = True


class Fields(Kind):
    """The fields of an object, with their names in JSON."""

    word = "an object"
    is_finite = True

    def expand(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        fields: Any = made["fields"]
        if is_dict(fields):
            made["fields"] = {name: _named(walk.config, name, field) for name, field in fields.items()}
        else:
            made["fields"] = [_named(walk.config, field["name"], field) for field in fields]
        if walk.config.get("serialize_by_alias") is False:
            made["computed_fields"] = [without(field, "alias") for field in made.get("computed_fields", ())]
        return made

    def check(self, walk: Walk, node: Node) -> Node:
        fields = {
            written_name(name, field): {
                "type": "typed-dict-field",
                "schema": walk.visit(_written_type(field)),
                "required": _is_always_written(field),
            }
            for name, field in named_fields(node)
            if not (field.get("serialization_exclude") or field.get("init_only"))
        }
        for field in node.get("computed_fields") or ():
            fields[field.get("alias", field["property_name"])] = {
                "type": "typed-dict-field",
                "schema": walk.visit(field["return_schema"]),
                "required": field.get("serialization_exclude_if") is None,
            }
        made: Node = {"type": "typed-dict", "fields": fields, "extra_behavior": "ignore"}
        if walk.config.get("extra_fields_behavior") == "allow" and "extras_schema" in node:
            made |= {"extra_behavior": "allow", "extras_schema": walk.visit(node["extras_schema"])}
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        proofs: list[tuple[str, Proof]] = []
        for name, field in named_fields(node):
            inner = walk.proof(_written_type(field))
            if inner is uncertain:
                return uncertain
            if inner is not certain:
                proofs.append((name, inner))
        if any(walk.proof(field["return_schema"]) is not certain for field in node.get("computed_fields") or ()):
            return uncertain
        if not proofs:
            return certain

        def fits(value: Any) -> bool:
            values: Node = value if is_dict(value) else value.__dict__
            for name, inner in proofs:  # noqa: SIM110 - see `Kind.proof_of_all`
                if name in values and not inner(values[name]):
                    return False
            return True

        return fits


class ModelFields(Fields):
    steps: ClassVar[Steps] = "fields"


def named_fields(node: Node) -> Iterable[tuple[str, Node]]:
    """The fields of an object by their Python names."""
    fields: Any = node["fields"]
    return fields.items() if is_dict(fields) else [(field["name"], field) for field in fields]


def names_taken(name: str, field: Node) -> list[str]:
    """The names in JSON under which a field is taken, after `Fields.expand`."""
    alias: Any = field.get("validation_alias", name)
    return [alias] if isinstance(alias, str) else [path[0] for path in alias]


def written_name(name: str, field: Node) -> str:
    """The name in JSON under which a field is written, after `Fields.expand`."""
    found: str = field.get("serialization_alias", name)
    return found


def _named(config: Mapping[str, Any], name: str, field: Node) -> Node:
    """The field with its names in JSON, which no longer depend on the configuration around it."""
    alias: Any = field.get("validation_alias")
    names: list[str] = []
    if alias is not None and config.get("validate_by_alias") is not False:
        paths: list[Any] = [alias] if isinstance(alias, str) or not is_list(alias[0]) else alias
        for path in paths:
            if isinstance(path, str) or (len(path) == 1 and isinstance(path[0], str)):
                names.append(path if isinstance(path, str) else path[0])
            else:
                raise UnusableType(
                    f"the field '{name}' takes its value from inside another one, which a schema cannot say",
                    "Give it a plain alias, or take the value apart in a validator with mode='before' of its class.",
                )
    if alias is None or config.get("validate_by_name"):
        names.append(name)
    names = list(dict.fromkeys(names))
    made = without(field, "validation_alias")
    if names != [name]:
        made["validation_alias"] = names[0] if len(names) == 1 else [[one] for one in names]
    return without(made, "serialization_alias") if config.get("serialize_by_alias") is False else made


def _written_type(field: Node) -> Node:
    inner: Node = field["schema"]
    return {**inner, "serialization": field["serialization"]} if "serialization" in field else inner


def _is_always_written(field: Node) -> bool:
    if field.get("serialization_exclude_if") is not None:
        return False
    required = field.get("required")
    return field["schema"]["type"] != "default" if required is None else bool(required)


class Object(Kind):
    """A class with fields."""

    word = "an object"
    is_finite = True
    errors: ClassVar[Errors] = _OBJECT

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return False

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return extra_of(node) == "allow" or super().may_be_infinite(walk, node)

    def inside(self, walk: Walk, node: Node, rewrite: Callable[[], Node]) -> Node:
        """`rewrite`, for what is inside this object."""
        before = walk.config, walk.is_marked
        walk.config = node.get("config") or {}
        walk.is_marked = walk.config.get("strict") is True
        try:
            return rewrite()
        finally:
            walk.config, walk.is_marked = before

    def expand(self, walk: Walk, node: Node) -> Node:
        made = self.inside(walk, node, lambda: self.expand_parts(walk, node))
        if "config" in made:
            made["config"] = without(made["config"], "validate_by_alias", "validate_by_name", "serialize_by_alias")
        return made

    def expand_parts(self, walk: Walk, node: Node) -> Node:
        """The node with its parts expanded."""
        return walk.parts(node)

    def accept(self, walk: Walk, node: Node) -> Node:
        made = self.inside(walk, node, lambda: walk.parts(node))
        return made if extra_of(node) is not None else closed(made)

    def check(self, walk: Walk, node: Node) -> Node:
        return self.inside(walk, node, lambda: walk.visit(node["schema"]))

    def convert(self, walk: Walk, node: Node) -> Node:
        return {**self.inside(walk, node, lambda: walk.parts(node)), "strict": False}

    def write(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        config: Node = made.get("config") or {}
        made["config"] = {
            **without(config, "polymorphic_serialization"),
            "ser_json_inf_nan": "constants",
            "serialize_by_alias": True,
        }
        if config.get("polymorphic_serialization") and "serialization" not in made:
            made["serialization"] = core_schema.wrap_serializer_function_ser_schema(
                functools.partial(_polymorphic, made["cls"])
            )
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        cls = node["cls"]
        config: Any = node.get("config") or {}
        own: Any = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
        is_titled = own.get("title") is not None or own.get("model_title_generator") is not None
        made = docstrings.described(proceed(node), cls, is_titled=is_titled)
        if generator.mode == "validation" and is_list(made.get("examples")):
            generator.try_examples(node, made["examples"])
        if not node.get("root_model"):
            _close(generator, made, config.get("extra_fields_behavior"))
        return made


class Dataclass(Object):
    def proof(self, walk: Walk, node: Node) -> Proof:
        config: Node = node.get("config") or {}
        if config.get("polymorphic_serialization"):
            return uncertain
        inner = walk.proof(node["schema"])
        if inner is certain or inner is uncertain:
            return inner
        names = node["fields"]

        def fits(value: Any) -> bool:
            values = {name: getattr(value, name) for name in names}
            return inner(values)

        return fits


class Model(Object):
    steps: ClassVar[Steps] = "model"

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return bool(node.get("root_model")) and walk.takes_null(node["schema"])

    def accept(self, walk: Walk, node: Node) -> Node:
        if node.get("custom_init"):
            # Its own __init__ would hand the data to a validator that does not have the engine's rules, so the data is
            # checked first, without the author's validators: those run when the model is made.
            before, walk.is_bare = walk.is_bare, True
            try:
                bare = {**self.accept(walk, {**node, "custom_init": False}), "root_model": False}
            finally:
                walk.is_bare = before
            bare.pop("post_init", None)
            function = {"type": "no-info", "function": _initialised(node["cls"])}
            return {"type": "function-after", "function": function, "schema": bare}
        if node.get("root_model"):
            return self.inside(walk, node, lambda: walk.parts(node))
        return super().accept(walk, node)

    def write(self, walk: Walk, node: Node) -> Node:
        made = super().write(walk, node)
        if extra_of(node) == "allow":
            made["schema"] = _with_plain_extras(made["schema"])
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        config: Node = node.get("config") or {}
        inner = walk.proof(node["schema"])
        is_plain = node["schema"]["type"] == "model-fields"
        if inner is uncertain or not is_plain or node.get("root_model"):
            return uncertain
        if config.get("polymorphic_serialization") or config.get("use_enum_values"):
            return uncertain
        # pydantic writes whatever has a __dict__, and leaves out what is not in there.
        cls, count = node["cls"], len(node["schema"]["fields"])
        if inner is certain:
            return lambda value: type(value) is cls and len(value.__dict__) == count
        return lambda value: type(value) is cls and len(value.__dict__) == count and inner(value)

    def proof_of_all(self, walk: Walk, node: Node) -> Proof:
        if self.proof(walk, node) is uncertain or walk.proof(node["schema"]) is not certain:
            return super().proof_of_all(walk, node)
        cls, count = node["cls"], len(node["schema"]["fields"])

        def all_fit(items: Any) -> bool:
            # What `proof` does, without a call for each item: it costs half.
            for item in items:  # noqa: SIM110
                if type(item) is not cls or len(item.__dict__) != count:
                    return False
            return True

        return all_fit


class Typed(Object):
    steps: ClassVar[Steps] = "typed_dict"

    def check(self, walk: Walk, node: Node) -> Node:
        return {**self.inside(walk, node, lambda: _FIELDS.check(walk, node)), **_extras(walk, node)}

    def convert(self, walk: Walk, node: Node) -> Node:
        made = self.inside(walk, node, lambda: walk.parts(node))
        return made if extra_of(node) is not None else closed(made)

    def expand_parts(self, walk: Walk, node: Node) -> Node:
        return _FIELDS.expand(walk, node)

    def write(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        made["config"] = {**(made.get("config") or {}), "ser_json_inf_nan": "constants", "serialize_by_alias": True}
        if extra_of(node) != "ignore":
            # Written, so that they are seen: pydantic would leave out what the type does not name.
            made = {**_with_plain_extras(made), "extra_behavior": "allow"}
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        inner = _FIELDS.proof(walk, node)
        if inner is uncertain or extra_of(node) is not None:
            return uncertain
        total = node.get("total", True)
        names = frozenset(name for name, field in named_fields(node) if field.get("required", total))
        known = frozenset(node["fields"])
        return lambda value: type(value) is dict and names <= value.keys() <= known and inner(value)

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        cls = class_of(dict(node))
        own: Any = getattr(cls, "__pydantic_config__", None) or {}
        made = docstrings.described(proceed(node), cls, is_titled="title" in own)
        return _close(generator, made, extra_of(dict(node)))


def _extras(walk: Walk, node: Node) -> Node:
    if extra_of(node) == "allow":
        return {"extra_behavior": "allow"}
    return {"extra_behavior": "ignore" if extra_of(node) == "ignore" else "forbid"}


_FIELDS = Fields()


def closed(node: Node) -> Node:
    """The node of an object type with unknown fields forbidden."""
    config: Node = node.get("config") or {}
    made: Node = {**node, "config": {**config, "extra_fields_behavior": "forbid"}}
    if node["type"] == "typed-dict":
        made["extra_behavior"] = "forbid"
    return made


def _initialised(cls: Any) -> Callable[[Any], Any]:
    """From a model made without its own ``__init__`` to one made with it."""
    fields = cls.__pydantic_fields__
    config = cls.model_config
    by_name = config.get("validate_by_name") or config.get("populate_by_name")

    def name_of(name: str) -> str:
        alias = fields[name].validation_alias
        if by_name or alias is None:
            return name
        found: str = alias if isinstance(alias, str) else alias.choices[0]
        return found

    def initialise(bare: Any) -> Any:
        given = {name: value for name, value in bare.__dict__.items() if name in bare.__pydantic_fields_set__}
        named = {name_of(name): value for name, value in given.items()}
        return cls(**named, **(bare.__pydantic_extra__ or {}))

    return initialise


def _with_plain_extras(node: Node) -> Node:
    """The same fields, and whatever comes beside them written as what Any is."""
    if node["type"].startswith("function-") and "schema" in node:
        return {**node, "schema": _with_plain_extras(node["schema"])}
    if node["type"] not in ("model-fields", "typed-dict"):
        return node
    return {"extras_schema": {"type": "any", "serialization": PLAIN}, **node}


def _polymorphic(cls: type, value: Any, handler: Callable[[Any], Any]) -> Any:
    """An object of a class that inherits from `cls` as its own class writes it."""
    return plain(value) if isinstance(value, cls) and type(value) is not cls else handler(value)


def _close(generator: Any, made: Node, extra: str | None) -> Node:
    if generator.mode == "validation" and extra is None and "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made
