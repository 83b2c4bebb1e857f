"""The merge of a fan-out by fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import pydantic

from .._model.errors import AgentError
from .._model.type_guards import is_dict

S = TypeVar("S")

_MISSING = object()


def merge_fields(before: S, after: Mapping[str, S]) -> S:
    """A merge for `StateGraph.fan_out`: the fields that each branch has changed.

    Raises:
        AgentError: ``INVALID_STATE``: two branches have changed one field to different values.
    """
    old = _fields(before)
    changed: dict[str, tuple[str, Any]] = {}
    for branch, state in after.items():
        for name, value in _fields(state).items():
            if value == old.get(name, _MISSING):
                continue
            if name in changed and changed[name][1] != value:
                raise AgentError.standard(
                    "INVALID_STATE",
                    f"the branches {changed[name][0]} and {branch} have both changed the field {name!r};"
                    " give the fan_out a merge function that decides",
                )
            changed[name] = branch, value
    merged: S = _replaced(before, {name: value for name, (_, value) in changed.items()})
    return merged


def _fields(state: Any) -> dict[str, Any]:
    if is_dict(state):
        return state
    if isinstance(state, msgspec.Struct):
        return {name: getattr(state, name) for name in state.__struct_fields__}
    if isinstance(state, pydantic.BaseModel):
        return dict(state)
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def _replaced(state: Any, changes: dict[str, Any]) -> Any:
    if is_dict(state):
        return {**state, **changes}
    if isinstance(state, msgspec.Struct):
        return msgspec.structs.replace(state, **changes)
    if isinstance(state, pydantic.BaseModel):
        return state.model_copy(update=changes)
    return dataclasses.replace(state, **changes)
