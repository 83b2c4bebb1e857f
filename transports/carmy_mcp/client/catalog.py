"""The catalog of an MCP server: tools described by its hints, with defaults where it gives none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

import mcp_types as types
import msgspec

from carmy_engine import Catalog, ConfigurationError, Confirmation, Effect, PublicSpec

from ..protocol.listing import WRAPPED


class Override(TypedDict, total=False):
    """Attributes of one tool that the host sets against its server's hints."""

    effect: Effect | str
    idempotent: bool
    parallel_safe: bool
    confirmation: Confirmation | str


class FarTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server.

    Attributes:
        spec: Its entry in the catalog.
        structured: The server has promised structured content.
        wrapped: Its output is the one member of that.
        ours: The server is one of this package: it applies the limit and the request_id of a call, and reports its outcome.
    """

    spec: PublicSpec
    structured: bool
    wrapped: bool
    ours: bool


def check_overrides(overrides: Mapping[str, Override]) -> dict[str, dict[str, Any]]:
    """Overrides as fields of a `PublicSpec`.

    Raises:
        ConfigurationError: One of them is none.
    """
    checked: dict[str, dict[str, Any]] = {}
    for name, override in overrides.items():
        for key in override:
            if key not in Override.__annotations__:
                known = ", ".join(Override.__annotations__)
                raise ConfigurationError(f"the tool {name!r} cannot be given {key!r}: there are {known}")
        try:
            checked[name] = msgspec.structs.asdict(msgspec.convert(override, _Fields))
        except msgspec.ValidationError as problem:
            raise ConfigurationError(f"what the tool {name!r} is given is not valid: {problem}") from None
        checked[name] = {key: value for key, value in checked[name].items() if value is not None}
    return checked


class _Fields(msgspec.Struct):
    effect: Effect | None = None
    idempotent: bool | None = None
    parallel_safe: bool | None = None
    confirmation: Confirmation | None = None


def far_tool(tool: types.Tool, override: Mapping[str, Any], *, trusted: bool) -> FarTool:
    """One tool of a listing.

    Args:
        tool: As it is listed.
        override: Attributes that the host sets; see `check_overrides`.
        trusted: The ``_meta`` of a server of this package overrides the hints.
    """
    meta = tool.meta or {}
    hints = tool.annotations or types.ToolAnnotations()
    fields: dict[str, Any] = {
        "effect": _effect_of(hints),
        "idempotent": hints.idempotent_hint is True,
        # Servers get the calls of all their clients side by side, and know what to do about it.
        "parallel_safe": True,
        "confirmation": Confirmation.NONE,
    }
    if trusted:
        fields |= _told(meta)
    wrapped = _is_wrapped(tool)
    spec = PublicSpec(
        name=fields.pop("name", tool.name),
        description=tool.description or tool.title or "",
        input_schema=tool.input_schema,
        output_schema=_output_schema(tool.output_schema, wrapped=wrapped),
        **(fields | dict(override)),
    )
    ours = isinstance(meta.get("carmy/effect"), str)
    return FarTool(spec=spec, structured=tool.output_schema is not None, wrapped=wrapped, ours=ours)


def catalog_of(tools: Iterable[FarTool]) -> Catalog:
    """The catalog of some tools."""
    specs = tuple(sorted((tool.spec for tool in tools), key=lambda spec: spec.name))
    document = msgspec.json.encode({"tools": specs})
    return Catalog(tools=specs, document=document, version=hashlib.sha256(document).hexdigest())


def _effect_of(hints: types.ToolAnnotations) -> Effect:
    """What the hints promise. A write counts as one to the outside unless both hints rule the worse out."""
    if hints.destructive_hint is True:
        return Effect.DESTRUCTIVE
    if hints.read_only_hint is True:
        return Effect.READ
    if hints.destructive_hint is False and hints.open_world_hint is False:
        return Effect.WRITE
    return Effect.EXTERNAL_WRITE


def _told(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The well-formed attributes in the ``_meta`` of a tool of this package."""
    told: dict[str, Any] = {}
    if meta.get("carmy/effect") in list(Effect):
        told["effect"] = Effect(meta["carmy/effect"])
    if meta.get("carmy/confirmation") in list(Confirmation):
        told["confirmation"] = Confirmation(meta["carmy/confirmation"])
    if isinstance(meta.get("carmy/name"), str):
        told["name"] = meta["carmy/name"]
    if isinstance(meta.get("carmy/parallel_safe"), bool):
        told["parallel_safe"] = meta["carmy/parallel_safe"]
    return told


def _output_schema(listed: Mapping[str, Any] | None, *, wrapped: bool) -> dict[str, Any]:
    """The schema of an output; of anything, where the server lists none."""
    if listed is None:
        return {}
    if not wrapped:
        return dict(listed)
    inner: Mapping[str, Any] = listed["properties"][WRAPPED]
    return {**inner, "$defs": listed["$defs"]} if "$defs" in listed else dict(inner)


def _is_wrapped(tool: types.Tool) -> bool:
    if (tool.meta or {}).get("carmy/wrapped") is not True:
        return False
    properties = (tool.output_schema or {"properties": {WRAPPED: {}}}).get("properties")
    return isinstance(properties, dict) and isinstance(cast("dict[str, Any]", properties).get(WRAPPED), dict)
