"""Keys in a header of their own, as gateways and older clients send them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .._model.context import AgentContext
from .._model.errors import ConfigurationError
from .._model.protocols import Challenge, Credentials
from .hashed_secrets import HashedSecrets

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class ApiKeys(HashedSecrets):
    """Authenticates callers by a key in a header: ``ApiKeys({key: AgentContext(principal="ana")}, header="X-API-Key")``.

    The rules are those of `BearerTokens`: only hashes are kept, comparisons take constant time, and keys must be long and random.

    Args:
        keys: The caller's context for each key.
        header: The name of the header.

    Raises:
        ConfigurationError: A key is empty or contains white space, or no header can have the name.
    """

    __slots__ = ("_header", "challenge")

    NOUN = "key"

    def __init__(self, keys: Mapping[str, AgentContext], header: str = "X-API-Key") -> None:
        super().__init__(keys)
        if _HEADER.fullmatch(header) is None or header.lower() == "authorization":
            raise ConfigurationError(f"ApiKeys: {header!r} cannot be the header of a key; use one such as X-API-Key")
        self._header = header.lower()
        self.challenge = Challenge(action=f"Send a valid key in the header '{header}: KEY'.")

    @classmethod
    def from_hashes(cls, hashes: Mapping[str, AgentContext], header: str = "X-API-Key") -> ApiKeys:
        """The same, from the SHA-256 of each key in lower-case hex.

        Raises:
            ConfigurationError: A hash is not 64 lower-case hex digits, or no header can have the name.
        """
        return cls({}, header).use_hashes(hashes)

    def __call__(self, credentials: Credentials, /) -> AgentContext | None:
        """Return the context of the presented key; None if the header is missing, or the key is unknown."""
        return self.find(credentials.headers.get(self._header))
