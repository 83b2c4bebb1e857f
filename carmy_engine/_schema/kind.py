"""A row of the table of types: everything the engine does with one kind of type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic_core import core_schema

from .annotations import UnusableType
from .nodes import CONSTRAINTS, Node, Types, inner_of, is_pydantics, parts_of, rebuilt, without
from .plain_values import plain, plain_name
from .structs import struct_of

Aspect = Literal["expand", "accept", "check", "convert", "write"]
Steps = Literal[
    "parts",
    "author",
    "chain",
    "default",
    "fail_fast",
    "fields",
    "items",
    "model",
    "names",
    "reference",
    "typed_dict",
    "union",
]
"""A method of `bounded_rules.Bounded`."""
Ask = Callable[[Node], bool]
"""The same question, of another node."""
Proof = Callable[[Any], bool]
"""A cheap test of a value that its serialiser has written: True if it certainly fits its type."""
Errors = Mapping[str, tuple[str, str]]
"""By pydantic's type of error: the engine's code, and what follows "argument 'x' "."""
PLAIN: Any = core_schema.plain_serializer_function_ser_schema(plain, return_schema=core_schema.any_schema())
"""Writes what has no declared type."""
PLAIN_NAME: Any = core_schema.plain_serializer_function_ser_schema(plain_name, return_schema=core_schema.str_schema())
"""Writes a name in an object that has no declared type."""


def certain(_: Any) -> bool:
    """The proof of what a serialiser refuses by itself, unless it is None."""
    return True


def uncertain(_: Any) -> bool:
    """The proof of values that need a check of the written JSON."""
    return False


class Kind:
    """One row. What it does not say holds for nodes that are transparent: they are what they hold inside.

    Attributes:
        word: What a value is called, with its article; empty for what the inner type is called.
        errors: The errors that this kind of type brings about.
        is_name: Its values can be names of members of a JSON object.
        is_finite: Nothing that is written for it can be NaN or infinite, as long as its parts are not.
        steps: The rule by which long arguments of this kind are checked in steps.
    """

    word: ClassVar[str] = ""
    errors: ClassVar[Errors] = {}
    is_name: ClassVar[bool] = False
    is_finite: ClassVar[bool] = False
    steps: ClassVar[Steps] = "parts"

    # --- what it is

    def noun(self, walk: Walk, node: Node) -> str:
        """What a value of the type is called, with its article."""
        inner = inner_of(node)
        return self.word or ("a valid value" if inner is None else walk.noun(inner))

    def takes_null(self, walk: Walk, node: Node) -> bool:
        """True when null is a value of the type in its own right."""
        inner = inner_of(node)
        return not self.word and inner is not None and walk.takes_null(inner)

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        """True when every value of the type can be a name in a JSON object."""
        inner = inner_of(node)
        return self.is_name or (not self.word and inner is not None and walk.can_be_name(inner))

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        """True when its serialiser, made by `write`, may write a number that JSON lacks."""
        return not self.is_finite or "serialization" in node or any(map(walk.may_be_infinite, parts_of(node)))

    def is_light(self, node: Node, ask: Ask) -> bool:
        """True if the validator of `accept` makes a value in well under a microsecond."""
        return False

    def may_be_text(self, node: Node, ask: Ask) -> bool:
        """True if the validator of `accept` may take a string."""
        return True

    def proof(self, walk: Walk, node: Node) -> Proof:
        """The proof that a value which was written fits the published schema."""
        return certain if self.word and CONSTRAINTS.isdisjoint(node) else uncertain

    def proof_of_all(self, walk: Walk, node: Node) -> Proof:
        """The proof that every item of an iterable fits."""
        inner = walk.proof(node)
        if inner is certain or inner is uncertain:
            return inner

        def all_fit(items: Any) -> bool:
            # A loop, because a generator expression costs as much as the items of a short list.
            for item in items:  # noqa: SIM110
                if not inner(item):
                    return False
            return True

        return all_fit

    # --- what becomes of its nodes

    def expand(self, walk: Walk, node: Node) -> Node:
        """What the other aspects start from: without what pydantic leaves open or JSON cannot carry."""
        return walk.parts(node)

    def accept(self, walk: Walk, node: Node) -> Node:
        """The validator of arguments: from JSON to a value."""
        return walk.parts(node)

    def accept_name(self, walk: Walk, node: Node) -> Node:
        """The validator of names in a JSON object."""
        return walk.visit(node)

    def check(self, walk: Walk, node: Node) -> Node:
        """The validator of the JSON that was written for an output. Runs no code of the type's author."""
        return self.accept(walk, node)

    def convert(self, walk: Walk, node: Node) -> Node:
        """The validator that turns an output of another shape into the one that was promised."""
        return walk.parts(node)

    def write(self, walk: Walk, node: Node) -> Node:
        """The serialiser of outputs."""
        return walk.parts(node)

    def publish(self, generator: Any, node: Any, proceed: Callable[[Any], Node]) -> Node:
        """The JSON Schema; `proceed` is pydantic's own."""
        return proceed(node)

    def publish_name(self, generator: Any, node: Any) -> Node:
        """The JSON Schema of names in an object."""
        inner = inner_of(node)
        return {} if inner is None else generator.name_schema(inner)


