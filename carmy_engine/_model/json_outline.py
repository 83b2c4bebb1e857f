"""Outlines of long JSON: the places at which its long arrays and objects can be cut into short pieces.

A parser of JSON holds the interpreter from the first byte to the last. A document that is parsed piece by piece, in a worker
thread, delays the event loop by one piece.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

PIECE_BYTES = 16 * 1024
"""Size from which a piece ends at the next comma. The most expensive piece of this size takes a parser less than a millisecond."""

MAX_LEVELS = 128
"""Nesting up to which there is an outline: readers of outlines call themselves for each level. Requests are not nested deeper."""

_STRING = rb'"[^"\\]{0,200}+(?:\\.[^"\\]{0,100}+){0,20}+"'
_LEAF = rb'[\[{][^"\[\]{}]{0,200}+(?:%b[^"\[\]{}]{0,100}+){0,20}+[\]}]' % _STRING
_SHORT = rb'[\[{][^"\[\]{}]{0,200}+(?:(?:%b|%b)[^"\[\]{}]{0,100}+){0,20}+[\]}]' % (_STRING, _LEAF)
_ITEMS = re.compile(
    rb'(?:[^"\[\]{},]{0,200}+(?:(?:%b|%b)[^"\[\]{},]{0,200}+){0,2}+,){1,64}+' % (_STRING, _SHORT), re.DOTALL
)
"""Short items or members, each with its comma. One match takes less than a millisecond."""
_BETWEEN = re.compile(rb'[^"\[\]{},]{0,10000}+')
"""The bytes up to a string, a bracket or a comma."""

_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPENING, _CLOSING = b"[{", b"]}"


@dataclasses.dataclass(slots=True)
class Part:
    """A part of a long array or object.

    Attributes:
        start: Offset of the first byte.
        end: Offset behind the last byte, without the comma.
        inner: The item or the value of the member, if that is long; None for a run of short items or members.
    """

    start: int
    end: int
    inner: Container | None = None


@dataclasses.dataclass(slots=True)
class Container:
    """An array or object longer than a piece.

    Attributes:
        start: Offset of the opening bracket.
        end: Offset behind the closing bracket.
        is_object: True for an object.
        parts: The content, in order.
    """

    start: int
    is_object: bool
    end: int = 0
    parts: list[Part] = dataclasses.field(default_factory=list[Part])
    run: int = 0
    """While reading: offset of the run that is not finished; -1 behind a long item."""
    item: int = 0
    """While reading: offset of the item that is not finished."""

    def add_run(self, end: int) -> None:
        """Finish the run, if there is one and anything in it."""
        if 0 <= self.run < end:
            self.parts.append(Part(self.run, end))


def outline(
    data: bytes, pulse: Callable[[], None], piece_bytes: int = PIECE_BYTES, max_levels: int = MAX_LEVELS
) -> Container | None:
    """The outline of a JSON array or object; None for other JSON, for what is shorter than a piece, and for what is nested too deep.

    Linear in the size of `data`. Arrays and objects that are not long are not in the outline. The brackets and strings of `data`
    must be balanced, as in what a parser has skipped; nothing else is checked.

    Args:
        data: One JSON value.
        pulse: Called after each piece; what it raises ends the reading.
        piece_bytes: See `PIECE_BYTES`.
        max_levels: See `MAX_LEVELS`.
    """
    at = len(data) - len(data.lstrip(b" \t\n\r"))
    if data[at : at + 1] not in (b"[", b"{"):
        return None
    stack: list[Container] = []
    while True:
        found = _ITEMS.match(data, at) if stack and stack[-1].run >= 0 else None
        if found is not None:
            at = found.end()
            _next_item(stack[-1], at, pulse, piece_bytes)
            continue
        between = _BETWEEN.match(data, at)
        assert between is not None
        at = between.end()
        if at >= len(data):
            raise ValueError("the brackets of the JSON are not balanced")
        byte = data[at]
        if byte == _QUOTE:
            at = string_end(data, at)
            continue
        at += 1
        if byte == _COMMA:
            _next_item(stack[-1], at, pulse, piece_bytes)
        elif byte in _OPENING:
            stack.append(Container(at - 1, byte == _OPENING[1], run=at, item=at))
            if len(stack) > max_levels:
                return None
        elif byte in _CLOSING:
            done = stack.pop()
            done.end = at
            is_long = at - done.start > piece_bytes
            if is_long:
                done.add_run(at - 1)
                pulse()
            if not stack:
                return done if is_long else None
            if is_long:
                around = stack[-1]
                around.add_run(around.item - 1)
                around.parts.append(Part(around.item, at, done))
                around.run = -1


def _next_item(around: Container, at: int, pulse: Callable[[], None], piece_bytes: int) -> None:
    """Go on behind a comma."""
    around.item = at
    if around.run < 0:  # behind a long item
        around.run = at
    elif at - around.run > piece_bytes:
        around.parts.append(Part(around.run, at - 1))
        around.run = at
        pulse()


def string_end(data: bytes, start: int) -> int:
    """The offset behind a string.

    Raises:
        ValueError: It has no end.
    """
    end = start
    while True:
        end = data.find(b'"', end + 1)
        if end < 0:
            raise ValueError("a string of the JSON has no end")
        before = end - 1
        while data[before] == _BACKSLASH:
            before -= 1
        if (end - before) % 2:  # an even number of backslashes
            return end + 1
