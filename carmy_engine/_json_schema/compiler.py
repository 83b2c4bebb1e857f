"""A schema, with its references resolved, as nodes for evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from .._schema.type_guards import is_dict, is_list
from . import applicators
from .assertions import ASSERTIONS
from .evaluation import Applicator, Assertion, Failure, Node, run
from .keywords import misformed, subschemas
from .patterns import searcher

Place = tuple[str | int, ...]


class SchemaFault(ValueError):  # noqa: N818 - what it names is a fault of a schema
    """A schema is not JSON Schema 2020-12, or refers to something outside itself.

    Attributes:
        place: Where in the schema.
        reason: What is wrong there.
    """

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason


class Validator:
    """A compiled schema.

    Args:
        schema: JSON Schema 2020-12 as a JSON value: an object, true or false. ``format`` is an annotation, as the standard's default
            says. References must lead to a place inside `schema`: nothing is fetched.

    Raises:
        SchemaFault: It cannot be used.
        RecursionError: It is nested too deeply.
    """

    def __init__(self, schema: Any) -> None:
        self._root = _Compiler(schema).root

    def failures(self, value: Any) -> Iterator[Failure]:
        """Evaluate a JSON value as a decoder returns it, and yield each failure when it is found; none means that it fits."""
        return run(self._root, value)

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits."""
        return next(self.failures(value), None) is None


class _Compiler:
    def __init__(self, schema: Any) -> None:
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[str, dict[str, Any]] = {}
        self._known: dict[int, tuple[str, Place]] = {}
        """The base URI and the place of each schema that was indexed, by its identity."""
        self._nodes: dict[int, Node] = {}
        self._pending: list[tuple[Node, Mapping[str, Any]]] = []
        self._same: dict[int, list[Node]] = {}
        """The nodes that a node applies to the same value."""
        self._parts: dict[int, list[Node]] = {}
        """The nodes that a node applies to parts of its value."""
        self._targets: dict[int, Node] = {}
        """The nodes that references lead to."""
        self._always = Node("", is_leaf=True)
        self._never = Node("", [], [(None, applicators.never)])
        self._resources[""] = schema
        self._index(schema, "", ())
        self.root = self._node(schema)
        while self._pending:
            self._fill(*self._pending.pop())
        self._refuse_circles()
        for target in self._targets.values():
            # Every way back to a node leads through a reference.
            target.is_recursive = target in self._reachable(target)
        for node in self._nodes.values():
            if node.leftovers:
                node.names = tuple(dict.fromkeys(name for part in self._alike_all(node) for name in part.names))

    # Indexing

    def _index(self, schema: Any, base: str, place: Place) -> None:
        """Check the form of a schema and of those in it, and note what references can name."""
        if isinstance(schema, bool):
            return
        if not is_dict(schema):
            raise SchemaFault(place, "must be a schema: an object, true or false")
        wrong = misformed(schema)
        if wrong is not None:
            raise SchemaFault((*place, wrong[0]), wrong[1])
        if "$id" in schema:
            identifier: str = schema["$id"]
            base = _joined(base, identifier.removesuffix("#"))
            self._resources[base] = schema
        self._known[id(schema)] = base, place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if keyword in schema:
                self._anchors[base, schema[keyword]] = schema
        if "$dynamicAnchor" in schema:
            self._dynamic.setdefault(schema["$dynamicAnchor"], {})[base] = schema
        for inner, part in subschemas(schema):
            self._index(part, base, (*place, *inner))

    def _resolved(self, reference: str, base: str, place: Place) -> Any:
        """The schema that a reference names."""
        uri, fragment = urldefrag(_joined(base, reference))
        fragment = unquote(fragment)
        found = self._resources.get(uri)
        if found is not None and fragment.startswith("/"):
            found = self._pointed_at(found, uri, fragment)
        elif fragment:
            found = self._anchors.get((uri, fragment))
        if found is None:
            raise SchemaFault(place, f"{reference!r} does not point into the schema itself")
        return found

    def _pointed_at(self, found: Any, base: str, pointer: str) -> Any:
        """What a JSON Pointer (RFC 6901) names; None if there is no such place."""
        place: Place = ()
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if id(found) in self._known:
                base, place = self._known[id(found)]
            if is_dict(found) and name in found:
                found = found[name]
            elif is_list(found) and re.fullmatch("0|[1-9][0-9]*", name) and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
            place = (*place, name)
        if is_dict(found) and id(found) not in self._known:
            self._index(found, base, place)  # it stands under a keyword of no standard
        return found

    # Compiling

    def _node(self, schema: Any) -> Node:
        if isinstance(schema, bool):
            return self._always if schema else self._never
        if not is_dict(schema):
            raise SchemaFault((), "a reference leads to something that is no schema")
        node = self._nodes.get(id(schema))
        if node is None:
            node = self._nodes[id(schema)] = Node(self._known[id(schema)][0])
            self._same[id(node)], self._parts[id(node)] = [], []
            node.is_leaf = not any(keyword in schema for keyword in _APPLYING)
            if node.is_leaf:
                self._assert(node, schema)
            else:
                self._pending.append((node, schema))
        return node

    def _assert(self, node: Node, schema: Mapping[str, Any]) -> None:
        place = self._known[id(schema)][1]
        for keyword, made in ASSERTIONS.items():
            if keyword in schema:
                try:
                    node.assertions.append(Assertion(keyword, made(schema[keyword]), schema[keyword]))
                except re.error as error:
                    raise SchemaFault((*place, keyword), f"is not a regular expression: {error}") from None

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
        base, place = self._known[id(schema)]
        if "$ref" in schema:
            target = self._resolved(schema["$ref"], base, (*place, "$ref"))
            yield None, applicators.reference(*self._referred(node, target))
        if "$dynamicRef" in schema:
            yield None, self._dynamic_reference(node, schema["$dynamicRef"], base, (*place, "$dynamicRef"))
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

    def _dynamic_reference(self, node: Node, reference: str, base: str, place: Place) -> Applicator:
        target = self._resolved(reference, base, place)
        anchor = urldefrag(reference).fragment
        is_dynamic = is_dict(target) and target.get("$dynamicAnchor") == anchor
        candidates = self._dynamic.get(anchor, {}) if is_dynamic else {}
        nodes = self._referred(node, target, *candidates.values())
        return applicators.dynamic_reference(nodes[0], dict(zip(candidates, nodes[1:], strict=True)))

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
        except re.error as error:
            place = (*self._known[id(schema)][1], "patternProperties", pattern)
            raise SchemaFault(place, f"is not a regular expression: {error}") from None

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
        nodes = self._alike(node, *schemas)
        self._targets.update((id(target), target) for target in nodes)
        return nodes

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
        for schema, node in self._nodes.items():
            path: list[int] = [id(node)]
            pending = [iter(self._same[id(node)])]
            while pending and id(node) not in done:
                following = next(pending[-1], None)
                if following is None:
                    pending.pop()
                    done.add(path.pop())
                elif id(following) in path:
                    raise SchemaFault(self._known[schema][1], "it refers to itself without end")
                elif id(following) not in done:
                    path.append(id(following))
                    pending.append(iter(self._same.get(id(following), ())))


def _joined(base: str, reference: str) -> str:
    return base + reference if reference.startswith("#") else urljoin(base, reference)


_APPLYING = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "required", "dependentRequired",
    "propertyNames", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
"""Keywords that are more than assertions."""
