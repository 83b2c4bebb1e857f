"""Bearer tokens that the program or its configuration lists."""

from __future__ import annotations

from collections.abc import Mapping

from .._model.context import AgentContext
from .._model.protocols import Credentials
from .hashed_secrets import HashedSecrets


class BearerTokens(HashedSecrets):
    """Authenticates callers by bearer token: ``app.authenticate(BearerTokens({token: AgentContext(principal="ana")}))``.

    Only the SHA-256 hashes of the tokens are kept, and every comparison takes the same time, whatever is presented.
    Tokens must be long and random (``secrets.token_urlsafe(32)``): a plain hash does not protect a guessable one.

    Args:
        tokens: The caller's context for each token.

    Raises:
        ConfigurationError: A token is empty or contains white space.
    """

    __slots__ = ()

    NOUN = "bearer token"

    @classmethod
    def from_hashes(cls, hashes: Mapping[str, AgentContext]) -> BearerTokens:
        """The same, from hashes, for configurations without the tokens themselves.

        Args:
            hashes: The caller's context for each token's SHA-256, in lower-case hex.

        Raises:
            ConfigurationError: A hash is not 64 lower-case hex digits.
        """
        return cls({}).use_hashes(hashes)

    def __call__(self, credentials: Credentials, /) -> AgentContext | None:
        """Return the context of the presented token; None if there is no token, or it is unknown."""
        return self.find(credentials.bearer)
