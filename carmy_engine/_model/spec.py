"""The declared properties of a tool, and the catalog of all tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .effect import Confirmation, Effect

DEFAULT_MAX_WAITING = 100
"""Calls that may wait for a turn. In a longer queue the last calls would time out."""

DEFAULT_MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""Size of a rendered output. Larger answers do not fit a model's context by orders of magnitude."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The declared properties of one tool.

    Attributes:
        name: 1-128 ASCII letters, digits, ``_``, ``-``, ``.``.
        title: Its name for people; None for none.
        description: Text for the model that chooses a tool.
        input_schema: JSON Schema 2020-12, root ``type: object``.
        output_schema: JSON Schema 2020-12 of the result.
        effect: See `Effect`.
        idempotent: Repeating the call is harmless.
        parallel_safe: False means that calls to this tool take turns.
        confirmation: Whether the permission ``confirm:<tool>`` is needed (a destructive effect needs it anyway).
        timeout: Seconds, or None for the engine's.
        max_waiting: Calls that may wait for a turn.
        max_output_bytes: Limit of the rendered output.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    idempotent: bool = False
    parallel_safe: bool = False
    confirmation: Confirmation = Confirmation.NONE
    timeout: float | None = None
    max_waiting: int = DEFAULT_MAX_WAITING
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    title: str | None = None

    @property
    def needs_confirmation(self) -> bool:
        """True when a call needs the permission ``confirm:<tool>``."""
        return self.confirmation is Confirmation.REQUIRED or self.effect is Effect.DESTRUCTIVE

    @property
    def is_repeatable(self) -> bool:
        """True when an attempt with an unknown end may simply run again."""
        return self.idempotent or self.effect.is_safe


class PublicSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as callers see it in the catalog; the order of the fields is the order on the wire. Without a title, it has none there."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    effect: Effect
    idempotent: bool
    parallel_safe: bool
    confirmation: Confirmation
    title: str | None = None


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that one caller may use, sorted by name.

    Attributes:
        tools: The entries.
        document: The catalog as JSON, ``{"tools": [...]}``, rendered once.
        version: Lower-case hex SHA-256 of `document`; changes only when the catalog does.
    """

    tools: tuple[PublicSpec, ...]
    document: bytes
    version: str
