"""The client behind a call, with checked answers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import trio

from .._model.client_features import (
    Answer,
    ClientFeatures,
    LogLevel,
    LogLimit,
    Root,
    Sample,
    SampleRequest,
    ToolClient,
)
from .._model.compiled_tool import TakesLong
from .._model.error_boundary import Fault, await_foreign, call_foreign, log_fault
from .._model.errors import AgentError, DeclarationError
from .._model.text import bounded_text
from .._schema.json_form import encode_arguments
from .._tools.tool_objects import parser_of_type
from ..providers._json_schema_tools import inlined

T = TypeVar("T")

MAX_ROOTS = 1000
"""Roots of one client. An editor has one for each open folder."""

_SIMPLE = frozenset({"string", "number", "integer", "boolean"})


class BoundClient(ToolClient):
    """The features of one caller's client. Made in the trio thread.

    Args:
        features: The transport's.
    """

    __slots__ = ("_features", "_limit", "_takes_logs")

    def __init__(self, features: ClientFeatures) -> None:
        self._features = features
        self._limit = LogLimit(self._send, threading.get_ident(), trio.lowlevel.current_trio_token())
        self._takes_logs = True

    @property
    def features(self) -> ClientFeatures:
        """See `ToolClient`."""
        return self._features

    @property
    def can_ask(self) -> bool:
        """See `ClientFeatures`."""
        return call_foreign(lambda: self._features.can_ask)

    @property
    def can_sample(self) -> bool:
        """See `ClientFeatures`."""
        return call_foreign(lambda: self._features.can_sample)

    @property
    def has_roots(self) -> bool:
        """See `ClientFeatures`."""
        return call_foreign(lambda: self._features.has_roots)

    async def ask(self, model: type[T], message: str) -> T:
        """See `AgentContext.ask`."""
        schema, parse = _question(cast(Any, model))
        if not self.can_ask:
            return await super().ask(model, message)
        answer = _checked(await await_foreign(call_foreign(self._features.ask, bounded_text(message), schema)), Answer)
        if answer.action != "accept":
            raise AgentError.standard(
                "ANSWER_DECLINED",
                "the person declined to answer" if answer.action == "decline" else "the person did not answer",
                details={"action": answer.action},
            )
        try:
            return cast(T, parse(encode_arguments(answer.content or {})))
        except TakesLong:
            why = "it is too long"
        except AgentError as problem:
            why = problem.message.replace("argument ", "value ")
        raise _invalid(why)

    async def sample(self, request: SampleRequest) -> Sample:
        """See `AgentContext.sample`."""
        if not self.can_sample:
            return await super().sample(request)
        return _checked(await await_foreign(call_foreign(self._features.sample, request)), Sample)

    async def roots(self) -> tuple[Root, ...]:
        """See `AgentContext.roots`."""
        if not self.has_roots:
            return await super().roots()
        found = await await_foreign(call_foreign(self._features.roots))
        if len(found) > MAX_ROOTS:
            raise _invalid(f"it has more than {MAX_ROOTS} roots")
        return tuple(_checked(root, Root) for root in found)

    def log(self, level: LogLevel, message: str) -> bool:
        """Send a line, unless the client has refused the last one."""
        if self._takes_logs:
            self._limit.log(level, message)
        return self._takes_logs

    def _send(self, level: LogLevel, message: str) -> None:
        try:
            self._takes_logs = call_foreign(self._features.log, level, message) is True
        except (AgentError, Fault) as fault:
            self._takes_logs = False
            log_fault("sending a log message to a client", fault)


def _checked(value: object, kind: type[T]) -> T:
    """An answer of a transport, whose code may come from outside this project."""
    if not isinstance(value, kind):
        raise _invalid(f"it is no {kind.__name__}")
    return value


def _invalid(why: str) -> AgentError:
    return AgentError.standard("INVALID_ANSWER", f"the answer of the client does not fit: {why}")


@functools.lru_cache(256)
def _question(model: type[Any]) -> tuple[Mapping[str, Any], Callable[[bytes], Any]]:
    """The schema of the values that a model holds, and their parser.

    Raises:
        DeclarationError: The model is no flat object of simple values, the most that clients can ask for.
    """
    schema, parse = parser_of_type(model)
    plain = inlined(schema)
    fields = {name: _without_null(field) for name, field in plain.get("properties", {}).items()}
    for name, field in fields.items():
        if not _is_simple(field):
            raise DeclarationError(
                f"ctx.ask({model.__qualname__}): clients cannot ask for '{name}', which is {_kind_of(field)}. "
                "Use texts, numbers, booleans, choices (Literal, Enum) and lists of choices."
            )
    return {**plain, "properties": fields}, parse


def _without_null(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field that may be null as one that may be left out."""
    others = [choice for choice in field.get("anyOf", ()) if choice.get("type") != "null"]
    if len(others) != 1:
        return field
    beside = {key: value for key, value in field.items() if key != "anyOf" and (key, value) != ("default", None)}
    return {**others[0], **beside}


def _is_simple(field: Mapping[str, Any]) -> bool:
    if field.get("type") == "array":
        return not {"enum", "anyOf", "oneOf"}.isdisjoint(field.get("items", {}))
    return field.get("type") in _SIMPLE or "enum" in field or "const" in field


def _kind_of(field: Mapping[str, Any]) -> str:
    kind = field.get("type")
    return f"of type {kind}" if isinstance(kind, str) else "a union"
