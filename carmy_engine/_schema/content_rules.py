"""Where content may stand: as an output, or in a list that is one."""

from __future__ import annotations

from .._model.content import tag_of
from .annotations import UnusableType
from .nodes import Node, Types, parts_of
from .structs import struct_of

_WRAPPERS = frozenset({"nullable", "union", "tagged-union", "default", "definitions"})
_LISTS = frozenset({"list", "tuple"})


def refuse_content(types: Types) -> None:
    """Refuse content among the types of arguments.

    Raises:
        UnusableType: There is some.
    """
    for node in types.definitions.values():
        if tag_of(struct_of(node)) is not None:
            raise UnusableType(
                f"{struct_of(node).__qualname__} is content, which a tool can only return",
                "Take bytes or a text, or an address.",
            )


def check_content(types: Types, root: Node) -> None:
    """Refuse content in an output where transports would not find it.

    Raises:
        UnusableType: Content stands inside an object, or more than one list deep.
    """
    if any(tag_of(struct_of(node)) is not None for node in types.definitions.values()):
        _check(types, root, set(), in_list=False)


def _check(types: Types, node: Node, seen: set[str], *, in_list: bool) -> None:
    ref = node.get("schema_ref")
    if ref in seen:
        return
    if ref is not None:
        seen.add(ref)
    found = types.resolve(node)
    if tag_of(struct_of(found)) is not None:
        return
    if found["type"] in _WRAPPERS:
        for part in parts_of(found):
            _check(types, part, seen, in_list=in_list)
    elif found["type"] in _LISTS and not in_list:
        for part in parts_of(found):
            _check(types, part, set(), in_list=True)
    elif name := _content_in(types, found, set()):
        raise UnusableType(
            f"{name} stands inside another type",
            "Return content alone or in a list, beside other values: 'list[Image]', 'tuple[Report, Image]'.",
        )


def _content_in(types: Types, node: Node, seen: set[str]) -> str | None:
    """The name of a class of content inside a type."""
    ref = node.get("schema_ref")
    if ref is not None:
        if ref in seen:
            return None
        seen.add(ref)
        node = types.definitions[ref]
    cls = struct_of(node)
    if tag_of(cls) is not None:
        return str(cls.__qualname__)
    return next((name for part in parts_of(node) if (name := _content_in(types, part, seen)) is not None), None)
