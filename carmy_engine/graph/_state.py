"""The JSON form of a graph's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec
import pydantic
import trio

from .._model.compiled_tool import TakesLong
from .._model.error_boundary import Fault, as_agent_error, call_foreign
from .._model.errors import AgentError, DeclarationError
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
