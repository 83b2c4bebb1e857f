"""Lists, sets, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic_core import core_schema

from ..annotations import UnusableType
from ..kind import PLAIN, PLAIN_NAME, Ask, Errors, Kind, Proof, Steps, Walk, certain, uncertain
from ..labels import first_of
from ..nodes import Node, without

_LENGTHS: Errors = {
    "too_short": ("too_short", "must have at least {min_length} items"),
    "too_long": ("too_long", "must have at most {max_length} items"),
}


class Container(Kind):
    """A type whose values hold others.

    Arguments are checked without pydantic's strictness: JSON has lists and objects only, and behind a validator of the
    author they are Python's.
    """

    is_finite = True

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return False

    def accept(self, walk: Walk, node: Node) -> Node:
        return {**walk.parts(node), "strict": False}

    def check(self, walk: Walk, node: Node) -> Node:
        # A million wrong items of an output are one problem: each would be an object of its own.
        return {**self.accept(walk, node), "fail_fast": True}

    def convert(self, walk: Walk, node: Node) -> Node:
        return {"strict": True, **walk.parts(node), "fail_fast": True}


class Items(Container):
    """Any number of items of one type."""

    steps: ClassVar[Steps] = "fail_fast"
    word = "a list"
    errors: ClassVar[Errors] = dict.fromkeys(
        ("list_type", "set_type", "frozen_set_type", "deque_type", "iterable_type"), ("wrong_type", "must be a list")
    ) | {
        "iteration_error": ("invalid", "is not valid"),
        "set_item_not_hashable": ("wrong_type", "must be a string, a number, true, false or null"),
        **_LENGTHS,
    }

    def write(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        made.setdefault("items_schema", {"type": "any", "serialization": PLAIN})
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        if "min_length" in node or "max_length" in node:
            return uncertain
        return walk.proof_of_all(node["items_schema"]) if "items_schema" in node else certain


class List(Items):
    steps: ClassVar[Steps] = "items"

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def convert(self, walk: Walk, node: Node) -> Node:
        return _from_other(super().convert(walk, node), tuple)


class Set(Items):
    steps: ClassVar[Steps] = "items"

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def accept(self, walk: Walk, node: Node) -> Node:
        # pydantic counts the members of a set; JSON Schema, and what was sent, the items of a list.
        return {**walk.parts(node), "strict": False}

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        made = proceed(node)
        # Items that are sent twice are one member: taken, and so allowed.
        return without(made, "uniqueItems") if generator.mode == "validation" else made


class Generator(Items):
    """An iterable: pydantic would check its items one by one while the tool runs; JSON arrives whole."""

    def expand(self, walk: Walk, node: Node) -> Node:
        return {**walk.parts(without(node, "serialization")), "type": "list"}


class Tuple(Container):
    steps: ClassVar[Steps] = "items"
    word = "a list"
    errors: ClassVar[Errors] = {"tuple_type": ("wrong_type", "must be a list"), **_LENGTHS}

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False

    def convert(self, walk: Walk, node: Node) -> Node:
        return _from_other(super().convert(walk, node), list)

    def proof(self, walk: Walk, node: Node) -> Proof:
        items: list[Node] = node["items_schema"]
        if "min_length" in node or "max_length" in node or any(walk.proof(item) is not certain for item in items):
            return uncertain
        if "variadic_item_index" in node:
            return certain if len(items) == 1 else uncertain
        count = len(items)
        return lambda value: len(value) == count


class NamedTuple(Container):
    word = "a list"
    errors: ClassVar[Errors] = {"named_tuple_type": ("wrong_type", "must be a list")}

    def accept(self, walk: Walk, node: Node) -> Node:
        # pydantic also takes an object, which the schema does not offer.
        return {
            "type": "chain",
            "steps": [core_schema.list_schema(strict=False), without(walk.parts(node), "strict")],
        }

    def check(self, walk: Walk, node: Node) -> Node:
        return self.accept(walk, node)

    def convert(self, walk: Walk, node: Node) -> Node:
        return walk.parts(node)

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain


def _from_other(made: Node, other: type) -> Node:
    converted = {"type": "chain", "steps": [core_schema.is_instance_schema(other), {**made, "strict": False}]}
    return first_of(made, converted)


class Table(Container):
    """A dict: names to values."""

    steps: ClassVar[Steps] = "fail_fast"
    word = "an object"
    errors: ClassVar[Errors] = {
        "dict_type": ("wrong_type", "must be an object"),
        "ordered_dict_type": ("wrong_type", "must be an object"),
        "counter_type": ("wrong_type", "must be an object"),
        "frozen_dict_type": ("wrong_type", "must be an object"),
        "mapping_type": ("wrong_type", "must be an object"),
        **_LENGTHS,
    }

    def expand(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        key = made.get("keys_schema")
        if key is not None and not walk.can_be_name(key):
            raise UnusableType(
                f"a dict has keys of type {key['type']}, which cannot be names in a JSON object",
                "Use str keys, or a list of objects.",
            )
        return made

    def accept(self, walk: Walk, node: Node) -> Node:
        made = {**walk.parts(node), "strict": False}
        if "keys_schema" in node:
            made["keys_schema"] = accept_name(walk, node["keys_schema"])
        return made

    def write(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        keys: Node = node.get("keys_schema") or {"type": "any"}
        if walk.types.resolve(keys)["type"] in ("any", "literal", "enum"):
            made["keys_schema"] = {"type": "any", "serialization": PLAIN_NAME}
        made.setdefault("values_schema", {"type": "any", "serialization": PLAIN})
        return made

    def proof(self, walk: Walk, node: Node) -> Proof:
        values: Node = node.get("values_schema") or {"type": "any"}
        keys: Node = node.get("keys_schema") or {"type": "any"}
        inner = walk.proof(values)
        if inner is uncertain or "min_length" in node or "max_length" in node or walk.proof(keys) is uncertain:
            return uncertain
        # Keys of one type have one name each; keys of several types may share a name.
        cls = str if walk.types.resolve(keys)["type"] in ("any", "union") else None

        def fits(value: Any) -> bool:
            if None in value or (cls is not None and not all(type(name) is cls for name in value)):
                return False
            return inner is certain or all(map(inner, value.values()))

        return fits

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        made = proceed(without(node, "keys_schema"))
        names: Node = generator.name_schema(node["keys_schema"]) if "keys_schema" in node else {}
        return {**made, "propertyNames": names} if names else made


class Dict(Table):
    steps: ClassVar[Steps] = "names"

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return False


def accept_name(walk: Walk, node: Node) -> Node:
    """The validator of the names in an object, for the type of a dict's keys."""
    resolved = walk.types.resolve(node)
    if walk.aspect == "check" and "serialization" in resolved:
        return {"type": "str"}
    return without(walk.row(resolved).accept_name(walk, resolved), "ref", "serialization")
