"""The result of ``tools/list`` for a catalog."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from carmy_engine import Catalog, Effect, PublicSpec, ToolSpec
from carmy_engine.content import has_content

T = TypeVar("T")

PAGE_TOOLS = 200
"""Tools of one page. The schemas of more would fill a model's context first."""

WRAPPED = "result"
"""The one member of the object that stands for an output which is not an object itself."""


class StaleCursorError(Exception):
    """A cursor that was not given for this catalog."""


def same_name(name: str) -> str:
    """The name itself."""
    return name


def page_of(
    catalog: Catalog, cursor: str | None, name_for: Callable[[str], str] = same_name
) -> tuple[list[dict[str, Any]], str | None]:
    """The tools of one page, and the cursor of the next one.

    Args:
        catalog: The caller's.
        cursor: As it was given with the page before; None for the first.
        name_for: The name of a tool for clients.

    Raises:
        StaleCursorError: The cursor is none of ours, or the catalog has changed since.
    """
    specs, following = part_of(catalog.tools, catalog.version, cursor)
    return [_entry(spec, name_for(spec.name)) for spec in specs], following


def part_of(items: Sequence[T], version: str, cursor: str | None) -> tuple[Sequence[T], str | None]:
    """The items of one page, and the cursor of the next one; see `page_of`.

    Args:
        items: All of them.
        version: Changes with them.
        cursor: As it was given with the page before; None for the first.
    """
    start = 0 if cursor is None else _position(cursor, version)
    end = start + PAGE_TOOLS
    return items[start:end], None if end >= len(items) else _cursor(end, version)


def is_wrapped(spec: PublicSpec | ToolSpec) -> bool:
    """Whether outputs of this tool are sent as ``{"result": output}``: all that do not promise to be an object."""
    return spec.output_schema.get("type") != "object"


def _entry(spec: PublicSpec, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "description": spec.description,
        "inputSchema": dict(spec.input_schema),
        "annotations": {
            "readOnlyHint": spec.effect.is_safe,
            "destructiveHint": spec.effect is Effect.DESTRUCTIVE,
            "idempotentHint": spec.idempotent,
            "openWorldHint": spec.effect is Effect.EXTERNAL_WRITE,
        },
        "_meta": {
            "carmy/effect": spec.effect.value,
            "carmy/confirmation": spec.confirmation.value,
            "carmy/parallel_safe": spec.parallel_safe,
            "carmy/wrapped": is_wrapped(spec),
        },
    }
    if name != spec.name:
        entry["title"] = entry["_meta"]["carmy/name"] = spec.name
    if spec.title is not None:
        entry["title"] = spec.title
    output = _output_schema(spec)
    if output is not None:
        entry["outputSchema"] = output
    return entry


def _output_schema(spec: PublicSpec) -> dict[str, Any] | None:
    """An object's schema as it is; any other as that of the member ``result``; None when it cannot be moved there."""
    if has_content(spec.output_schema):
        return None  # blocks have no schema in the protocol
    if not is_wrapped(spec):
        return dict(spec.output_schema)
    inner = dict(spec.output_schema)
    shared = inner.pop("$defs", None)
    # What it refers to has to be at the same place afterwards, and only definitions are.
    if any(not reference.startswith("#/$defs/") for reference in _references(spec.output_schema)):
        return None
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
    }
    if shared is not None:
        outer["$defs"] = shared
    return outer


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for name, value in cast("Mapping[str, object]", schema).items():
            if name == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list | tuple):
        for value in cast("list[object]", schema):
            yield from _references(value)


def _cursor(position: int, version: str) -> str:
    return base64.urlsafe_b64encode(f"{position}:{version}".encode()).decode()


def _position(cursor: str, version: str) -> int:
    try:
        position, _, of = base64.urlsafe_b64decode(cursor.encode("ascii", "replace")).decode().partition(":")
        if of == version and position.isascii() and position.isdigit():
            return int(position)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        pass
    raise StaleCursorError