class AnyJson(Kind):
    """A type that allows any JSON."""

    def takes_null(self, walk: Walk, node: Node) -> bool:
        return True

    def can_be_name(self, walk: Walk, node: Node) -> bool:
        return True

    def may_be_infinite(self, walk: Walk, node: Node) -> bool:
        return True

    def write(self, walk: Walk, node: Node) -> Node:
        return node if "serialization" in node else {**node, "serialization": PLAIN}


class Refused(Kind):
    """What JSON cannot carry."""

    def __init__(self, what: str, instead: str = "Use types that JSON has.") -> None:
        self._what = what
        self._instead = instead

    def expand(self, walk: Walk, node: Node) -> Node:
        """Refuse the declaration.

        Raises:
            UnusableType: Always.
        """
        raise UnusableType(f"JSON cannot carry {self._what}", self._instead)


class Walk:
    """Rewrites core schemas, node by node, each by one aspect of its row."""

    def __init__(self, table: Mapping[str, Kind], types: Types, aspect: Aspect) -> None:
        self._table = table
        self._behind = _behind_functions(types) if aspect == "accept" else frozenset[str]()
        self._proofs: dict[str, Proof] = {}
        self.types = types
        self.aspect: Aspect = aspect
        self.is_marked = False
        """The object around is marked strict by its author, and stays as strict as that."""
        self.is_behind = False
        """A validator of the author runs first, and may hand over values that are Python's and not JSON's."""
        self.is_bare = False
        """Validators of the author are left out."""
        self.config: Node = {}
        """The configuration of the object around."""

    def row(self, node: Node) -> Kind:
        """The row of a node's kind.

        Raises:
            UnusableType: There is none.
        """
        found = self._table.get(node["type"])
        if found is None:
            raise UnusableType(f"types of the kind '{node['type']}' have no JSON form here", "Use types that JSON has.")
        return found

    def visit(self, node: Node) -> Node:
        """The node rewritten; the one given is never changed."""
        row = self.row(node)
        if self.aspect == "check" and "serialization" in node:
            return self.visit(written(self, node))
        rule: Callable[[Walk, Node], Node] = getattr(row, self.aspect)
        made = rule(self, node)
        if self.aspect == "expand":
            return made
        how: Node = made.get("serialization") or {}
        if self.aspect == "write" and how.get("type") == "any":
            # Left to the serialiser of whatever class the value has, it may be null instead of NaN.
            made = {**made, "serialization": PLAIN}
        # References between definitions are kept, references of inlined nodes are of no use any more.
        return without(made, "ref") if self.aspect in ("write", "convert") else without(made, "ref", "serialization")

    def parts(self, node: Node) -> Node:
        """A copy of the node with its parts rewritten."""
        return rebuilt(node, self.visit)

    def all(self) -> Types:
        """Every type rewritten."""
        fields = {name: self.visit(field) for name, field in self.types.fields.items()}
        definitions: dict[str, Node] = {}
        for ref, node in self.types.definitions.items():
            self.is_behind = ref in self._behind
            definitions[ref] = {**self.visit(node), "ref": ref}
        self.is_behind = False
        return Types(fields, definitions)

    def noun(self, node: Node) -> str:
        """See `Kind.noun`."""
        found = self.types.resolve(node)
        return self.row(found).noun(self, found)

    def takes_null(self, node: Node) -> bool:
        """See `Kind.takes_null`."""
        found = self.types.resolve(node)
        return self.row(found).takes_null(self, found)

    def can_be_name(self, node: Node) -> bool:
        """See `Kind.can_be_name`."""
        found = self.types.resolve(node)
        return self.row(found).can_be_name(self, found)

    def may_be_infinite(self, node: Node) -> bool:
        """See `Kind.may_be_infinite`."""
        return self.row(node).may_be_infinite(self, node)

    def proof(self, node: Node) -> Proof:
        """See `Kind.proof`."""
        how: Node | None = node.get("serialization")
        if struct_of(node) is not None:
            fields = self.row({"type": "model-fields"}).proof(self, node["schema"])
            return certain if fields is certain else uncertain
        if how is None:
            return self.row(node).proof(self, node)
        if how["type"] in ("function-plain", "function-wrap"):
            returns: Node = how.get("return_schema") or {"type": "any"}
            if "return_schema" not in how and is_pydantics(how):
                return uncertain  # published as what the type is, and not as any JSON
            # What the function returned is not there to be looked at.
            return certain if self.proof(returns) is certain else uncertain
        return certain if how["type"] in ("to-string", "format") else uncertain

    def proof_of_all(self, node: Node) -> Proof:
        """See `Kind.proof_of_all`."""
        found = self.types.resolve(node)
        is_own = "serialization" in found or "serialization" in node or self.proof(node) is uncertain
        return Kind().proof_of_all(self, node) if is_own else self.row(found).proof_of_all(self, found)

    def proof_of(self, ref: str) -> Proof:
        """The proof of a definition; of one that contains itself, only a look at the JSON is one."""
        if ref not in self._proofs:
            self._proofs[ref] = uncertain
            self._proofs[ref] = self.proof(self.types.definitions[ref])
        return self._proofs[ref]


