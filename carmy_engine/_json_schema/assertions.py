"""Keywords that are decided by the value alone: types, fixed values, limits and patterns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from .._model.type_guards import is_list
from .equality import are_unique, canonical
from .patterns import searcher

Holds = Callable[[Any], bool]
"""From a value to whether it passes. A value of a type that the keyword does not speak of passes."""

_NUMBERS = (int, float)


def _has_type(names: str | list[str]) -> Holds:
    checks = [_TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


_TYPES: Mapping[str, Holds] = {
    "array": lambda value: type(value) is list,
    "boolean": lambda value: type(value) is bool,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "null": lambda value: value is None,
    "number": lambda value: type(value) in _NUMBERS,
    "object": lambda value: type(value) is dict,
    "string": lambda value: type(value) is str,
}


def _is_one_of(choices: list[Any]) -> Holds:
    if all(type(choice) is str for choice in choices):
        texts = frozenset(choices)
        return lambda value: type(value) is str and value in texts
    kinds: set[type] = {type(choice) for choice in choices}
    if kinds & {int, float}:
        kinds |= {int, float}
    known = frozenset(map(canonical, choices))
    return lambda value: type(value) in kinds and canonical(value) in known


def _is_multiple_of(step: float) -> Holds:
    # Of the decimal numbers that the JSON holds, not of their floats: 0.0075 is a multiple of 0.0001.
    exact = Fraction(repr(step))

    def holds(value: Any) -> bool:
        if type(value) is int:
            return value % exact == 0
        return type(value) is not float or Fraction(repr(value)) % exact == 0

    return holds


def _number(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Holds]:
    return lambda limit: lambda value: type(value) not in _NUMBERS or compare(value, limit)


def _length(kind: type[Any], compare: Callable[[int, Any], bool]) -> Callable[[Any], Holds]:
    return lambda limit: lambda value: type(value) is not kind or compare(len(value), limit)


def _pattern(pattern: str) -> Holds:
    search = searcher(pattern)
    return lambda value: type(value) is not str or search(value)


def _unique(wanted: bool) -> Holds:
    return lambda value: not wanted or not is_list(value) or are_unique(value)


ASSERTIONS: Mapping[str, Callable[[Any], Holds]] = {
    "type": _has_type,
    "enum": _is_one_of,
    "const": lambda value: _is_one_of([value]),
    "multipleOf": _is_multiple_of,
    "maximum": _number(operator.le),
    "exclusiveMaximum": _number(operator.lt),
    "minimum": _number(operator.ge),
    "exclusiveMinimum": _number(operator.gt),
    "maxLength": _length(str, operator.le),
    "minLength": _length(str, operator.ge),
    "pattern": _pattern,
    "maxItems": _length(list, operator.le),
    "minItems": _length(list, operator.ge),
    "uniqueItems": _unique,
    "maxProperties": _length(dict, operator.le),
    "minProperties": _length(dict, operator.ge),
}
"""From a keyword and its value to the check. Cheap ones first: the first that fails often decides."""
