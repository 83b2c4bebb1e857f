"""Ready-made authenticators."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from .._model.context import AgentContext
from .._model.errors import ConfigurationError
from .._model.protocols import Credentials

_HASH = re.compile(r"[0-9a-f]{64}")


class BearerTokens:
    """Authenticates callers by bearer token: ``app.authenticate(BearerTokens({token: AgentContext(principal="ana")}))``.

    Only the SHA-256 hashes of the tokens are kept, and every comparison takes the same time, whatever is presented.
    Tokens must be long and random (``secrets.token_urlsafe(32)``): a plain hash does not protect a guessable one.

    Args:
        tokens: The caller's context for each token.

    Raises:
        ConfigurationError: A token is empty or contains white space.
    """

    __slots__ = ("_contexts",)

    def __init__(self, tokens: Mapping[str, AgentContext]) -> None:
        for token in tokens:
            if not token or token.split() != [token]:
                raise ConfigurationError("a bearer token is empty or contains white space; no client could send it")
        self._contexts = tuple((_digest(token), context) for token, context in tokens.items())

    @classmethod
    def from_hashes(cls, hashes: Mapping[str, AgentContext]) -> BearerTokens:
        """The same, from hashes, for configurations without the tokens themselves.

        Args:
            hashes: The caller's context for each token's SHA-256, in lower-case hex.

        Raises:
            ConfigurationError: A hash is not 64 lower-case hex digits.
        """
        for digest in hashes:
            if _HASH.fullmatch(digest) is None:
                raise ConfigurationError("a token's hash must be its SHA-256 in 64 lower-case hex digits")
        made = cls({})
        made._contexts = tuple((bytes.fromhex(digest), context) for digest, context in hashes.items())
        return made

    def __call__(self, credentials: Credentials, /) -> AgentContext | None:
        """Return the context of the presented token; None if there is no token, or it is unknown."""
        if credentials.bearer is None:
            return None
        presented = _digest(credentials.bearer)
        found: AgentContext | None = None
        for digest, context in self._contexts:
            # No early return: the time must not depend on the tokens that match in part.
            if hmac.compare_digest(presented, digest):
                found = context
        return found

    def __repr__(self) -> str:
        return f"<BearerTokens: {len(self._contexts)} tokens>"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
