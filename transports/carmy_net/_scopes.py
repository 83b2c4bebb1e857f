"""Permissions as scopes of OAuth 2.0 (RFC 6749)."""

from __future__ import annotations

import functools

from carmy_engine import ErrorInfo


def lacking_permission(error: ErrorInfo) -> str | None:
    """The permission that would have allowed a call, if its refusal names one that a scope can have (RFC 6749, 3.3)."""
    if error.code != "FORBIDDEN" or error.details is None:
        return None
    return _scope(error.details.get("permission"))


@functools.lru_cache(256)
def _scope(permission: object) -> str | None:
    if not isinstance(permission, str) or not permission:
        return None
    return permission if all("!" <= character <= "~" and character not in '"\\' for character in permission) else None
