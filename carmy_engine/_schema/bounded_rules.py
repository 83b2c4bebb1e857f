"""Core schemas rewritten for long arguments: from what validates them in one step to what validates them in many.

pydantic-core validates a document in one call, which holds the interpreter from the first value to the last and collects
every problem before it raises. The rewritten schema calls a function of this module for each value of an object and each
batch of a list. Another thread can run at each of these calls, and a check that became too long stops there.

What the engine would refuse as a whole may still be accepted as one arm of a union. So problems are counted, and skipped
beyond the bound, only where one of them refuses the whole document; elsewhere each container stops at its first problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic_core import CoreConfig, SchemaValidator, core_schema

from .._model.type_guards import is_list, is_tuple
from .checkpoints import (
    SKIP,
    WANTED,
    Collector,
    count_attempt,
    count_failure,
    count_unknown,
    step,
    step_key,
    without_extras,
)
from .labels import NULL
from .nodes import Node, Types, parts_of, rebuilt, whole, without
from .table import TABLE


def _or_none(node: Node) -> Node:
    return {"type": "default", "schema": node, "default": None, "on_error": "default"}


_NOTHING = _or_none({"type": "none"})
"""Takes everything, and makes None of it."""


def _calls(function: Callable[[object], object]) -> Node:
    """A node that calls a function in place of looking at the value, which would have to be made in Python first."""
    return {"type": "chain", "steps": [_NOTHING, core_schema.no_info_plain_validator_function(function)]}


def _after(function: Callable[[Any], Any], node: Node) -> Node:
    return {"type": "function-after", "function": {"type": "no-info", "function": function}, "schema": node}


def _if_any(node: Node) -> Node:
    """The node. Where it fails, the error holds no copy of the value, as pydantic's own do of JSON."""
    return {"type": "chain", "steps": [_or_none(node), core_schema.no_info_plain_validator_function(_not_none)]}


def _not_none(value: Any) -> Any:
    if value is None:
        raise ValueError("none")
    return value


_TEXT = _if_any({"type": "str"})
_OBJECT = _if_any({"type": "dict", "values_schema": _NOTHING})


def _counted(node: Node) -> Node:
    """The node, or nothing once enough values were wrong."""
    choices = [(node, WANTED), (_calls(count_failure), SKIP)]
    return {"type": "union", "mode": "left_to_right", "choices": choices}


def _is_light(node: Node) -> bool:
    return TABLE[node["type"]].is_light(node, _is_light)


def _may_be_text(node: Node) -> bool:
    """True for what may accept a string, as the characters of a string and the names of an object are."""
    return TABLE[node["type"]].may_be_text(node, _may_be_text)


def _is_choice(node: Node) -> bool:
    """True for a union whose arms are tried one after the other until one fits."""
    if node["type"] != "union" or len(node["choices"]) == 1 or _is_light(node):
        return False
    # The two ways of a field with a default are no choice: null is only one of them.
    last = node["choices"][-1]
    return not (
        is_tuple(last) and last[1] == NULL and last[0]["type"] == "chain" and last[0]["steps"][0]["type"] == "none"
    )


def _most_arms(node: Node) -> int:
    """The arms of the widest union in there."""
    return max([len(node["choices"]) if _is_choice(node) else 0, *map(_most_arms, parts_of(node))])


def _references(node: Node) -> Iterator[str]:
    if node["type"] == "definition-ref":
        yield node["schema_ref"]
    for part in parts_of(node):
        yield from _references(part)


def _recursive(types: Types) -> frozenset[str]:
    """The definitions that contain themselves."""
    direct = {ref: set(_references(node)) for ref, node in types.definitions.items()}
    found: set[str] = set()
    for ref, references in direct.items():
        seen: set[str] = set()
        ahead = list(references)
        while ahead:
            one = ahead.pop()
            if one not in seen:
                seen.add(one)
                ahead += direct.get(one, ())
        if ref in seen:
            found.add(ref)
    return frozenset(found)


