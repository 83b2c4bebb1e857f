"""The JSON form of Python values: what they are in JSON's own types."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic

from .._model.type_guards import is_mapping, is_sequence


def jsonable(value: Any) -> Any:
    """The JSON form of what msgspec does not know; `TypeError` when it has none."""
    if isinstance(value, pydantic.BaseModel):
        try:
            return value.model_dump(mode="python", by_alias=_by_alias(value), warnings="error")
        except Exception as problem:
            # Properties and serialisers of the model's author run in there, and may raise anything.
            raise TypeError(f"{type(value).__qualname__} cannot be dumped: {type(problem).__name__}") from problem
    if is_mapping(value):
        return dict(value)
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)  # msgspec encodes no subclasses
    cls: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # a class of which nothing is known
    if hasattr(value, "__pydantic_serializer__") or hasattr(cls, "__get_pydantic_core_schema__"):
        return str(value)
    raise TypeError(f"{cls.__qualname__} has no JSON form")


def _by_alias(model: pydantic.BaseModel) -> bool:
    """True unless the configuration of the model turns aliases off."""
    return model.model_config.get("serialize_by_alias") is not False


def plain(value: Any) -> Any:
    """A value in JSON's own types.

    Raises:
        TypeError: It has no JSON form.
        ValueError: The same.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if has_only_names(value):
        return msgspec.to_builtins(value, enc_hook=jsonable)
    return _with_names(msgspec.to_builtins(value, enc_hook=jsonable, str_keys=False))


def json_form(value: Any) -> Any:
    """A value as it is after a way through JSON.

    Raises:
        TypeError: It has no JSON form.
        ValueError: The same.
    """
    return msgspec.json.decode(canonical(plain(value)))


def has_only_names(value: Any) -> bool:
    """True when all keys of all dicts are texts, so that no two of a dict are one name. Runs at C speed."""
    try:
        _encode_names(value)
    except (TypeError, ValueError):
        return False
    return True


def _with_names(value: Any) -> Any:
    """Builtins with the keys of dicts as they are in JSON."""
    if is_mapping(value):
        found = {plain_name(key): _with_names(item) for key, item in value.items()}
        if len(found) < len(value):
            raise ValueError("two keys of a dict are one name in JSON")
        return found
    return [_with_names(item) for item in value] if is_sequence(value) else value


def plain_name(key: Any) -> str:
    """The name in a JSON object that a key of a dict becomes.

    Raises:
        TypeError: It cannot be a name.
        ValueError: The same.
    """
    if type(key) is str:
        return key
    if key is None:
        raise TypeError("None cannot be a name")
    (name,) = msgspec.to_builtins({_hashable(key): None}, str_keys=True)
    if type(name) is not str:
        raise TypeError(f"{type(key).__qualname__} cannot be a name")
    return name


def _hashable(key: Any) -> Any:
    found = plain(key)
    return key if isinstance(found, list | dict) else found


_encode_names = msgspec.json.Encoder(enc_hook=jsonable, order="deterministic").encode


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value, with members in order."""
    return msgspec.json.encode(value, order="deterministic")
