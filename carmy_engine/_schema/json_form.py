"""In-process arguments as the JSON that a transport would have sent, so that one table of types serves every way in."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pydantic
import pydantic_core

from .._model.codec import MAX_JSON_DEPTH, check_json, invalid_request
from .._model.errors import AgentError
from .._model.suggestions import shortened
from .._model.type_guards import is_mapping, is_sequence
from .messages import Location, invalid_arguments, path_of, subject_of
from .plain_values import has_only_names, jsonable, plain_name
from .serializer import is_odd_offset, may_hide_odd_offset


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
        if not is_mapping(arguments):
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
