"""Core schemas of outputs: how they are written, converted and checked, by the table of types."""

from __future__ import annotations

from collections.abc import Iterable

from .kind import Proof, Walk, certain
from .nodes import Node, Types, parts_of
from .structs import struct_of
from .table import TABLE


def written_types(types: Types) -> Types:
    """The same types as serialisers: NaN is shown instead of becoming null, Any is as strict as msgspec."""
    return Walk(TABLE, types, "write").all()


def converted_types(types: Types) -> Types:
    """The same types as validators of Python values of another shape: a dict for a model, a tuple for a list."""
    return Walk(TABLE, types, "convert").all()


def checked_types(types: Types) -> Types:
    """The same types as validators of the JSON that was written."""
    return Walk(TABLE, types, "check").all()


def proof_of(types: Types, root: Node) -> Proof | None:
    """A cheap test that a written value without null in it fits its type; None when there is nothing to test."""
    found = Walk(TABLE, types, "check").proof(root)
    return None if found is certain else found


def null_fits_inside(types: Types, root: Node) -> bool:
    """True when null fits wherever a value of the type has parts."""
    resolved = types.resolve(root)
    parts = [part for part in parts_of(resolved) if part is not resolved.get("keys_schema")]
    is_flat = resolved["type"] in ("any", "list", "dict", "none")
    if not parts and "serialization" not in resolved:
        return True
    return is_flat and "serialization" not in resolved and all(types.resolve(part)["type"] == "any" for part in parts)


def has_times(types: Types) -> bool:
    """True when a time may be among the values of these types."""
    return _holds(types, ("datetime", "time", "any"))


def has_open_names(types: Types) -> bool:
    """True when a dict may be among the values of these types."""
    return _holds(types, ("dict", "frozendict", "ordered-dict", "counter", "any"))


def _holds(types: Types, kinds: tuple[str, ...]) -> bool:
    def holds(node: Node) -> bool:
        how: Node | None = node.get("serialization")
        if how is not None and struct_of(node) is None:
            return True
        return node["type"] in kinds or any(map(holds, parts_of(node)))

    return any(map(holds, (*types.fields.values(), *types.definitions.values())))


def is_finite(types: Types, nodes: Iterable[Node]) -> bool:
    """True when nothing that these serialisers write can hold NaN or Infinity."""
    walk = Walk(TABLE, types, "write")
    return not any(map(walk.may_be_infinite, nodes))


def is_wrapped(nodes: Iterable[Node]) -> bool:
    """True when a function in Python wraps one of these serialisers."""
    return any(map(_wrapped, nodes))


def _wrapped(node: Node) -> bool:
    how: Node = node.get("serialization") or {}
    return how.get("type") == "function-wrap" or any(map(_wrapped, (*parts_of(how), *parts_of(node))))
