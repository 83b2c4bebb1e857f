"""The headers in which client and server agree on formats: ``Accept``, ``Content-Type``, ``If-None-Match``."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

_PARAMETER = re.compile(r';[ \t]*([^\s=;,"]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^\s;,"]*)')
_ITEM = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"?+)++')
_WEIGHT = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\Z")

MAX_CACHED_HEADERS = 256
"""Distinct header values whose reading is remembered; clients send very few."""


def wants_events(accept: Sequence[bytes]) -> bool:
    """True when the client prefers a stream of events: named outright, and weighted at least as high as JSON.

    ``*/*`` and ``text/*`` do not ask for a stream. Several header lines count as one list (RFC 9110, 5.3).
    """
    if not accept:
        return False
    return _wants_events(accept[0] if len(accept) == 1 else b",".join(accept))


@functools.lru_cache(MAX_CACHED_HEADERS)
def _wants_events(accept: bytes) -> bool:
    weights: dict[str, float] = {}
    for item in _ITEM.findall(accept.decode("latin-1").lower()):
        media, _, _ = item.partition(";")
        weights[media.strip()] = _weight(item)
    events = weights.get("text/event-stream", 0.0)
    return events > 0.0 and events >= weights.get("application/json", 0.0)


@functools.lru_cache(MAX_CACHED_HEADERS)
def _ranges(accept: bytes) -> frozenset[str]:
    return frozenset(item.partition(";")[0].strip() for item in _ITEM.findall(accept.decode("latin-1").lower()))


def accepts(accept: Sequence[bytes], media: str) -> bool:
    """True when ``Accept`` names a type, outright or by a range, whatever its weight. Without the header, no type is named."""
    ranges = _ranges(b",".join(accept))
    return media in ranges or "*/*" in ranges or f"{media.partition('/')[0]}/*" in ranges


def _weight(item: str) -> float:
    for name, value in _PARAMETER.findall(item):
        if name == "q":
            return float(value) if _WEIGHT.match(value) else 0.0
    return 1.0


@functools.lru_cache(MAX_CACHED_HEADERS)
def content_type_problem(value: bytes | None) -> str | None:
    """What is wrong with a ``Content-Type`` of a JSON body; None when it is fine.

    ``application/json`` and ``application/*+json`` are fine, in UTF-8 if a charset is named.
    """
    if value is None:
        return "the header Content-Type is missing; send application/json"
    text = value.decode("latin-1").lower()
    media, _, _ = text.partition(";")
    media = media.strip()
    if media != "application/json" and not re.fullmatch(r"application/[a-z0-9!#$&^_.+-]+\+json", media):
        return "the header Content-Type must be application/json"
    for name, raw in _PARAMETER.findall(text):
        if name == "charset" and raw.strip('"') not in {"utf-8", "utf8", "us-ascii"}:
            return "the charset of a JSON body is utf-8"
    return None


def matches_etag(header: Sequence[bytes], etag: bytes) -> bool:
    """True when ``If-None-Match`` names this entity tag: lists, ``*`` and weak tags included (RFC 9110, 13.1.2)."""
    for line in header:
        for item in line.split(b","):
            candidate = item.strip()
            if candidate == b"*" or candidate.removeprefix(b"W/") == etag:
                return True
    return False
