"""Read-only copies of JSON-shaped values, which compare and serialise like the values themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Self, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_FROZEN_DEPTH = 128
"""Levels of nesting, as in the arguments of a call. Deeper values contain themselves, or make JSON encoders fail."""


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"this {type(self).__mro__[1].__name__} is read-only; change a copy of it")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed. Copies of it (`copy`, ``copy.deepcopy``, pickles) are plain dicts."""

    __slots__ = ()

    def __new__(cls, items: Mapping[K, V]) -> Self:
        made = dict[K, V].__new__(cls)
        dict[K, V].update(made, items)
        return made

    def __init__(self, items: Mapping[K, V]) -> None:
        """Replace ``dict.__init__``, which would add items."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class FrozenList(list[V]):
    """A list that cannot be changed. Copies of it are plain lists."""

    __slots__ = ()

    def __new__(cls, items: Iterable[V]) -> Self:
        made = list[V].__new__(cls)
        list[V].extend(made, items)
        return made

    def __init__(self, items: Iterable[V]) -> None:
        """Replace ``list.__init__``, which would replace the items."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse


NOTHING: FrozenDict[Any, Any] = FrozenDict({})


def freeze(value: Any) -> Any:
    """A deep read-only copy of a value.

    Mappings become `FrozenDict`, lists `FrozenList`, sets frozen sets, bytearrays bytes. Objects of other classes stay as they are.

    Raises:
        TypeError: It is nested more than `MAX_FROZEN_DEPTH` levels deep, or contains itself.
    """
    return _freeze(value, 0)


def _freeze(value: Any, depth: int) -> Any:
    if type(value) in (str, int, float, bool, FrozenDict, FrozenList) or value is None:
        return value
    if depth > MAX_FROZEN_DEPTH:
        raise TypeError(f"a read-only value is nested more than {MAX_FROZEN_DEPTH} levels deep, or contains itself")
    depth += 1
    items: Any = value
    if isinstance(value, Mapping):
        return FrozenDict({key: _freeze(item, depth) for key, item in items.items()})
    if isinstance(value, list):
        return FrozenList([_freeze(item, depth) for item in items])
    if type(value) is tuple:
        return tuple([_freeze(item, depth) for item in items])
    if isinstance(value, set):
        return frozenset(items)
    if isinstance(value, bytearray):
        return bytes(value)
    return value
