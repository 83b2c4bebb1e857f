"""Access tokens in the form of JWT (RFC 7519, RFC 9068), signed by an authorization server."""

from __future__ import annotations

import importlib
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .._model.context import AgentContext
from .._model.errors import ConfigurationError
from .._model.extras import missing_extra
from .._model.protocols import Challenge, Credentials
from .algorithms import check_algorithms
from .key_sources import GivenKeys, Keys, KeySource, key_source

if TYPE_CHECKING:
    from . import jose

DEFAULT_ALGORITHMS = ("RS256", "ES256")
"""What authorization servers sign with, unless configured otherwise."""

log = logging.getLogger("carmy.engine")


class Jwt:
    """Authenticates callers by the access token of an authorization server.

    ::

        app.authenticate(
            Jwt(issuer="https://id.example", audience="https://shop.example", jwks="https://id.example/jwks.json")
        )

    The token's signature, issuer, audience and times are verified, and its type, where it names one. The subject becomes the principal,
    each scope a permission: the authorization server decides about permissions. Keys of a token itself (``jwk``, ``jku``, ``x5c``)
    are never used.

    Args:
        issuer: The claim ``iss``, exactly.
        audience: This server, or its names, one of which has to be in the claim ``aud``.
        algorithms: The accepted ones, of one kind: with public keys, or with shared secrets.
        jwks: The issuer's key set: a file, read again when it changes, or an ``https`` URL, read again every 5 minutes, and when a
            token names an unknown key, but at most every 10 seconds.
        key: Instead, a public key in PEM, or the shared secret.
        leeway: Seconds by which clocks may differ.
        permissions: The claim with the permissions: a text with spaces between, or a list.
        context: Makes the caller's context of verified claims, or returns None to refuse; for claims of other shapes.
        clock: Seconds since the epoch.

    Raises:
        ConfigurationError: An argument cannot be used.
        ModuleNotFoundError: The extra ``auth`` is not installed.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        algorithms: Sequence[str] = DEFAULT_ALGORITHMS,
        jwks: str | os.PathLike[str] | None = None,
        key: str | bytes | None = None,
        leeway: float = 30.0,
        permissions: str = "scope",
        context: Callable[[Mapping[str, Any]], AgentContext | None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._audiences = frozenset([audience] if isinstance(audience, str) else audience)
        if not issuer or not self._audiences or "" in self._audiences:
            raise ConfigurationError("Jwt: issuer and audience must not be empty: every token would fit")
        if (jwks is None) == (key is None):
            raise ConfigurationError("Jwt: give either jwks or key")
        if not 0 <= leeway <= 300:
            raise ConfigurationError("Jwt: leeway must be a number of seconds, 0 to 300")
        pinned = check_algorithms(algorithms)
        library = _library()
        self._issuer = issuer
        self._leeway = leeway
        self._permissions = permissions
        self._context = context
        self._clock = clock
        self._invalid: type[Exception] = library.InvalidTokenError
        self._verifier = library.Verifier(pinned)
        self._keys: KeySource = (
            key_source(jwks, lambda document: library.read_key_set(document, pinned))
            if jwks is not None
            else GivenKeys((library.read_key(key or b"", pinned),))
        )
        self.challenge = Challenge(
            action=f"Send an access token of {issuer} in the header 'Authorization: Bearer TOKEN'.", issuers=(issuer,)
        )

    def __call__(self, credentials: Credentials, /) -> AgentContext | Coroutine[Any, Any, AgentContext | None] | None:
        """Return the context of the presented token; None if it is not valid. A coroutine if keys have to be fetched.

        Raises:
            AgentError: ``AUTHENTICATION_UNAVAILABLE``: the keys cannot be read.
        """
        if credentials.bearer is None:
            return None
        try:
            token = self._verifier.read(credentials.bearer)
        except self._invalid as reason:
            _log_refusal(reason)
            return None
        keys = self._keys.at_once(is_known=lambda keys: self._verifier.find_key(keys, token) is not None)
        return self._fetch(token) if keys is None else self._verify(token, keys)

    async def _fetch(self, token: jose.Token) -> AgentContext | None:
        return self._verify(token, await self._keys.fetch())

    def _verify(self, token: jose.Token, keys: Keys) -> AgentContext | None:
        key = self._verifier.find_key(keys, token)
        if key is None:
            _log_refusal("its key is not known")
            return None
        try:
            claims = self._verifier.claims(token, key)
        except self._invalid as reason:
            _log_refusal(reason)
            return None
        problem = self._problem(claims)
        if problem is not None:
            _log_refusal(problem)
            return None
        if self._context is not None:
            return self._context(claims)
        names = _texts(claims.get(self._permissions, ""))
        if names is None:
            _log_refusal(f"its claim {self._permissions} is neither a text nor a list of texts")
            return None
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            _log_refusal("it has no subject")
            return None
        return AgentContext(principal=subject, permissions=frozenset(names))

    def _problem(self, claims: Mapping[str, Any]) -> str | None:
        """Why the claims are not accepted, if they are not."""
        if claims.get("iss") != self._issuer:
            return "it is of another issuer"
        audience = claims.get("aud")
        if self._audiences.isdisjoint([audience] if isinstance(audience, str) else _texts(audience) or ()):
            return "it is for another audience"
        now = self._clock()
        for name in ("exp", "nbf", "iat"):
            if name in claims and not _is_time(claims[name]):
                return f"its claim {name} is no time"
        if "exp" not in claims:
            return "it never expires"
        if now >= claims["exp"] + self._leeway:
            return "it has expired"
        if any(now < claims[name] - self._leeway for name in ("nbf", "iat") if name in claims):
            return "it is not valid yet"
        return None

    def __repr__(self) -> str:
        return f"<Jwt of {self._issuer}>"


def _library() -> Any:
    try:
        return importlib.import_module("carmy_engine._auth.jose")
    except ModuleNotFoundError as missing:
        raise missing_extra("Jwt", "auth", missing) from None


def _texts(value: object) -> list[str] | None:
    """The words of a text, or the texts of a list; None for anything else."""
    if isinstance(value, str):
        return value.split()
    try:
        return msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        return None


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _log_refusal(reason: object) -> None:
    log.debug("a token was refused: %s", reason)
