"""A schema, with its references resolved, as nodes for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._model.type_guards import is_dict
from . import applicators
from .assertions import ASSERTIONS
from .evaluation import Applicator, Assertion, Failure, Node, run
from .keywords import ANNOTATIONS, NAMING
from .patterns import UnusablePattern, searcher
from .references import References, SchemaFault


class Validator:
    """A compiled schema.

    Args:
        schema: JSON Schema 2020-12 as a JSON value: an object, true or false. ``format`` is an annotation, which is the default of the
            standard. References must lead to a place inside `schema`: nothing is fetched.

    Raises:
        SchemaFault: It cannot be used.
        RecursionError: It is nested too deeply.
    """

    def __init__(self, schema: Any) -> None:
        self._root = _Compiler(schema).root

    @property
    def accepts_all(self) -> bool:
        """True for a schema without a keyword that decides anything."""
        return self._root.is_leaf and not self._root.assertions

    def failures(self, value: Any, pulse: Callable[[], None] | None = None) -> Iterator[Failure]:
        """Evaluate a JSON value as a decoder returns it, and yield each failure when it is found; none means that it fits.

        Args:
            value: The value.
            pulse: Called about every millisecond; may raise to end the evaluation.
        """
        return run(self._root, value, pulse)

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits."""
        return next(self.failures(value), None) is None


