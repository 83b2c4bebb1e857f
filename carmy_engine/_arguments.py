"""Arguments: JSON bytes into checked keyword arguments, and problems in words that a model can act on."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
import typing_extensions
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ._schema import core_schemas
from ._signature import SignaturePlan
from .errors import AgentError


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentsParser:
    """The validator of one tool's arguments, and its schema."""

    schema: Mapping[str, Any]
    validate: Callable[[bytes], dict[str, Any]]

    def bind(self, injected: Mapping[str, Any]) -> Callable[[bytes], dict[str, Any]]:
        """A parser that adds the injected objects."""

        def parse(data: bytes) -> dict[str, Any]:
            return {**self.validate(data), **injected}

        return parse


def arguments_parser(function: Callable[..., Any], plan: SignaturePlan) -> ArgumentsParser:
    """Build the validator and the schema of a tool's arguments."""
    fields: dict[str, Any] = {}
    for argument in plan.arguments:
        empty = argument.default is inspect.Parameter.empty
        extra = () if empty else (Field(default=argument.default),)
        fields[argument.name] = Annotated[(argument.annotation, *extra)] if extra else argument.annotation
    core_schemas(fields)
    if plan.input is not None:
        adapter: TypeAdapter[Any] = TypeAdapter(plan.arguments[0].annotation)
    else:
        holder = typing_extensions.TypedDict("Arguments", fields)  # type: ignore[operator]
        holder.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        adapter = TypeAdapter(holder)

    def validate(data: bytes) -> dict[str, Any]:
        try:
            value = adapter.validate_json(b"{}" if data.strip() == b"null" else data, strict=True)
        except ValidationError as error:
            problems = [{"path": ".".join(map(str, e["loc"])), "code": e["type"], "message": e["msg"]} for e in error.errors()]
            raise AgentError.standard(
                "INVALID_ARGUMENTS", "; ".join(p["message"] for p in problems), details={"problems": problems}
            ) from None
        return {plan.input: value} if plan.input is not None else value

    return ArgumentsParser(adapter.json_schema(), validate)


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """In-process arguments as the JSON that a transport would have sent."""
    return msgspec.json.encode({} if arguments is None else arguments)
