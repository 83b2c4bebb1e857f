"""The catalog of an MCP server: tools described by its hints, with defaults where it gives none."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

import msgspec

from carmy_engine import Catalog, ConfigurationError, Confirmation, Effect, PublicSpec
from carmy_engine.content import CONTENT_KEYWORD
from carmy_engine.transport import RateLimitedLogger, shortened

from ..protocol.headers import DECLARATION, ParameterHeader, declared_headers, is_valid_declaration
from ..protocol.listing import WRAPPED

log = RateLimitedLogger(logging.getLogger("carmy.mcp"))


class Override(TypedDict, total=False):
    """Attributes of one tool that the host sets against its server's hints."""

    effect: Effect | str
    idempotent: bool
    parallel_safe: bool
    confirmation: Confirmation | str


class Hints(msgspec.Struct, frozen=True, rename="camel"):
    """The hints of a server about a tool."""

    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ListedTool(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A tool in the list of a server."""

    name: str
    input_schema: dict[str, Any]
    title: str | None = None
    description: str | None = None
    output_schema: dict[str, Any] | None = None
    annotations: Hints | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


_listed = msgspec.json.Decoder(ListedTool)


class FarTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server.

    Attributes:
        spec: Its entry in the catalog.
        structured: The server has promised structured content.
        wrapped: Its output is the one member of that.
        ours: The server is one of this package: it applies the limit and the request_id of a call, and reports its outcome.
        headers: Arguments that are repeated in headers over HTTP.
    """

    spec: PublicSpec
    structured: bool
    wrapped: bool
    ours: bool
    headers: tuple[ParameterHeader, ...] = ()


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


def far_tool(tool: ListedTool, override: Mapping[str, Any], *, trusted: bool) -> FarTool:
    """One tool of a listing.

    Args:
        tool: As it is listed.
        override: Attributes that the host sets; see `check_overrides`.
        trusted: The ``_meta`` of a server of this package overrides the hints.
    """
    meta = tool.meta or {}
    hints = tool.annotations or Hints()
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
    return FarTool(
        spec=spec,
        structured=tool.output_schema is not None,
        wrapped=wrapped,
        ours=ours,
        headers=declared_headers(tool.input_schema),
    )


def far_tools(
    listed: Iterable[msgspec.Raw], overrides: Mapping[str, Mapping[str, Any]], *, trusted: bool, has_headers: bool
) -> dict[str, FarTool]:
    """The tools of a listing, by name. One that cannot be read or called is left out and logged; it harms no other.

    Args:
        listed: As they are listed.
        overrides: See `check_overrides`.
        trusted: See `far_tool`.
        has_headers: Calls repeat arguments in headers. A tool whose declaration of them is not valid must be left out.
    """
    found: dict[str, FarTool] = {}
    for entry in listed:
        try:
            tool = _listed.decode(entry)
        except msgspec.DecodeError as problem:
            log.warning("a tool of a server is left out, because its entry is not valid: %s", problem)
            continue
        if has_headers and not is_valid_declaration(tool.input_schema):
            log.warning("the tool %s is left out: its %r is not valid", shortened(tool.name), DECLARATION)
            continue
        made = far_tool(tool, overrides.get(tool.name, {}), trusted=trusted)
        found[made.spec.name] = made
    return found


def catalog_of(tools: Iterable[FarTool]) -> Catalog:
    """The catalog of some tools."""
    specs = tuple(sorted((tool.spec for tool in tools), key=lambda spec: spec.name))
    document = msgspec.json.encode({"tools": specs})
    return Catalog(tools=specs, document=document, version=hashlib.sha256(document).hexdigest())


def _effect_of(hints: Hints) -> Effect:
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
    """The schema of an output. Where the server lists none, the output is content."""
    if listed is None:
        return {CONTENT_KEYWORD: "any"}
    if not wrapped:
        return dict(listed)
    inner: Mapping[str, Any] = listed["properties"][WRAPPED]
    return {**inner, "$defs": listed["$defs"]} if "$defs" in listed else dict(inner)


def _is_wrapped(tool: ListedTool) -> bool:
    """True if outputs are the one member ``result`` of an object: of servers of this package, and of other servers that wrap so."""
    schema = tool.output_schema
    told = (tool.meta or {}).get("carmy/wrapped")
    if told is True and schema is None:
        return True
    if schema is None or told is False:
        return False
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return False
    members = cast("dict[str, Any]", properties)
    return members.keys() == {WRAPPED} and isinstance(members[WRAPPED], dict) and schema.get("required") == [WRAPPED]
