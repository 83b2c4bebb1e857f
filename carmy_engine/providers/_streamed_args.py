"""Arguments of Gemini that come as single values (``streamFunctionCallArguments``, in Vertex AI), put together.

A call in pieces begins with its name, goes on as parts without one, each with ``partialArgs`` (a path and a value) and
``willContinue``, and ends with a part that does not continue, mostly an empty one. Texts come in several pieces under the
same path. That a piece continues is not always followed by another, so only the flag of the call counts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from typing import Any

from .._model.codec import MAX_JSON_DEPTH
from .._model.type_guards import is_dict, is_list
from ._base import look, many

_STEP = re.compile(r"""\.([^\s.\[\]]+)|\[(\d{1,9})\]|\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]""")
"""A member by its name, an item by its place, or a member by its name in quotes (RFC 9535)."""

_VALUES = ("stringValue", "numberValue", "boolValue")
_SNAKE = {"stringValue": "string_value", "numberValue": "number_value", "boolValue": "bool_value"}


def whole_calls(calls: Iterable[Any]) -> list[Any]:
    """The calls of a turn, those in pieces as one each.

    One that does not end has arguments that end in the middle, like those of providers that stream JSON.

    Raises:
        ValueError: A piece has no place in the arguments before it.
    """
    made: list[Any] = []
    begun: dict[str, Any] | None = None
    for call in calls:
        pieces = many(look(call, "partialArgs", "partial_args"))
        continues = look(call, "willContinue", "will_continue") is True
        name = look(call, "name")
        if begun is None or name is not None:
            begun = None
            if not pieces and not continues:
                made.append(call)
                continue
            begun = {"name": name, "id": look(call, "id"), "args": {}}
            made.append(begun)
        for piece in pieces:
            _put(begun["args"], piece)
        if not continues:
            begun = None
    if begun is not None:
        begun["args"] = json.dumps(begun["args"])[:-1]
    return made


def _put(arguments: dict[str, Any], piece: Any) -> None:
    """Put one value at its path; append a text to a text that is there already."""
    found = [value for name in _VALUES if (value := look(piece, name, _SNAKE[name])) is not None]
    value = found[0] if found else None
    if not found and look(piece, "nullValue", "null_value") is None:
        return  # an empty piece ends its path
    path = look(piece, "jsonPath", "json_path")
    steps = _steps(path)
    last = steps[-1]
    place: Any = arguments
    for step, following in itertools.pairwise(steps):
        if not _is_there(place, step, path):
            _add(place, step, {} if isinstance(following, str) else [])
        place = place[step]
    if not _is_there(place, last, path):
        _add(place, last, value)
    elif isinstance(value, str) and isinstance(place[last], str):
        place[last] += value
    else:
        raise _misplaced(path)


def _is_there(place: Any, step: str | int, path: object) -> bool:
    """Whether there is something at a step. Items come one after the other, so that no gap can be huge."""
    if isinstance(step, str):
        if is_dict(place):
            return step in place
    elif is_list(place) and step <= len(place):
        return step < len(place)
    raise _misplaced(path)


def _add(place: Any, step: str | int, value: Any) -> None:
    if isinstance(step, str):
        place[step] = value
    else:
        place.append(value)


def _steps(path: object) -> list[str | int]:
    steps: list[str | int] = []
    end = 1
    if isinstance(path, str) and path.startswith("$"):
        while len(steps) < MAX_JSON_DEPTH and (found := _STEP.match(path, end)) is not None:
            plain, number, single, double = found.groups()
            quoted = single if double is None else double
            name = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            steps.append(name if number is None else int(number))
            end = found.end()
    if not steps or not isinstance(path, str) or end != len(path):
        raise _misplaced(path)
    return steps


def _misplaced(path: object) -> ValueError:
    return ValueError(f"gemini: the piece of an argument at {str(path)[:100]!r} has no place in the pieces before it")
