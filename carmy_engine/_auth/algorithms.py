"""Algorithms of signed tokens (RFC 7518, RFC 8037, RFC 9864), and what their keys have to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._model.errors import ConfigurationError

KEY_TYPES: Mapping[str, str] = {
    **{f"{family}{bits}": "RSA" for family in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
    "EdDSA": "OKP",
    "Ed25519": "OKP",
    **{f"HS{bits}": "oct" for bits in (256, 384, 512)},
}
"""The type of key that each algorithm needs. ``none`` is no algorithm."""

MIN_RSA_BITS = 2048
"""Of the modulus of an RSA key (RFC 7518, 3.3)."""

MIN_SECRET_BYTES = 32
"""Of a shared secret (RFC 7518, 3.2)."""


def check_algorithms(algorithms: Sequence[str]) -> tuple[str, ...]:
    """The algorithms of a verifier.

    Raises:
        ConfigurationError: There is none, one is unknown, or they mix shared secrets with public keys: a public key would then be
            accepted as the secret that signs.
    """
    if isinstance(algorithms, str) or not algorithms:
        raise ConfigurationError("algorithms must be a list of at least one, such as ['RS256']")
    for name in algorithms:
        if name not in KEY_TYPES:
            raise ConfigurationError(f"algorithms: {name!r} is not one of {', '.join(KEY_TYPES)}")
    if len({KEY_TYPES[name] == "oct" for name in algorithms}) > 1:
        raise ConfigurationError(
            "algorithms: HS256, HS384 and HS512 use a shared secret, the others a public key; list one kind only"
        )
    return tuple(algorithms)
