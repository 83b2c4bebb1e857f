"""Nodes round other nodes: defaults, null, chains, references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic_core import PydanticUseDefault, core_schema

from ..._model.type_guards import is_dict
from ..expander import Expander
from ..kind import Ask, Kind, Proof, Steps, Walk, certain, uncertain
from ..labels import NULL, VALUE
from ..nodes import Node, parts_of


class Transparent(Kind):
    """A node that is what it holds."""

    is_finite = True

    def proof(self, walk: Walk, node: Node) -> Proof:
        return walk.proof(node["schema"]) if is_dict(node.get("schema")) else uncertain


class Definitions(Transparent):
    """A node with what its references refer to."""

    def expand(self, walk: Walk, node: Node) -> Node:
        assert isinstance(walk, Expander)
        for definition in node["definitions"]:
            walk.define(definition)
        return walk.visit(node["schema"])


class Reference(Transparent):
    steps: ClassVar[Steps] = "reference"

    def expand(self, walk: Walk, node: Node) -> Node:
        return node

    def accept(self, walk: Walk, node: Node) -> Node:
        return node

    convert = write = accept

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return False  # definitions are looked at one by one

    def proof(self, walk: Walk, node: Node) -> Proof:
        return walk.proof_of(node["schema_ref"])

    def publish_name(self, generator: Any, node: Any) -> Node:
        found: Node = generator.name_schema(generator.types.resolve(node))
        return found


class Named(Transparent):
    """A node with an error of its own."""

    def is_light(self, node: Node, ask: Ask) -> bool:
        return all(map(ask, parts_of(node)))


class Nullable(Transparent):
    def is_light(self, node: Node, ask: Ask) -> bool:
        return all(map(ask, parts_of(node)))

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return True

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        return False

    def proof(self, walk: Walk, node: Node) -> Proof:
        inner = walk.proof(node["schema"])
        if inner is certain or inner is uncertain:
            return inner
        return lambda value: value is None or inner(value)


class Default(Transparent):
    steps: ClassVar[Steps] = "default"

    def accept(self, walk: Walk, node: Node) -> Node:
        made = walk.parts(node)
        if walk.takes_null(node["schema"]):
            return made
        # Null means omitted. The labels separate the two ways when both fail.
        null = core_schema.chain_schema(
            [core_schema.none_schema(), core_schema.no_info_plain_validator_function(_use_default)]
        )
        made["schema"] = {"type": "union", "mode": "left_to_right", "choices": [(made["schema"], VALUE), (null, NULL)]}
        return made

    def check(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node["schema"])

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        inner: Any = node["schema"]
        made: Node = generator.generate_inner(inner)
        if "default" in node:
            shown = generator.default_of(node)
            if shown is not None:
                made = {**made, "default": shown[0]}
        return made


def _use_default(_: Any) -> Any:
    raise PydanticUseDefault


class Chain(Transparent):
    steps: ClassVar[Steps] = "chain"

    def is_light(self, node: Node, ask: Ask) -> bool:
        return all(map(ask, parts_of(node)))

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        return ask(node["steps"][0])

    def proof(self, walk: Walk, node: Node) -> Proof:
        return uncertain


class LaxOrStrict(Transparent):
    def expand(self, walk: Walk, node: Node) -> Node:
        return {**node, "strict_schema": walk.visit(node["strict_schema"])}

    def accept(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node["strict_schema"])

    convert = accept

    def write(self, walk: Walk, node: Node) -> Node:
        return {**node, "strict_schema": walk.visit(node["strict_schema"])}

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return True


class JsonOrPython(Transparent):
    """What Python sees may be any class; JSON is what counts."""

    def expand(self, walk: Walk, node: Node) -> Node:
        return {**node, "json_schema": walk.visit(node["json_schema"])}

    def accept(self, walk: Walk, node: Node) -> Node:
        return walk.visit(node["json_schema"])

    def convert(self, walk: Walk, node: Node) -> Node:
        found: Node = node["python_schema"]
        return found

    def write(self, walk: Walk, node: Node) -> Node:
        return {**node, "json_schema": walk.visit(node["json_schema"])}

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return True
