"""The JSON form of a graph's state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec
import pydantic
import trio

from .._model.compiled_tool import TakesLong
from .._model.error_boundary import Fault, as_agent_error, call_foreign
from .._model.errors import AgentError, DeclarationError
from .._model.type_guards import is_dict, is_list
from .._schema.work import Work
from .._tools.tool_objects import parser_of_type, renderer_of_type

S = TypeVar("S")

MAX_STATE_BYTES = 8 * 1024 * 1024
"""Bytes of one state as JSON, as for the output of a tool: every checkpoint contains it."""


class StateForm(Generic[S]):
    """Writes states as JSON and reads them, by the rules for arguments and outputs of tools.

    Attributes:
        type: The type of the state.
        schema: Its JSON Schema.

    Raises:
        DeclarationError: The type is no object type, or has no JSON form.
    """

    def __init__(self, state: type[S]) -> None:
        self.type = state
        self.schema: Mapping[str, Any]
        try:
            self.schema, self._parse = parser_of_type(state)
            self._render = renderer_of_type(state, MAX_STATE_BYTES)
        except pydantic.PydanticUserError:
            raise DeclarationError(
                f"{state.__qualname__} names a type that is not defined at the level of its module"
            ) from None

    def describe(self) -> Iterator[str]:
        """One line for each field: states of two versions have the same form if these lines are the same.

        Titles, descriptions and defaults do not count: a saved state has all fields.
        """
        shape: dict[str, Any] = _shape(self.schema)
        fields: dict[str, Any] = shape.pop("properties", {})
        for name in sorted(fields):
            yield f"field {name} {_digest(fields[name])}"
        yield f"state {_digest(shape)}"

    async def read(self, data: bytes | msgspec.Raw) -> S:
        """The state in JSON. A long one is read in a worker thread.

        Raises:
            AgentError: ``INVALID_STATE``.
        """
        try:
            return cast(S, call_foreign(self._parse, bytes(data)))
        except (AgentError, Fault) as problem:
            found = _long(problem)
            if found is None:
                raise _invalid(problem) from None
        return cast(S, await _in_thread(found, Work()))

    async def write(self, state: object) -> bytes:
        """The JSON of a state. A long one is checked in a worker thread.

        Raises:
            AgentError: ``INVALID_STATE``: the value does not fit the type, or a serialiser of the type failed.
        """
        try:
            return call_foreign(self._render, state)
        except (AgentError, Fault) as problem:
            found = _long(problem)
            if found is None:
                raise _invalid(problem) from None
        data: bytes = await _in_thread(found, Work(is_output=True))
        return data


_ANNOTATIONS = frozenset({"title", "description", "examples", "default", "deprecated", "$schema"})
_BY_NAME = frozenset({"properties", "patternProperties", "$defs"})
"""Keywords whose value has schemas by name, so its keys are no keywords."""


def _shape(schema: Any) -> Any:
    """A JSON Schema without what does not change the values that fit."""
    if is_list(schema):
        return [_shape(each) for each in schema]
    if not is_dict(schema):
        return schema
    return {
        key: {name: _shape(each) for name, each in value.items()} if key in _BY_NAME else _shape(value)
        for key, value in schema.items()
        if key not in _ANNOTATIONS
    }


def _digest(shape: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(shape, order="sorted")).hexdigest()[:16]


def _long(problem: AgentError | Fault) -> TakesLong | None:
    origin = problem.origin if isinstance(problem, Fault) else None
    return origin if isinstance(origin, TakesLong) else None


async def _in_thread(long: TakesLong, work: Work) -> Any:
    try:
        return await trio.to_thread.run_sync(lambda: call_foreign(long.check, work), abandon_on_cancel=True)
    except (AgentError, Fault) as problem:
        raise _invalid(problem) from None


def _invalid(problem: AgentError | Fault) -> AgentError:
    error, _ = as_agent_error(problem, "a validator or serialiser of the state", expose=False)
    found = (error.details or {}).get("problems", ())
    reasons = "; ".join(str(each.get("message")) for each in found) or error.message
    return AgentError.standard("INVALID_STATE", f"the state is not valid: {reasons}", details=error.details)
