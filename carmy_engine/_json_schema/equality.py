"""Equality of JSON values as JSON Schema defines it (2020-12 Core, 4.2.2): 1 equals 1.0, and true does not equal 1."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .._model.type_guards import is_dict, is_list

_EXACT = 2**53
"""Below this, every integer is a float and the other way round."""

_WORDS = {None: "null", True: "true", False: "false"}


def canonical(value: Any) -> str:
    """A text that two values share exactly if they are equal.

    A set of texts cannot be made slow by its content, unlike a set of numbers: their hashes are known in advance.
    """
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    if is_list(value):
        return f"[{','.join(map(canonical, value))}]"
    if is_dict(value):
        return f"{{{','.join(sorted(f'{json.dumps(name)}:{canonical(part)}' for name, part in value.items()))}}}"
    return _WORDS[value]


def _number(value: float) -> str:
    if abs(value) < _EXACT:
        return str(int(value)) if value == int(value) else repr(value)
    try:
        return repr(float(value)) if float(value) == value else str(value)
    except OverflowError:  # an integer that no float can hold
        return str(value)


def are_unique(values: Iterable[Any]) -> bool:
    """True if no two values are equal. Linear in their size."""
    seen: set[str] = set()
    for value in values:
        text = canonical(value)
        if text in seen:
            return False
        seen.add(text)
    return True
