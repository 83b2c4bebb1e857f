"""The fast path that writes values as JSON; values that do not fit go to the slow path of `_output`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import pydantic
from pydantic_core import SchemaSerializer

from .._model.codec import MAX_JSON_DEPTH
from .._model.errors import AgentError
from .._model.type_guards import is_dict, is_list, is_tuple

# pydantic warns of a value that does not fit its type. Asked for an error instead (``warnings="error"``), it
# takes longer to understand that word than to write a short output: half of what rendering cost. So it may warn, and the
# warning becomes an error on its way: CPython refuses one that comes from a module whose registry of warnings is no dict,
# and does so before it looks at any filter. Nothing that a host sets can let a wrong output pass. Serialisers that wrap
# another one are left out: what that one finds is reported in their frame, not in ours. A property that warns its reader, such
# as a deprecated one, fails here as well; `convert` reads it again, and there its warning is one.
__warningregistry__ = ()


def _are_warnings_errors() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            SchemaSerializer({"type": "int"}).to_json("")
        except TypeError:
            return True
    return False


_WARNINGS: Literal[True, "error"] = True if _are_warnings_errors() else "error"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """The reasons to check the JSON that was written against the schema.

    Attributes:
        null: Null does not fit everywhere, and pydantic writes None for any type.
        infinite: It may hold a number that JSON lacks.
        offset: It may hold a time with a part of a minute in its offset, which ISO 8601 has no form for.
        names: It may hold dicts whose keys are not one name each.
        proof: A cheap test of the value; None when there is nothing to test.
    """

    null: bool
    infinite: bool
    offset: bool
    names: bool
    proof: Callable[[Any], bool] | None


def make_serializer(
    serializer: SchemaSerializer,
    convert: Callable[[Any], bytes],
    verify: Callable[[Any, bytes], bytes],
    doubts: Doubts,
    limit: int,
    *,
    is_wrapped: bool,
) -> Callable[[Any], bytes]:
    """A function that writes a value as JSON.

    Args:
        serializer: Writes it.
        convert: Gets every value that does not fit its type: it writes it, or raises.
        verify: Gets a value in doubt, and what was written for it: it raises if that does not fit the schema.
        doubts: When `verify` is called.
        limit: Most bytes; more raise ``OUTPUT_TOO_LARGE``.
        is_wrapped: A function in Python wraps the serialiser, or one of its parts.
    """
    to_json = serializer.to_json
    told: Literal[True, "error"] = "error" if is_wrapped else _WARNINGS
    null, proof = doubts.null, doubts.proof
    is_text = doubts.infinite or doubts.offset

    def write(value: Any) -> bytes:
        try:
            data = to_json(value, warnings=told)
        except Exception:  # noqa: BLE001 - serialisers and properties of the tool's author run in there
            data = None
        if data is None:
            data = convert(value)
        elif (
            value is None
            or (null and data.rfind(b"null") >= 0)
            or (is_text and is_doubtful(value, data, doubts))
            or (proof is not None and not proof(value))
        ):
            data = verify(value, data)
        if len(data) > limit:
            raise too_large(len(data), limit)
        return data

    return write


_ZONE = re.compile(rb'(?:[+-][0-9]{2}:[0-9]{2}|[0-9]Z)"')
_MINUTE = dt.timedelta(minutes=1)
_SCALARS = (str, int, float, type(None))


def is_doubtful(value: Any, data: bytes, doubts: Doubts) -> bool:
    """True when JSON may hold a number or a time that was not written exactly."""
    return (doubts.infinite and has_infinite(data)) or (doubts.offset and may_hide_odd_offset(value, data))


def has_infinite(data: bytes) -> bool:
    """True when NaN or Infinity is in it, as a number or as a text."""
    # One letter is found ten times as fast as a word, and many outputs have neither.
    return (b"N" in data and b"NaN" in data) or (b"I" in data and b"Infinity" in data)


def is_odd_offset(time: dt.datetime | dt.time) -> bool:
    """True for a time whose offset has seconds or parts of a second."""
    zone = time.tzinfo
    if zone is None or zone is dt.UTC:
        return False
    offset = time.utcoffset()
    return offset is not None and bool(offset % _MINUTE)


def may_hide_odd_offset(value: Any, data: bytes) -> bool:
    """False when no time in `value` lost part of its offset in the JSON `data`."""
    # Single bytes are found ten times as fast as the pattern.
    if not (b"Z" in data or b"+" in data or b"-" in data) or _ZONE.search(data) is None:
        return False
    level: Iterable[Any] = (value,)
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, _SCALARS):
                continue
            if isinstance(item, dt.datetime | dt.time):
                if is_odd_offset(item):
                    return True
            elif is_dict(item):
                below += item.values()
            elif is_list(item) or is_tuple(item):
                below += item
            elif isinstance(item, pydantic.BaseModel):
                below += item.__dict__.values()
                below += (item.__pydantic_extra__ or {}).values()
            elif names := _field_names(item):
                below += [getattr(item, name, None) for name in names]
            elif hasattr(item, "__iter__") or hasattr(item, "keys"):
                return True  # another container
        if not below:
            return False
        level = below
    return True


def _field_names(item: object) -> Iterable[str]:
    """Names of the fields of a Struct or a dataclass, empty for any other object."""
    if isinstance(item, msgspec.Struct):
        return item.__struct_fields__
    names: Iterable[str] = getattr(type(item), "__dataclass_fields__", ())
    return names


def too_large(size: int, limit: int) -> AgentError:
    """``OUTPUT_TOO_LARGE``."""
    message = f"the tool ran, but its output of {size} bytes is over the limit of {limit} bytes"
    return AgentError.standard("OUTPUT_TOO_LARGE", message, details={"size_bytes": size, "limit_bytes": limit})
