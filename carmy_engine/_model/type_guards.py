"""Type guards for JSON-shaped data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_dict(part: object) -> TypeGuard[dict[str, Any]]:
    """True for a dict. The callers' data has strings as keys."""
    return isinstance(part, dict)


def is_mapping(part: object) -> TypeGuard[Mapping[Any, Any]]:
    """True for any mapping."""
    return isinstance(part, Mapping)


def is_list(part: object) -> TypeGuard[list[Any]]:
    """True for a list."""
    return isinstance(part, list)


def is_tuple(part: object) -> TypeGuard[tuple[Any, ...]]:
    """True for a tuple."""
    return isinstance(part, tuple)


def is_sequence(part: object) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    """True for a value that JSON represents as an array."""
    return isinstance(part, list | tuple | set | frozenset)
