"""Validators of long arguments: they check in short steps, and stop at a bound of problems, memory and attempts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import CoreConfig, SchemaValidator, ValidationError

from .bounded_rules import Bounded, Counted
from .checkpoints import errors_of
from .nodes import Node, Types, whole
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
        rules = Bounded(types)
        self._validate = _validator(rules, root)
        self._arms = rules.recursive_arms

    def validate(self, data: bytes, work: Work) -> Any:
        """Check JSON bytes.

        Raises:
            InvalidLong: They are not valid.
            Abandoned: See there.
            TooCostly: See there.
        """
        if not work.is_output:
            work.step(self._bytes_needed(data))
        try:
            with begun(work):
                return self._validate(data)
        except ValidationError as problem:
            errors = errors_of(problem, work)
        # Outside the handler, or the error would keep pydantic's, and so the values, as its context.
        raise InvalidLong(errors)

    def _bytes_needed(self, data: bytes) -> int:
        """What this JSON needs before the first step, by estimate."""
        parsed = _bytes_parsed(data)
        if not self._arms:
            return parsed
        # Each arm that does not fit keeps a copy of the value, while the value's parts are tried.
        return parsed + int(_nested_bytes(data) / len(data) * parsed / 2) * (self._arms - 1)


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
    validate = _validator(rules, root)

    def counted(data: bytes) -> Any:
        with begun(Work(MAX_ATTEMPTS_AT_ONCE)):
            return validate(data)

    return counted


# A string without an end goes on to the end of the text, or looking for its end would start at each quotation mark again.
_STRING = r'"(?:[^"\\]|\\.)*+"?'
_STRINGS_AND_BRACKETS = re.compile(rf"{_STRING}|[\[\]{{}}]".encode(), re.DOTALL)


def marks_in(data: bytes) -> int:
    """The commas and opening brackets, those in strings among them."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _bytes_parsed(data: bytes) -> int:
    """What this JSON needs as pydantic parses it, by estimate."""
    found = _bytes_of_marks(data)
    if found < MAX_BYTES // 2:
        return found
    # Marks in strings are none, but it takes long to leave them out.
    marks = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    strings = marks.count(b'"') // 2
    marks = marks.replace(b'""', b"")
    in_strings = sum(_bytes_of_marks(match[0][1:-1]) for match in _STRINGS_OF_MARKS.finditer(marks))
    return _bytes_of_marks(marks.replace(b'"', b"")) - in_strings + strings * _BYTES_PER_STRING


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


def _nested_bytes(data: bytes) -> int:
    """The most that the sizes of an array or object, one of its parts, one of that one's parts and so on add up to."""
    starts: list[int] = []
    sums = [0]
    for match in _STRINGS_AND_BRACKETS.finditer(data):
        mark = data[match.start()]
        if mark in b"[{":
            starts.append(match.start())
            sums.append(0)
        elif mark in b"]}" and starts:
            size = match.end() - starts.pop() + sums.pop()
            sums[-1] = max(sums[-1], size)
    return max(sums)


def _validator(rewriter: Counted, root: Node) -> Callable[[bytes], Any]:
    made, definitions = rewriter.rewritten(root)
    return SchemaValidator(
        whole(made, definitions.values()), CoreConfig(strict=True), _use_prebuilt=False
    ).validate_json
