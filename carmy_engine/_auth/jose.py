"""Signed tokens (RFC 7515) and public keys (RFC 7517), by joserfc. The only file that imports it.

The library is called behind the error boundary: whatever it raises for a stranger's token means that the token is not valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from joserfc import jwk, jws
from joserfc.jwa import JWSAlgModel

from .._model.error_boundary import Fault, call_foreign
from .._model.errors import AgentError, ConfigurationError
from .algorithms import KEY_TYPES, MIN_RSA_BITS, MIN_SECRET_BYTES

MAX_HEADER_BYTES = 8192
"""Of a token's header, encoded. Some issuers put a chain of certificates there, which is not used."""


class InvalidTokenError(Exception):
    """The token is not valid. The text is a reason for the log and never contains the token."""


class VerificationKey(NamedTuple):
    """A key that verifies signatures.

    Attributes:
        kid: Its name, if it has one.
        key: The key of the library.
    """

    kid: str | None
    key: jwk.Key


class Token(NamedTuple):
    """A token whose signature has not been verified yet.

    Attributes:
        algorithm: The algorithm that it names.
        kid: The key that it names.
        parts: The token of the library.
    """

    algorithm: str
    kid: str | None
    parts: jws.CompactSignature


class _PinnedRegistry(jws.JWSRegistry):
    """The algorithms that the host has listed, and no other. Deprecated ones are the host's decision, so there is no warning."""

    max_header_length = MAX_HEADER_BYTES

    def get_alg(self, name: str) -> JWSAlgModel:
        """See `JWSRegistry`."""
        if name not in (self.allowed or ()):
            raise InvalidTokenError("its algorithm is not one of those that are accepted")
        return self.algorithms[name]


class Verifier:
    """Reads tokens and verifies their signatures by one of a fixed list of algorithms.

    Args:
        algorithms: Their names, from `KEY_TYPES`.
    """

    def __init__(self, algorithms: Sequence[str]) -> None:
        self._registry = _PinnedRegistry(algorithms=algorithms, strict_check_header=False)

    def read(self, token: str) -> Token:
        """The parts of a token.

        Raises:
            InvalidTokenError: It is malformed, or its algorithm is not one of the list.
        """
        parts = cast("jws.CompactSignature", _valid(jws.extract_compact, token.encode(), None, self._registry))
        header: dict[str, Any] = parts.headers()
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
            raise InvalidTokenError("its header is malformed")
        if "crit" in header or "b64" in header:
            raise InvalidTokenError("its header requires an extension")
        kind = header.get("typ", "JWT")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in ("jwt", "at+jwt"):
            raise InvalidTokenError("its type is not that of an access token")
        self._registry.get_alg(algorithm)
        return Token(algorithm, kid, parts)

    def find_key(self, keys: Iterable[VerificationKey], token: Token) -> VerificationKey | None:
        """The key that a token names; the only fitting one, if it names none. None if there is no such key, or several."""
        fitting = [key for key in keys if self._fits(key, token.algorithm)]
        found = [key for key in fitting if key.kid == token.kid] if token.kid is not None else fitting
        if not found:
            found = [key for key in fitting if key.kid is None]
        return found[0] if len(found) == 1 else None

    def _fits(self, key: VerificationKey, algorithm: str) -> bool:
        def check() -> None:
            key.key.check_use("sig")
            key.key.check_alg(algorithm)
            key.key.check_key_op("verify")
            self._registry.get_alg(algorithm).check_key(key.key)

        try:
            _valid(check)
        except InvalidTokenError:
            return False
        return True

    def claims(self, token: Token, key: VerificationKey) -> dict[str, Any]:
        """The claims of a token, once its signature is verified.

        Raises:
            InvalidTokenError: The signature is wrong, or the claims are no JSON object.
        """
        if _valid(jws.validate_compact, token.parts, key.key, None, self._registry) is not True:
            raise InvalidTokenError("its signature is wrong")
        try:
            return msgspec.json.decode(token.parts.payload, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise InvalidTokenError("its claims are no JSON object") from None


def _valid(function: Any, *args: Any) -> object:
    try:
        return call_foreign(function, *args)
    except InvalidTokenError:
        raise
    except Fault as fault:
        if isinstance(fault.origin, InvalidTokenError):
            raise fault.origin from None
        raise InvalidTokenError(f"it is malformed ({type(fault.origin).__name__})") from None
    except AgentError:
        raise InvalidTokenError("it is malformed") from None


class _KeySet(msgspec.Struct):
    """A set of keys (RFC 7517, section 5)."""

    keys: list[dict[str, Any]]


def read_key_set(document: bytes, algorithms: Sequence[str]) -> tuple[VerificationKey, ...]:
    """The keys of a JSON Web Key Set that fit one of the algorithms. Others are left out, as the standard demands.

    Raises:
        ConfigurationError: It is no key set, or has no key for any of the algorithms.
    """
    try:
        listed = msgspec.json.decode(document, type=_KeySet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigurationError('is not a JSON Web Key Set: {"keys": [...]}') from None
    kinds = {KEY_TYPES[name] for name in algorithms}
    keys: list[VerificationKey] = []
    for data in listed:
        kid, kind = data.get("kid"), data.get("kty")
        if kind not in kinds or not (kid is None or isinstance(kid, str)):
            continue
        key = _import(data, kind)
        if key is not None and _weakness(key) is None:
            keys.append(VerificationKey(kid, key))
    if not keys:
        raise ConfigurationError(f"has no key that can verify {', '.join(algorithms)}")
    return tuple(keys)


def read_key(given: str | bytes, algorithms: Sequence[str]) -> VerificationKey:
    """A public key in PEM, or a shared secret, as the algorithms need it.

    Raises:
        ConfigurationError: It is neither, or too weak.
    """
    for kind in dict.fromkeys(KEY_TYPES[name] for name in algorithms):
        key = _import(given, kind)
        if key is None:
            continue
        if kind != "oct" and key.is_private:
            raise ConfigurationError("the key is private: give the public key, which is all that verifying needs")
        if (weakness := _weakness(key)) is not None:
            raise ConfigurationError(weakness)
        return VerificationKey(None, key)
    raise ConfigurationError(
        f"the key cannot verify {', '.join(algorithms)}: give a public key in PEM, or the secret for HS256"
    )


def _import(data: dict[str, Any] | str | bytes, kind: str) -> jwk.Key | None:
    try:
        return cast("jwk.Key", call_foreign(cast("Any", jwk.import_key), data, kind))
    except (Fault, AgentError):
        return None


def _weakness(key: jwk.Key) -> str | None:
    if isinstance(key, jwk.OctKey) and len(key.raw_value) < MIN_SECRET_BYTES:
        return f"the secret has fewer than {MIN_SECRET_BYTES} bytes: it can be guessed"
    if isinstance(key, jwk.RSAKey) and key.raw_value.key_size < MIN_RSA_BITS:
        return f"the key has fewer than {MIN_RSA_BITS} bits: it can be broken"
    return None
