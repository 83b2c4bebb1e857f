"""Python values as JSON: arguments given in process, and the outputs of tools.

In-process arguments become the JSON that a transport would have sent, so that one table of types serves every way in. For outputs this
is the fast path; a value that does not fit its type goes to the slow path of `_tools.output`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import pydantic
import pydantic_core
from pydantic_core import SchemaSerializer

from .._model.codec import MAX_JSON_DEPTH, check_json, invalid_request
from .._model.errors import AgentError
from .._model.suggestions import shortened
from .._model.type_guards import is_dict, is_list, is_mapping, is_sequence, is_tuple
from .messages import Location, invalid_arguments, path_of, subject_of
from .plain_values import has_only_names, jsonable, plain_name

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


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Arguments given in process as JSON.

    Dates, times, UUIDs, Decimals, Enums, bytes, sets, tuples, dataclasses, Structs and models take their JSON forms.

    Raises:
        AgentError: ``INVALID_ARGUMENTS`` for what has no JSON form, ``INVALID_REQUEST`` for what JSON could not carry:
            nesting beyond `codec.MAX_JSON_DEPTH` levels, lone surrogates.
    """
    if arguments is None:
        return b"{}"
    error: AgentError
    try:
        if type(arguments) is not dict and not is_mapping(arguments):
            raise _NoForm("must be a mapping of names to values")
        data = msgspec.json.encode(arguments, enc_hook=jsonable)
    except RecursionError:
        error = invalid_request(
            f"the arguments are nested more than {MAX_JSON_DEPTH} levels deep, or contain themselves"
        )
    except UnicodeEncodeError:
        error = invalid_request("the arguments contain a lone surrogate, which is not valid Unicode")
    except (_NoForm, TypeError, ValueError, OverflowError) as problem:
        found = first_without_form(arguments)
        path, said = found if found is not None else ("", str(problem) if isinstance(problem, _NoForm) else "")
        error = _invalid(path, said or "have no JSON form")
    else:
        # msgspec writes null for NaN and infinity, so the values have to be searched.
        infinite = first_infinite(arguments) if may_hide_infinite(arguments, data) else None
        odd = first_odd_offset(arguments) if may_hide_odd_offset(arguments, data) else None
        ambiguous = None if has_only_names(arguments) else first_ambiguous(arguments)
        if infinite is not None:
            error = _invalid(infinite, "must be a finite number")
        elif odd is not None:
            error = _invalid(odd, ODD_OFFSET)
        elif ambiguous is not None:
            error = _invalid(*ambiguous)
        else:
            check_json(data)
            return data
    raise error


ODD_OFFSET = "must have a time zone whose offset is whole minutes, because ISO 8601 has no other"


class _NoForm(Exception):  # noqa: N818 - never leaves this module
    """A value has no JSON form; the text is what it would have to be."""


def may_hide_infinite(value: Any, data: bytes) -> bool:
    """False when msgspec can have written no NaN or infinity of `value` as null in `data`. Runs at C speed."""
    if b"null" not in data:
        return False
    plain = msgspec.to_builtins(value, enc_hook=jsonable, str_keys=True)
    shown = pydantic_core.to_json(plain, inf_nan_mode="constants")
    return b"NaN" in shown or b"Infinity" in shown


def first_infinite(value: Any) -> str | None:
    """The path of the first NaN or infinity among floats, None when all are finite."""
    for location, item in _walk(value):
        if isinstance(item, float) and not math.isfinite(item):
            return path_of(location)
    return None


def first_without_form(value: Any) -> tuple[str, str] | None:
    """Where, and what about it, the first value without a JSON form is; None when there is none or it is too deep."""
    for location, item in _walk(value):
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                return path_of(location), "contains a lone surrogate, which is not valid Unicode"
        elif is_mapping(item):
            if not all(_is_name(key) for key in item):
                return path_of(location), "has a key that cannot be a name in a JSON object"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return path_of(location), "must be a finite number"
        elif not is_sequence(item) and not _is_scalar(item):
            return path_of(location), f"is of type {type(item).__qualname__}, which has no JSON form"
    return None


def first_odd_offset(value: Any) -> str | None:
    """The path of the first time whose offset from UTC is no whole number of minutes; None when there is none."""
    for location, item in _walk(value):
        if isinstance(item, dt.datetime | dt.time) and is_odd_offset(item):
            return path_of(location)
    return None


def first_ambiguous(value: Any) -> tuple[str, str] | None:
    """Where, and what about it, the first dict is whose keys are not one name each; None when there is none."""
    for location, item in _walk(value):
        if is_mapping(item):
            seen: set[str] = set()
            for key in item:
                try:
                    name = plain_name(key)
                except (TypeError, ValueError):
                    if key is None:
                        return path_of(location), "has a key that cannot be a name in a JSON object"
                    name = str(key)  # of a type of its own, such as a path
                if name in seen:
                    return path_of(location), f"has two keys that are both '{shortened(name)}' in JSON"
                seen.add(name)
    return None


def _is_name(key: Any) -> bool:
    try:
        msgspec.to_builtins({key: None}, enc_hook=jsonable, str_keys=True)
    except (TypeError, ValueError):
        return False
    return True


def _is_scalar(item: Any) -> bool:
    try:
        msgspec.to_builtins(item, enc_hook=jsonable, str_keys=True)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return False
    return True


def _walk(value: Any) -> Iterator[tuple[Location, Any]]:
    """Every value inside `value`, with its location; stops at what contains itself."""
    pending: list[tuple[Location, Any]] = [((), value)]
    while pending:
        location, item = pending.pop()
        yield location, item
        if len(location) > MAX_JSON_DEPTH:
            continue
        parts: list[tuple[str | int, Any]] = []
        fields: Any = getattr(item, "__dataclass_fields__", None)
        if isinstance(item, pydantic.BaseModel):
            parts = [*item.__dict__.items(), *(item.__pydantic_extra__ or {}).items()]
        elif is_mapping(item):
            parts = [(str(key), part) for key, part in item.items()]
        elif is_sequence(item):
            parts = list(enumerate(item))
        elif isinstance(item, msgspec.Struct):
            parts = [(name, getattr(item, name, None)) for name in item.__struct_fields__]
        elif fields is not None:
            parts = [(name, getattr(item, name, None)) for name in fields]
        pending.extend((((*location, name), part) for name, part in reversed(parts)))


def _invalid(path: str, said: str) -> AgentError:
    return invalid_arguments([{"path": path, "code": "wrong_type", "message": f"{subject_of(path)} {said}"}])
