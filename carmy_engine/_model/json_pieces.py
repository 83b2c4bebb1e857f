"""Long JSON decoded, and brought into a canonical form, piece by piece; see `json_outline`."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from . import json_outline
from .json_outline import Container, Part

_SORTED_AT_ONCE = 1024
"""Names that are sorted in one step."""

_name = msgspec.json.Decoder(str)


def no_pulse() -> None:
    """Do nothing after each piece: the caller waits for the whole document."""


def read_in_pieces(data: bytes, decode: Callable[[bytes], Any], pulse: Callable[[], None]) -> None:
    """Decode JSON bytes without keeping the value; see `decode_in_pieces`."""
    container = outline_of(data, pulse)
    if container is None:
        decode(data)
    else:
        _read(data, container, decode, pulse)


def _read(data: bytes, container: Container, decode: Callable[[bytes], Any], pulse: Callable[[], None]) -> None:
    for part in container.parts:
        pulse()
        if part.inner is None:
            decode(run_of(data, container, part))
        else:
            _read(data, part.inner, decode, pulse)


def decode_in_pieces(data: bytes, decode: Callable[[bytes], Any], pulse: Callable[[], None]) -> Any:
    """The value of JSON bytes.

    Args:
        data: One JSON value.
        decode: Makes the value of a piece. What it raises ends the decoding.
        pulse: Called after each piece; what it raises ends the decoding.
    """
    container = outline_of(data, pulse)
    return decode(data) if container is None else _decoded(data, container, decode, pulse)


def canonical_pieces(
    data: bytes, decoder: msgspec.json.Decoder[Any], encoder: msgspec.json.Encoder, pulse: Callable[[], None]
) -> Iterator[bytes]:
    """The bytes that the encoder makes of a value, in pieces.

    Args:
        data: One valid JSON value.
        decoder: Makes the value.
        encoder: Writes it. It sorts names.
        pulse: See `decode_in_pieces`.
    """
    container = outline_of(data, pulse)
    if container is None:
        yield encoder.encode(decoder.decode(data))
    else:
        yield from _canonical(data, container, decoder, encoder, pulse)


def outline_of(data: bytes, pulse: Callable[[], None], max_levels: int = json_outline.MAX_LEVELS) -> Container | None:
    """The outline of JSON; None for what is short, nested too deep, or no JSON."""
    try:
        return json_outline.outline(data, pulse, json_outline.PIECE_BYTES, max_levels)
    except ValueError:
        return None  # no JSON: the parser reports it


def key_of(data: bytes, part: Part) -> str:
    """The name of a long member."""
    assert part.inner is not None
    return _name.decode(data[part.start : part.inner.start].rstrip(b" \t\n\r")[:-1])


def run_of(data: bytes, container: Container, part: Part) -> bytes:
    """An array or object of the items or members of a run."""
    opening, closing = (b"{", b"}") if container.is_object else (b"[", b"]")
    return opening + data[part.start : part.end] + closing


def _decoded(data: bytes, container: Container, decode: Callable[[bytes], Any], pulse: Callable[[], None]) -> Any:
    named: dict[str, Any] = {}
    items: list[Any] = []
    for part in container.parts:
        pulse()
        if part.inner is None:
            made = decode(run_of(data, container, part))
        else:
            inner = _decoded(data, part.inner, decode, pulse)
            made = {key_of(data, part): inner} if container.is_object else [inner]
        if container.is_object:
            named.update(made)
        else:
            items += made
    return named if container.is_object else items


def _canonical(
    data: bytes,
    container: Container,
    decoder: msgspec.json.Decoder[Any],
    encoder: msgspec.json.Encoder,
    pulse: Callable[[], None],
) -> Iterator[bytes]:
    if container.is_object:
        yield from _canonical_object(data, container, decoder, encoder, pulse)
        return
    between = b""
    yield b"["
    for part in container.parts:
        pulse()
        if part.inner is not None:
            yield between
            yield from _canonical(data, part.inner, decoder, encoder, pulse)
            between = b","
        elif items := encoder.encode(decoder.decode(run_of(data, container, part)))[1:-1]:
            yield between + items
            between = b","
    yield b"]"


def _canonical_object(
    data: bytes,
    container: Container,
    decoder: msgspec.json.Decoder[Any],
    encoder: msgspec.json.Encoder,
    pulse: Callable[[], None],
) -> Iterator[bytes]:
    members: dict[str, Any] = {}  # of a name that is there twice the last value counts
    for part in container.parts:
        pulse()
        if part.inner is None:
            members.update(decoder.decode(run_of(data, container, part)))
        else:
            members[key_of(data, part)] = part.inner
    between = b""
    yield b"{"
    for count, name in enumerate(_sorted(members)):
        if count % _SORTED_AT_ONCE == 0:
            pulse()
        value = members.pop(name)
        yield between + encoder.encode(name) + b":"
        if isinstance(value, Container):
            yield from _canonical(data, value, decoder, encoder, pulse)
        else:
            yield encoder.encode(value)
        between = b","
    yield b"}"


def _sorted(names: dict[str, Any]) -> Iterator[str]:
    """The names in order, sorted in steps."""
    left = iter(list(names))
    return heapq.merge(*(sorted(some) for some in iter(lambda: list(itertools.islice(left, _SORTED_AT_ONCE)), [])))
