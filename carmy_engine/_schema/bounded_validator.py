"""Validators of long arguments: they check in short steps, and stop at a bound of problems, memory and attempts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._model.json_outline import string_end
from .bounded_rules import Counted
from .nodes import Node, Types
from .piecewise import Piecewise
from .work import MAX_ATTEMPTS_AT_ONCE, MAX_BYTES, Work, begun

# What pydantic's parser needs, with the copies that lists read item by item need, as measured.
_BYTES_PER_VALUE = 95
_BYTES_PER_STRING = 60
_BYTES_PER_NAME = 120
_BYTES_PER_ARRAY = 200
_BYTES_PER_OBJECT = 170
"""Besides what their parts need, and if there are any."""


class BoundedValidator:
    """The validator of one tool's long arguments, or of its long outputs."""

    def __init__(self, types: Types, root: Node) -> None:
        """Build it.

        Args:
            types: The rewritten types, from `argument_rules` or `output_rules`.
            root: The type of the whole document.
        """
        self._root = root
        self._pieces = Piecewise(types)

    def validate(self, data: bytes, work: Work) -> Any:
        """Check JSON bytes.

        Raises:
            InvalidLong: They are not valid.
            Abandoned: See there.
            TooCostly: See there.
        """
        work.failures = 0  # an output is validated again after it was converted
        if not work.is_output:
            work.step(self._bytes_needed(data, work.pause))
        with begun(work):
            value, errors = self._pieces.read(self._root, data, work)
        if errors:
            raise InvalidLong(errors)
        return value

    def _bytes_needed(self, data: bytes, pulse: Callable[[], None]) -> int:
        """What this JSON needs before the first step, by estimate."""
        parsed = _bytes_parsed(data, pulse)
        arms = self._pieces.recursive_arms
        if not arms:
            return parsed
        # Each arm that does not fit keeps a copy of the value, while the value's parts are tried.
        return parsed + int(_nested_bytes(data, pulse) / len(data) * parsed / 2) * (arms - 1)


class InvalidLong(Exception):  # noqa: N818 - control flow
    """Long arguments are not valid.

    Attributes:
        errors: In the form of ``ValidationError.errors()``, as many as fit into an answer.
    """

    def __init__(self, errors: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.errors = errors


def counting_validator(types: Types, root: Node) -> Callable[[bytes], Any] | None:
    """A validator for the event loop that raises `TooCostly` where recursive unions try too much.

    Returns:
        None for types without recursive unions, which cannot.
    """
    rules = Counted(types)
    if not rules.recursive_arms:
        return None
    validate = rules.validator(root)

    def counted(data: bytes) -> Any:
        with begun(Work(MAX_ATTEMPTS_AT_ONCE)):
            return validate(data)

    return counted


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.){0,1000}+"|[^"\[\]{}]{1,10000}+|["\[\]{}]', re.DOTALL)
_SLICE_BYTES = 64 * 1024
"""Bytes that are searched in one step."""
_TOKENS_PER_PULSE = 1000


def _slices(data: bytes, pulse: Callable[[], None]) -> Iterator[bytes]:
    """The data in slices, none of which ends inside an escape."""
    start = 0
    while start < len(data):
        end = start + _SLICE_BYTES
        while data[end - 1 : end] == b"\\":
            end += 1
        yield data[start:end]
        start = end
        pulse()


def marks_in(data: bytes) -> int:
    """The commas and opening brackets, those in strings among them."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _bytes_parsed(data: bytes, pulse: Callable[[], None]) -> int:
    """What this JSON needs as pydantic parses it, by estimate."""
    found = sum(map(_bytes_of_marks, _slices(data, pulse)))
    if found < MAX_BYTES // 2:
        return found
    # Marks in strings are none, but it takes long to leave them out.
    found = 0
    is_inside = False
    for text in _slices(data, pulse):
        marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
        if is_inside:
            marks = b'"' + marks
        is_inside = marks.count(b'"') % 2 == 1
        if is_inside:
            marks += b'"'
        strings = marks.count(b'"') // 2
        marks = marks.replace(b'""', b"")
        in_strings = sum(_bytes_of_marks(match[0][1:-1]) for match in _STRINGS_OF_MARKS.finditer(marks))
        found += _bytes_of_marks(marks.replace(b'"', b"")) - in_strings + strings * _BYTES_PER_STRING
    return found


_NO_MARKS = bytes(set(range(256)) - set(b'",:[]{}'))
_STRINGS_OF_MARKS = re.compile(rb'"[^"]*+"')


def _bytes_of_marks(data: bytes) -> int:
    return (
        marks_in(data) * _BYTES_PER_VALUE
        + data.count(b'"') // 2 * _BYTES_PER_STRING
        + data.count(b":") * _BYTES_PER_NAME
        + (data.count(b"[") - data.count(b"[]")) * _BYTES_PER_ARRAY
        + (data.count(b"{") - data.count(b"{}")) * _BYTES_PER_OBJECT
    )


def _nested_bytes(data: bytes, pulse: Callable[[], None]) -> int:
    """The most that the sizes of an array or object, one of its parts, one of that one's parts and so on add up to."""
    starts: list[int] = []
    sums = [0]
    at = count = 0
    while (match := _TOKENS.match(data, at)) is not None:
        count += 1
        if count % _TOKENS_PER_PULSE == 0:
            pulse()
        start, at = at, match.end()
        mark = data[start]
        if mark in b"[{":
            starts.append(start)
            sums.append(0)
        elif mark in b"]}" and starts:
            size = at - starts.pop() + sums.pop()
            sums[-1] = max(sums[-1], size)
        elif mark == b'"'[0] and at == start + 1:
            at = string_end(data, start)
    return max(sums)
