"""Secrets of callers, of which only the hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Self

from .._model.context import AgentContext
from .._model.errors import ConfigurationError

_HASH = re.compile(r"[0-9a-f]{64}")


def digest_of(secret: str) -> bytes:
    """The SHA-256 of a secret, whatever its characters."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class HashedSecrets:
    """The callers' contexts by the hashes of their secrets.

    Args:
        secrets: The caller's context for each secret.

    Raises:
        ConfigurationError: A secret is empty or contains white space.
    """

    __slots__ = ("_contexts",)

    NOUN = "secret"
    """What messages call a secret."""

    def __init__(self, secrets: Mapping[str, AgentContext]) -> None:
        for secret in secrets:
            if not secret or secret.split() != [secret]:
                raise ConfigurationError(f"a {self.NOUN} is empty or contains white space; no client could send it")
        self._contexts = tuple((digest_of(secret), context) for secret, context in secrets.items())

    def use_hashes(self, hashes: Mapping[str, AgentContext]) -> Self:
        """Accept the secrets with these SHA-256 hashes, in lower-case hex, and no others.

        Raises:
            ConfigurationError: A hash is not 64 lower-case hex digits.
        """
        for digest in hashes:
            if _HASH.fullmatch(digest) is None:
                raise ConfigurationError(f"the hash of a {self.NOUN} must be its SHA-256 in 64 lower-case hex digits")
        self._contexts = tuple((bytes.fromhex(digest), context) for digest, context in hashes.items())
        return self

    def find(self, presented: str | None) -> AgentContext | None:
        """The context of a presented secret; None if there is none, or it is unknown. In the same time for each secret."""
        if presented is None:
            return None
        wanted = digest_of(presented)
        found: AgentContext | None = None
        for digest, context in self._contexts:
            # No early return: the time must not depend on the secrets that match in part.
            if hmac.compare_digest(wanted, digest):
                found = context
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._contexts)} {self.NOUN}s>"
