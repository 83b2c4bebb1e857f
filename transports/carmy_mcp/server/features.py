"""Features of a server: the requests that one part of it answers, and what it declares about itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from .exchange import Exchange

Result: TypeAlias = bytes | dict[str, Any]
"""A result: its members, or complete JSON."""

Handler: TypeAlias = Callable[[Exchange], Awaitable[Result]]
"""Answers one request. Raises `JsonRpcError`, or `AgentError`, for an error response."""


class Feature(Protocol):
    """One part of a server."""

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by method."""
        ...

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """The members that this part adds to the capabilities of the server.

        Args:
            modern: For a version without ``initialize``.
        """
        ...
