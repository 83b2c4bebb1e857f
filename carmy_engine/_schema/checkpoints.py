"""What the schemas of long arguments call: functions that count, and the reader of lists."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError, ValidationError

from .nodes import Node
from .work import MAX_ALL_LINES, MAX_LINES, Work, current

_BATCH = 256
"""Items of a list in one step."""

_KEPT = "carmy_kept"
"""The type of an error that stands for one in `Work.kept`."""

WANTED = "\0wanted"
SKIP = "\0skip"
"""Labels of the arms that `bounded_rules` adds: of the value itself, and of the function beside it."""


def count_failure(_: object) -> None:
    """Refuse a value that is wrong; accept it once enough others have been refused."""
    work = current()
    if work.exhausted:
        return  # the document is refused already
    work.failures += 1
    raise ValueError("counted")


def count_unknown(_: object) -> None:
    """Refuse a field that is not known; accept it once enough has been refused."""
    work = current()
    work.step(0)
    if not work.exhausted:
        work.failures += 1
        raise PydanticKnownError("extra_forbidden")


def count_attempt(_: object) -> None:
    """Count one more value that a union tries, and leave it to the union's own arms."""
    current().attempt()
    raise ValueError("counted")


def step(value: Any) -> Any:
    """Count the size of a value made."""
    current().step(_size_of(value))
    return value


def step_key(value: Any) -> Any:
    """Count the hash of a key made."""
    current().count_hash(value)
    return value


def _size_of(value: object) -> int:
    inner: dict[str, Any] | None = getattr(value, "__dict__", None)
    size = sys.getsizeof(value)
    # Beside what it is kept in, a model has a set of the names that were given.
    return size if inner is None else size + 2 * sys.getsizeof(inner) + 64 * len(inner)


def without_extras(found: tuple[dict[str, Any], object, set[str]]) -> tuple[dict[str, Any], None, set[str]]:
    """The fields of a model that allows no others."""
    return found[0], None, found[2]


class Collector:
    """Takes the items of a list from pydantic, a batch at a time."""

    def __init__(self, node: Node, *, is_light: bool, takes_text: bool) -> None:
        """Prepare it.

        Args:
            node: Of the list, tuple or set.
            is_light: Items need no memory beside their own.
            takes_text: An item may be a string; what is not a list is refused before.
        """
        self._kind: str = node["type"]
        self._min: int = node.get("min_length") or 0
        self._max: int | None = node.get("max_length")
        self._size_of = sys.getsizeof if is_light else _size_of
        self._takes_text = takes_text

    def __call__(self, iterator: Any) -> Any:
        work = current()
        is_set = self._kind in ("set", "frozenset")
        values: Any = set[Any]() if is_set else []
        lines: list[InitErrorDetails] = []
        count = 0
        while not work.exhausted:
            before = work.failures
            try:
                batch: list[Any] = list(itertools.islice(iterator, _BATCH))
            except ValidationError as problem:
                lines += _kept(problem, work)
                work.failures = max(before + problem.error_count(), work.failures)
                continue
            work.step(sum(map(self._size_of, batch)) + 8 * len(batch))
            if not batch:
                break
            if lines:
                continue
            if is_set:
                count += self.add(values, batch, count, lines, work)
            else:
                values += batch
                count += len(batch)
            if self._max is not None and len(values) > self._max:
                context = {"field_type": self._kind.title(), "max_length": self._max, "actual_length": len(values)}
                raise PydanticKnownError("too_long", context)
        if lines:
            raise ValidationError.from_exception_data("", lines, input_type="json")
        if not values and not self._takes_text:
            raise ValueError("empty")  # as an empty string or object would be
        if self._kind == "tuple":
            return tuple(values)
        return frozenset(values) if self._kind == "frozenset" else values

    def checked(self, value: Any) -> Any:
        """The list; raises for strings and objects, which pydantic reads as lists of characters and of names."""
        if isinstance(value, str | dict):
            raise PydanticKnownError("list_type")
        if len(value) < self._min:
            context = {"field_type": self._kind.title(), "min_length": self._min, "actual_length": len(value)}
            raise PydanticKnownError("too_short", context)
        return value

    @staticmethod
    def add(values: set[Any], batch: list[Any], count: int, lines: list[InitErrorDetails], work: Work) -> int:
        """Add items to a set; return how many there were."""
        for index, item in enumerate(batch):
            try:
                if item not in values:
                    if not isinstance(item, str):
                        work.count_hash(item)
                    values.add(item)
            except TypeError:
                work.failures += 1
                lines.append({"type": "set_item_not_hashable", "loc": (count + index,), "input": None})
        return len(batch)


def _kept(problem: ValidationError, work: Work) -> list[InitErrorDetails]:
    """Lines that stand for the errors of one item, and get their places from the lists and objects around it."""
    lines: list[InitErrorDetails] = []
    for error in _errors(problem, MAX_LINES):
        if SKIP in error["loc"]:
            continue
        if error["type"] == _KEPT:
            at = error["ctx"]["at"]
        else:
            at = len(work.kept)
            work.kept.append(error)
        stand_in = PydanticCustomError(_KEPT, "kept", {"at": at})
        lines.append({"type": stand_in, "loc": error["loc"], "input": None})
    return lines


def errors_of(problem: ValidationError, work: Work) -> list[Mapping[str, Any]]:
    """The errors of a document, those that were kept in their places."""
    return [
        {
            **(work.kept[error["ctx"]["at"]] if error["type"] == _KEPT else error),
            "loc": tuple(part for part in error["loc"] if part != WANTED),
        }
        for error in _errors(problem, MAX_ALL_LINES)
        if SKIP not in error["loc"]
    ]


def _errors(problem: ValidationError, most: int) -> Sequence[Mapping[str, Any]]:
    """The errors of pydantic, or one that stands for too many."""
    if problem.error_count() > most:
        return [{"type": "carmy_many", "loc": (), "ctx": {"most": most}}]
    return cast("list[Mapping[str, Any]]", problem.errors(include_url=False))