class _Compiler:
    def __init__(self, schema: Any) -> None:
        self._references = References(schema)
        self._nodes: dict[int, Node] = {}
        self._pending: list[tuple[Node, Mapping[str, Any]]] = []
        self._same: dict[int, list[Node]] = {}
        """The nodes that a node applies to the same value."""
        self._parts: dict[int, list[Node]] = {}
        """The nodes that a node applies to parts of its value."""
        self._referred_to: set[int] = set()
        """The schemas that references lead to, by identity."""
        self._always = Node("", is_leaf=True)
        self._never = Node("", [], [(None, applicators.never)])
        self.root = self._node(schema)
        while self._pending:
            self._fill(*self._pending.pop())
        self._refuse_circles()
        for schema_id in self._referred_to & self._nodes.keys():
            # Every way back to a node leads through a reference.
            node = self._nodes[schema_id]
            node.is_recursive = node in self._reachable(node)
        for node in self._nodes.values():
            if node.leftovers:
                node.names = tuple(dict.fromkeys(name for part in self._alike_all(node) for name in part.names))

    # Compiling

    def _node(self, schema: Any) -> Node:
        if isinstance(schema, bool):
            return self._always if schema else self._never
        schema = self._followed(schema)
        node = self._nodes.get(id(schema))
        if node is None:
            node = self._nodes[id(schema)] = Node(self._references.base_of(schema))
            self._same[id(node)], self._parts[id(node)] = [], []
            node.is_leaf = not any(keyword in schema for keyword in _APPLYING)
            if node.is_leaf:
                self._assert(node, schema)
            else:
                self._pending.append((node, schema))
        return node

    def _followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        """What a schema that is nothing but a reference leads to, within one resource: an evaluation saves a step."""
        passed: set[int] = set()
        while schema.keys() - _PASSIVE == {"$ref"} and id(schema) not in passed:
            target = self._references.target(schema, "$ref")
            if not is_dict(target) or self._references.base_of(target) != self._references.base_of(schema):
                break
            passed.add(id(schema))
            schema = target
            self._referred_to.add(id(target))
        return schema

    def _assert(self, node: Node, schema: Mapping[str, Any]) -> None:
        place = self._references.place_of(schema)
        for keyword, made in ASSERTIONS.items():
            if keyword in schema:
                try:
                    node.assertions.append(Assertion(keyword, made(schema[keyword]), schema[keyword]))
                except UnusablePattern as fault:
                    raise SchemaFault((*place, keyword), str(fault)) from None

    def _fill(self, node: Node, schema: Mapping[str, Any]) -> None:
        node.names = tuple(schema.get("properties", ()))
        self._assert(node, schema)
        node.applicators += self._on_same_value(node, schema)
        node.applicators += self._on_members(node, schema)
        node.applicators += self._on_items(node, schema)
        if "unevaluatedProperties" in schema:
            (left,) = self._part(node, schema["unevaluatedProperties"])
            made = applicators.unevaluated_properties(node, left, is_closed=left is self._never)
            node.leftovers.append((dict, made))
        if "unevaluatedItems" in schema:
            node.leftovers.append((list, applicators.unevaluated_items(*self._part(node, schema["unevaluatedItems"]))))

    def _on_same_value(self, node: Node, schema: Mapping[str, Any]) -> Iterator[tuple[type | None, Applicator]]:
        if "$ref" in schema:
            yield None, applicators.reference(*self._referred(node, self._references.target(schema, "$ref")))
        if "$dynamicRef" in schema:
            target = self._references.target(schema, "$dynamicRef")
            candidates = self._references.candidates(schema, target)
            first, *others = self._referred(node, target, *candidates.values())
            yield None, applicators.dynamic_reference(first, dict(zip(candidates, others, strict=True)))
        for keyword, made in (
            ("allOf", applicators.all_of),
            ("anyOf", applicators.any_of),
            ("oneOf", applicators.one_of),
        ):
            if keyword in schema:
                yield None, made(self._alike(node, *schema[keyword]))
        if "not" in schema:
            yield None, applicators.not_(*self._alike(node, schema["not"]))
        if "if" in schema:
            condition, then, otherwise = self._alike(
                node, schema["if"], schema.get("then", True), schema.get("else", True)
            )
            yield None, applicators.conditional(condition, then, otherwise)
        if "dependentSchemas" in schema:
            table = schema["dependentSchemas"]
            nodes = dict(zip(table, self._alike(node, *table.values()), strict=True))
            yield dict, applicators.dependent_schemas(nodes)

    def _on_members(self, node: Node, schema: Mapping[str, Any]) -> Iterator[tuple[type | None, Applicator]]:
        if "required" in schema:
            yield dict, applicators.required(schema["required"])
        if "dependentRequired" in schema:
            yield dict, applicators.dependent_required(schema["dependentRequired"])
        if "propertyNames" in schema:
            yield dict, applicators.property_names(*self._part(node, schema["propertyNames"]))
        if not schema.keys() & {"properties", "patternProperties", "additionalProperties"}:
            return
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        additional = self._part(node, schema["additionalProperties"])[0] if "additionalProperties" in schema else None
        yield (
            dict,
            applicators.members(
                dict(zip(properties, self._part(node, *properties.values()), strict=True)),
                [(self._searcher(schema, pattern), self._part(node, part)[0]) for pattern, part in patterns.items()],
                additional,
                is_closed=additional is self._never,
                known=node.names,
            ),
        )

    def _searcher(self, schema: Mapping[str, Any], pattern: str) -> Any:
        try:
            return searcher(pattern)
        except UnusablePattern as fault:
            place = (*self._references.place_of(schema), "patternProperties", pattern)
            raise SchemaFault(place, str(fault)) from None

    def _on_items(self, node: Node, schema: Mapping[str, Any]) -> Iterator[tuple[type | None, Applicator]]:
        if "items" in schema or "prefixItems" in schema:
            prefix = self._part(node, *schema.get("prefixItems", ()))
            rest = self._part(node, schema["items"])[0] if "items" in schema else None
            yield list, applicators.items(prefix, rest)
        if "contains" in schema:
            (wanted,) = self._part(node, schema["contains"])
            yield list, applicators.contains(wanted, schema.get("minContains", 1), schema.get("maxContains"))

    def _referred(self, node: Node, *schemas: Any) -> list[Node]:
        """The nodes that a reference of `node` leads to."""
        self._referred_to.update(map(id, schemas))
        return self._alike(node, *schemas)

    def _alike(self, node: Node, *schemas: Any) -> list[Node]:
        """The nodes of schemas that apply to the same value as `node`."""
        nodes = [self._node(schema) for schema in schemas]
        self._same[id(node)] += nodes
        return nodes

    def _part(self, node: Node, *schemas: Any) -> list[Node]:
        """The nodes of schemas that apply to parts of the value of `node`."""
        nodes = [self._node(schema) for schema in schemas]
        self._parts[id(node)] += nodes
        return nodes

    # Cycles

    def _alike_all(self, node: Node) -> list[Node]:
        """The node, and all that it applies to the same value, directly or not."""
        found, pending = {id(node): node}, [node]
        while pending:
            for other in self._same.get(id(pending.pop()), ()):
                if id(other) not in found:
                    found[id(other)] = other
                    pending.append(other)
        return list(found.values())

    def _reachable(self, node: Node) -> list[Node]:
        """All nodes that it leads to; itself only if it leads back."""
        found: dict[int, Node] = {}
        pending = [node]
        while pending:
            current = id(pending.pop())
            for other in (*self._same.get(current, ()), *self._parts.get(current, ())):
                if id(other) not in found:
                    found[id(other)] = other
                    pending.append(other)
        return list(found.values())

    def _refuse_circles(self) -> None:
        """Refuse references that lead back to themselves without going into the value: they would never end."""
        done: set[int] = set()
        for node in self._nodes.values():
            path: list[int] = [id(node)]
            pending = [iter(self._same[id(node)])]
            while pending and id(node) not in done:
                following = next(pending[-1], None)
                if following is None:
                    pending.pop()
                    done.add(path.pop())
                elif id(following) in path:
                    raise SchemaFault((), "it refers to itself without end")
                elif id(following) not in done:
                    path.append(id(following))
                    pending.append(iter(self._same.get(id(following), ())))


_PASSIVE = ANNOTATIONS | NAMING | {"$defs", "definitions"}
"""Keywords that a reference may have beside it and still be nothing else."""

_APPLYING = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "required", "dependentRequired",
    "propertyNames", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
"""Keywords that are more than assertions."""