def written(walk: Walk, node: Node) -> Node:
    """What a node with a serialiser of its own is in JSON."""
    how: Node = node["serialization"]
    bare = without(node, "serialization")
    kind: str = how["type"]
    if kind in ("function-plain", "function-wrap"):
        returns: Node | None = how.get("return_schema")
        if returns is None:
            return bare if is_pydantics(how) else {"type": "any"}
        may_skip = how.get("when_used") in ("unless-none", "json-unless-none") and walk.takes_null(bare)
        return {"type": "nullable", "schema": returns} if may_skip else returns
    if kind in ("to-string", "format"):
        return {"type": "str"}
    if kind == "model":
        inner: Node = how["schema"]
        return inner
    if kind in ("any", "include-exclude-sequence", "include-exclude-dict"):
        return bare
    return {"type": kind}


def _behind_functions(types: Types) -> frozenset[str]:
    """The definitions that validators of the author can hand values to."""
    found: set[str] = set()

    def collect(node: Node, is_behind: bool) -> None:
        if node["type"] == "definition-ref":
            ref = node["schema_ref"]
            if is_behind and ref not in found:
                found.add(ref)
                collect(types.definitions[ref], True)
            return
        inside = is_behind or (node["type"] in ("function-before", "function-wrap") and not is_pydantics(node))
        for part in parts_of(node):
            collect(part, inside)

    for node in (*types.fields.values(), *types.definitions.values()):
        collect(node, False)
    return frozenset(found)
