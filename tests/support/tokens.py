"""An issuer of signed tokens, with keys of its own."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from carmy_engine.abc import Credentials

ISSUER, AUDIENCE = "https://id.example", "https://shop.example"
SECRET = "a secret of at least thirty-two bytes"

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "other"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})


def key_set(*keys: RSAKey | ECKey | OctKey) -> bytes:
    """The public keys, as an issuer publishes them."""
    return json.dumps({"keys": [key.as_dict(private=isinstance(key, OctKey)) for key in keys]}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a valid token for Ana, changed; None removes one."""
    now = int(time.time())
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "iat": now, "exp": now + 300, "scope": "tool:greet"}
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def sign(
    payload: Mapping[str, Any] | bytes,
    key: Any = RSA,
    header: Mapping[str, Any] | None = None,
    algorithm: str = "RS256",
) -> str:
    """A signed token. By hand: the library refuses to make the wrong ones."""
    full = {"alg": algorithm, "kid": key.kid, **(header or {})}
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signed = f"{encode({name: value for name, value in full.items() if value is not None})}.{encode(content)}"
    return f"{signed}.{encode(jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key))}"


def encode(part: Mapping[str, Any] | bytes) -> str:
    """A part of a token."""
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def present(token: str | None, **headers: str) -> Credentials:
    """The credentials of a caller."""
    return Credentials(transport="http", bearer=token, headers=headers, peer=None)