class Counted:
    """Rewrites core schemas so that the attempts of recursive unions are counted."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._recursive = _recursive(types)
        self._in_recursion = False
        self.recursive_arms = max((_most_arms(types.definitions[ref]) for ref in self._recursive), default=0)
        """Of the widest union in types that contain themselves; 0 without any."""

    def rewritten(self, root: Node) -> tuple[Node, dict[str, Node]]:
        """The root and the definitions."""
        made = self.visit(root)
        definitions: dict[str, Node] = {}
        for ref, node in self._types.definitions.items():
            self._in_recursion = ref in self._recursive
            definitions[ref] = {**self.visit(node), "ref": ref}
        self._in_recursion = False
        return made, definitions

    def validator(self, root: Node, changed: Callable[[Node], Node] | None = None) -> Callable[[bytes], Any]:
        """The validator of JSON bytes; `changed` is applied to the rewritten root."""
        made, definitions = self.rewritten(root)
        return SchemaValidator(
            whole(made if changed is None else changed(made), definitions.values()),
            CoreConfig(strict=True),
            _use_prebuilt=False,
        ).validate_json

    def visit(self, node: Node) -> Node:
        """The node rewritten; the one given is never changed."""
        rule: Callable[[Node], Node] = getattr(self, TABLE[node["type"]].steps, self.parts)
        return without(rule(node), "ref")  # of use in definitions only

    def parts(self, node: Node) -> Node:
        """A copy of the node with its parts rewritten."""
        return rebuilt(node, self.visit)

    def union(self, node: Node) -> Node:
        made = self.parts(node)
        if self._in_recursion and _is_choice(node):
            made["choices"] = [(_calls(count_attempt), NULL), *made["choices"]]
        return made


class Bounded(Counted):
    """From what validates arguments in one step to what validates them in many."""

    def __init__(self, types: Types) -> None:
        super().__init__(types)
        self._forgiven = False
        """A failure here need not be one of the whole document: another arm of a union may fit."""
        self._forgiven_definitions: set[str] = set()
        self._forbids = False
        """The model around refuses fields that it does not have."""

    def rewritten(self, root: Node) -> tuple[Node, dict[str, Node]]:
        while True:
            before = len(self._forgiven_definitions)
            found = super().rewritten(root)
            if len(self._forgiven_definitions) == before:
                return found

    def visit(self, node: Node) -> Node:
        """Rewrite a node, as it is at this place."""
        if node.get("ref") in self._types.definitions and node is self._types.definitions[node["ref"]]:
            with self._forgiving(node["ref"] in self._forgiven_definitions):
                return super().visit(node)
        return super().visit(node)

    @contextmanager
    def _forgiving(self, forgiven: bool = True) -> Iterator[None]:
        before, self._forgiven = self._forgiven, forgiven
        try:
            yield
        finally:
            self._forgiven = before

    def reference(self, node: Node) -> Node:
        if self._forgiven:
            self._forgiven_definitions.add(node["schema_ref"])
        return node

    # --- what may forgive

    def union(self, node: Node) -> Node:
        with self._forgiving(self._forgiven or _is_choice(node)):
            return super().union(node)

    def chain(self, node: Node) -> Node:
        first, *others = node["steps"]
        made = {**node, "steps": [self.visit(first)]}
        with self._forgiving():  # these see what Python has made of the JSON
            made["steps"] += map(self.visit, others)
        return made

    def author(self, node: Node) -> Node:
        with self._forgiving():
            return self.parts(node)

    def default(self, node: Node) -> Node:
        with self._forgiving(self._forgiven or node.get("on_error", "raise") != "raise"):
            return self.parts(node)

    # --- containers

    def fail_fast(self, node: Node) -> Node:
        made: Node = {**self.parts(node), "fail_fast": True}
        items: object = made.get("items_schema")
        if is_list(items):
            at = made.get("variadic_item_index")
            if at is None:
                return made
            made["items_schema"] = [_after(step, item) if i == at else item for i, item in enumerate(items)]
        elif items is not None and not _is_light(node["items_schema"]):
            made["items_schema"] = _after(step, made["items_schema"])
        if "values_schema" in made:
            made["values_schema"] = _after(step, made["values_schema"])
        return made

    def items(self, node: Node) -> Node:
        items: Any = node.get("items_schema")
        if self._forgiven or items is None or node.get("fail_fast"):
            return self.fail_fast(node)
        if is_list(items):
            if len(items) != 1 or node.get("variadic_item_index") != 0:
                return self.fail_fast(node)
            (items,) = node["items_schema"]
        lazy = {"type": "generator", "items_schema": self.visit(items)}
        takes_text = _may_be_text(items)
        collector = Collector(node, is_light=_is_light(items), takes_text=takes_text)
        wanted = (_after(collector, lazy), WANTED)
        # To find that a list is no string takes a copy of it, so lists that cannot be strings are read first.
        others = [(_TEXT, SKIP), (_OBJECT, SKIP)]
        empty = ({**node, "min_length": 0, "max_length": 0, "fail_fast": True}, SKIP)
        choices = [*others, wanted] if takes_text else [wanted, *others, empty]
        return _after(collector.checked, {"type": "union", "mode": "left_to_right", "choices": choices})

    def names(self, node: Node) -> Node:
        made = self.fail_fast(node)
        keys = made.get("keys_schema")
        if keys is not None and keys["type"] != "str":
            made["keys_schema"] = _after(step_key, keys)
        if not self._forgiven:
            made["fail_fast"] = False
            for part in ("keys_schema", "values_schema"):
                if part in made:
                    made[part] = _counted(made[part])
        return made

    # --- objects

    def typed_dict(self, node: Node) -> Node:
        made = self.parts(node)
        return made if self._forgiven or made.get("extra_behavior") != "forbid" else _closed(made)

    def model(self, node: Node) -> Node:
        config: Node = node.get("config") or {}
        before, self._forbids = self._forbids, config.get("extra_fields_behavior") == "forbid"
        try:
            return self.parts(node)
        finally:
            self._forbids = before

    def fields(self, node: Node) -> Node:
        forbids = node.get("extra_behavior", "forbid" if self._forbids else "ignore") == "forbid"
        made = self.parts(node)
        return made if self._forgiven or not forbids else _after(without_extras, _closed(made))


def _closed(node: Node) -> Node:
    """The same fields; of others, as many as are reported."""
    return {**node, "extra_behavior": "allow", "extras_schema": _calls(count_unknown)}
