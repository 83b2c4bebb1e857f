"""The fingerprint of a request: a hash of its canonical form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .json_pieces import canonical_pieces

_LARGEST_EXACT = 2**53


def _number(text: str) -> float | int:
    """1.0 and 1 are one number, as in JSON canonicalisation (RFC 8785)."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else value


_decoder = msgspec.json.Decoder(float_hook=_number)
_encoder = msgspec.json.Encoder(order="sorted", decimal_format="string")


def fingerprint(
    tool: str, arguments: bytes, metadata: Mapping[str, Any] | None, pulse: Callable[[], None] | None = None
) -> bytes:
    """SHA-256 over tool, arguments and metadata in canonical form.

    The order of keys and the spelling of numbers do not matter. Defaults are not filled in: they may change with the
    program, and a default factory returns a new value each time.

    Args:
        tool: The tool's name.
        arguments: A JSON object that has passed validation.
        metadata: The request's metadata; None and empty are the same.
        pulse: For long arguments: they are hashed in pieces, and this is called after each.
    """
    if pulse is not None:
        digest = hashlib.sha256(b"[%b," % _encoder.encode(tool))
        for piece in canonical_pieces(arguments, _decoder, _encoder, pulse):
            digest.update(piece)
        digest.update(b",%b]" % _encoder.encode(metadata or {}))
        return digest.digest()
    canonical = _encoder.encode((tool, _decoder.decode(arguments), metadata or {}))
    return hashlib.sha256(canonical).digest()
