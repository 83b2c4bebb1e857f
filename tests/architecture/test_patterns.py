"""Regular expressions that see bytes of strangers take time linear in their number."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

PACKAGES = ["carmy_engine", "carmy_net", "carmy_frames", "carmy_http", "carmy_mcp", "carmy_stdio", "carmy_websocket"]

MANY = 64
"""Repetitions up to which a repeat counts as bounded."""

ALPHABET = frozenset(range(256))

_CATEGORIES = {
    codes.CATEGORY_SPACE: frozenset(b" \t\n\r\f\v"),
    codes.CATEGORY_DIGIT: frozenset(b"0123456789"),
    codes.CATEGORY_WORD: frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
}
_CATEGORIES |= {
    codes.CATEGORY_NOT_SPACE: ALPHABET - _CATEGORIES[codes.CATEGORY_SPACE],
    codes.CATEGORY_NOT_DIGIT: ALPHABET - _CATEGORIES[codes.CATEGORY_DIGIT],
    codes.CATEGORY_NOT_WORD: ALPHABET - _CATEGORIES[codes.CATEGORY_WORD],
}


def first(items: Any) -> tuple[frozenset[int], bool]:
    """The bytes with which a sequence can begin, and whether it can be empty."""
    found: frozenset[int] = frozenset()
    for op, argument in items:
        begins, is_empty = _first_of(op, argument)
        found |= begins
        if not is_empty:
            return found, False
    return found, True


def _first_of(op: Any, argument: Any) -> tuple[frozenset[int], bool]:
    if op is codes.LITERAL:
        return frozenset({argument}), False
    if op is codes.NOT_LITERAL:
        return ALPHABET - {argument}, False
    if op is codes.ANY:
        return ALPHABET - {10}, False
    if op is codes.IN:
        return _members(argument), False
    if op in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
        begins, is_empty = first(argument[2])
        return begins, is_empty or argument[0] == 0
    if op is codes.SUBPATTERN:
        return first(argument[3])
    if op is codes.ATOMIC_GROUP:
        return first(argument)
    if op is codes.BRANCH:
        parts = [first(branch) for branch in argument[1]]
        return frozenset().union(*(begins for begins, _ in parts)), any(is_empty for _, is_empty in parts)
    assert op in {codes.AT, codes.ASSERT, codes.ASSERT_NOT}, op
    return frozenset(), True


def _members(items: Any) -> frozenset[int]:
    found: set[int] = set()
    negated = False
    for op, argument in items:
        if op is codes.NEGATE:
            negated = True
        elif op is codes.LITERAL:
            found.add(argument)
        elif op is codes.RANGE:
            found.update(range(argument[0], min(argument[1], 255) + 1))
        else:
            found |= _CATEGORIES[argument]
    return ALPHABET - found if negated else frozenset(found)


def _is_loop(op: Any, argument: Any) -> bool:
    """A repeat that may give back what it has taken."""
    return (op in {codes.MAX_REPEAT, codes.MIN_REPEAT} and argument[1] is codes.MAXREPEAT) or (
        op in {codes.MAX_REPEAT, codes.MIN_REPEAT} and argument[1] > MANY
    )


def _parts(op: Any, argument: Any) -> list[Any]:
    if op in {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}:
        return [argument[2]]
    if op is codes.SUBPATTERN:
        return [argument[3]]
    if op is codes.ATOMIC_GROUP:
        return [argument]
    if op is codes.BRANCH:
        return list(argument[1])
    return [argument[1]] if op in {codes.ASSERT, codes.ASSERT_NOT} else []


def _loops(items: Any) -> Iterator[Any]:
    for op, argument in items:
        if _is_loop(op, argument):
            yield argument
        for part in _parts(op, argument):
            yield from _loops(part)


def _last_loops(op: Any, argument: Any) -> frozenset[int]:
    """The bytes that repeats at the end of an item may take, and give back to what follows."""
    found: frozenset[int] = frozenset()
    if _is_loop(op, argument):
        found |= first(argument[2])[0]
    for part in _parts(op, argument):
        if op in {codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP, codes.ASSERT, codes.ASSERT_NOT}:
            continue
        for last_op, last_argument in reversed(list(part)):
            found |= _last_loops(last_op, last_argument)
            if not _first_of(last_op, last_argument)[1]:
                break
    return found


def problems(items: Any) -> Iterator[str]:
    """Where a match can divide the same bytes between two repeats in more than one way, which costs at least quadratic time."""
    sequence = list(items)
    for at, (op, argument) in enumerate(sequence):
        for part in _parts(op, argument):
            yield from problems(part)
        taken = _last_loops(op, argument)
        for next_op, next_argument in sequence[at + 1 :]:
            begins, is_empty = _first_of(next_op, next_argument)
            if begins & taken and any(True for _ in _loops([(next_op, next_argument)])):
                yield f"two repeats side by side take {bytes(sorted(begins & taken))[:8]!r}"
            if not is_empty:
                break
        if _is_loop(op, argument):
            again = first(argument[2])[0]
            for last_op, last_argument in reversed(list(argument[2])):
                if _last_loops(last_op, last_argument) & again:
                    yield "a repeat within a repeat takes the same bytes"
                if not _first_of(last_op, last_argument)[1]:
                    break


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Every pattern of the engine and the transports, by its name."""
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError:
                if found.name.startswith("carmy_engine.integrations."):
                    continue  # its framework is not installed here
                raise
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    yield f"{found.name}.{name}", value


PATTERNS = dict(patterns())


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_linear(name: str) -> None:
    """No pattern lets two repeats take the same bytes, so that doubling what it sees doubles its work and no more."""
    pattern = PATTERNS[name]
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags & ~re.UNICODE
    assert list(problems(parser.parse(pattern.pattern, flags))) == []


@pytest.mark.parametrize(
    "pattern",
    [
        rb"[!-~]+:[ \t]*(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?[ \t]*",
        rb"([0-9A-Fa-f]{1,20})(?:;[^\n]*)?[ \t]*\r\n",
        rb"(?:a+)+b",
        rb"a*a*b",
        rb"\s*[ \t]*x",
    ],
)
def test_patterns_that_are_not_linear_are_found(pattern: bytes) -> None:
    """The check itself finds those that once stopped the process, and their kind."""
    assert list(problems(parser.parse(pattern)))


def test_there_are_patterns() -> None:
    """The search for patterns finds some in every place that has them."""
    assert {name.split(".")[0] for name in PATTERNS} >= {"carmy_net", "carmy_http"}
