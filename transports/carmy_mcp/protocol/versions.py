"""The versions of the protocol, and the choice between them."""

from __future__ import annotations

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions that begin with ``initialize``."""

MODERN_VERSIONS = ("2026-07-28",)
"""Versions in which every request describes its client, and connections have no state."""

VERSIONS = (*HANDSHAKE_VERSIONS, *MODERN_VERSIONS)
"""All versions, the oldest first. Versions of one kind compare as texts."""

LATEST_HANDSHAKE_VERSION = HANDSHAKE_VERSIONS[-1]
LATEST_MODERN_VERSION = MODERN_VERSIONS[-1]

UNSTATED_VERSION = "2025-03-26"
"""The version of an HTTP request without the header ``MCP-Protocol-Version`` and without a session (2025-06-18, "Transports")."""


def negotiated(requested: str) -> str:
    """The version for the answer to ``initialize``: the requested one, or else the latest that has ``initialize``."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE_VERSION


def is_modern(version: str) -> bool:
    """True for a version without ``initialize``."""
    return version in MODERN_VERSIONS
