"""Unions, tagged and plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..annotations import UnusableType
from ..kind import Ask, Errors, Kind, Proof, Steps, Walk, certain, uncertain
from ..labels import ARM, TAG
from ..nodes import Node, arms_of, parts_of, without
from ..plain_values import plain
from ..structs import is_struct, struct_of
from .choices import raw_of


class Union(Kind):
    steps: ClassVar[Steps] = "union"
    is_finite = True

    def is_light(self, node: Node, ask: Ask) -> bool:
        return all(map(ask, parts_of(node)))

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return any(map(ask, arms_of(node)))

    def noun(self, walk: Walk, node: Node) -> str:
        return "a valid value"

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return any(map(walk.takes_null, arms_of(node)))

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        return all(map(walk.can_be_name, arms_of(node)))

    def expand(self, walk: Walk, node: Node) -> Node:
        structs = [
            choice["cls"] for choice in arms_of(node) if choice["type"] == "is-instance" and is_struct(choice["cls"])
        ]
        if len(structs) < len(node["choices"]):
            return walk.parts(node)
        fields = {struct.__struct_config__.tag_field for struct in structs}
        if len(fields) != 1 or None in fields:
            names = ", ".join(struct.__qualname__ for struct in structs)
            raise UnusableType(
                f"the Structs {names} cannot be distinguished", "Give each a tag: 'class A(Struct, tag=True)'."
            )
        tags = {
            struct.__struct_config__.tag: walk.visit(choice)
            for struct, choice in zip(structs, arms_of(node), strict=True)
        }
        return {"type": "tagged-union", "discriminator": fields.pop(), "choices": tags}

    def accept(self, walk: Walk, node: Node) -> Node:
        return {**node, "choices": _labelled(walk, arms_of(node))}

    convert = accept

    def proof(self, walk: Walk, node: Node) -> Proof:
        return certain if all(walk.proof(choice) is certain for choice in arms_of(node)) else uncertain

    def publish_name(self, generator: Any, node: Any) -> Node:
        names = [generator.name_schema(choice) for choice in arms_of(node)]
        return {"anyOf": names} if all(names) else {}


def _labelled(walk: Walk, choices: list[Node]) -> list[Any]:
    """The arms of a union, each with a label that separates it from names in the locations of errors."""
    return [(walk.visit(choice), f"{ARM}{index}:{walk.noun(choice)}") for index, choice in enumerate(choices)]


class Tagged(Kind):
    word = "an object"
    is_finite = True
    errors: ClassVar[Errors] = {
        "union_tag_not_found": ("missing", "is missing"),
        "union_tag_invalid": ("not_allowed", "must be one of {expected_tags}"),
    }

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return any(map(walk.takes_null, arms_of(node)))

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        return False

    def by_json(self, node: Node) -> Node:
        """The node with its tags as JSON has them: the values of members."""
        if callable(node["discriminator"]):
            return node
        return {**node, "choices": {plain(raw_of(tag)): choice for tag, choice in node["choices"].items()}}

    def by_both(self, node: Node) -> Node:
        """The node with its tags as JSON has them, and as Python has them."""
        return {**node, "choices": {**node["choices"], **self.by_json(node)["choices"]}}

    def accept(self, walk: Walk, node: Node) -> Node:
        return self._marked(walk, self.by_both(node) if walk.is_behind else self.by_json(node))

    def _marked(self, walk: Walk, node: Node) -> Node:
        made = without(walk.parts(node), "custom_error_type", "custom_error_message", "custom_error_context")
        made["choices"] = {
            tag: {"type": "union", "choices": [(choice, TAG)], "auto_collapse": False}
            for tag, choice in made["choices"].items()
        }
        return made

    def check(self, walk: Walk, node: Node) -> Node:
        return {"type": "union", "choices": _labelled(walk, arms_of(node))}

    def convert(self, walk: Walk, node: Node) -> Node:
        return _plain_union(walk, node) if self._has_structs(walk, node) else self._marked(walk, self.by_both(node))

    def write(self, walk: Walk, node: Node) -> Node:
        if self._has_structs(walk, node):
            # A Struct has its tag in its class, not in a field.
            return {"type": "union", "choices": list(map(walk.visit, arms_of(node)))}
        return walk.parts(self.by_both(node))

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain

    def _has_structs(self, walk: Walk, node: Node) -> bool:
        return any(struct_of(walk.types.resolve(choice)) is not None for choice in arms_of(node))

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        made = proceed(self.by_json(node))
        # A keyword of OpenAPI; the tag is a constant in each arm.
        made.pop("discriminator", None)
        if callable(node["discriminator"]) and "oneOf" in made:
            made["anyOf"] = made.pop("oneOf")  # the function decides, and more than one arm may fit
        choices: Node = dict(node["choices"])
        if any(struct_of(generator.types.resolve(choice)) is not None for choice in choices.values()):
            # A tag is optional in a Struct on its own.
            made = {"type": "object", "required": [node["discriminator"]], **made}
        return made


def _plain_union(walk: Walk, node: Node) -> Node:
    return {"type": "union", "choices": _labelled(walk, arms_of(node))}
