"""Arguments: JSON bytes into checked keyword arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import pydantic
from pydantic_core import CoreConfig, SchemaError, SchemaValidator, ValidationError

from .._model.codec import invalid_request
from .._model.compiled_tool import TakesLong
from .._model.errors import AgentError
from .._schema import docstrings
from .._schema.annotations import UnusableType
from .._schema.argument_rules import argument_types
from .._schema.bounded_validator import BoundedValidator, InvalidLong, counting_validator, marks_in
from .._schema.content_rules import refuse_content
from .._schema.core_schema import types_of
from .._schema.json_schema import input_schema
from .._schema.messages import Problem, invalid_arguments, problems_of
from .._schema.nodes import Node, Types, object_of, whole
from .._schema.work import TooCostly, Work
from .signature import SignaturePlan

__all__ = ["ArgumentsParser", "arguments_parser"]

SHORT_BYTES = 8192
"""Arguments up to this size are validated on the event loop. The worst take less than 10 ms, as long as a thread's turn."""

MAX_VALUES_AT_ONCE = 2048
"""Values in longer arguments, such as a long text, that are validated there as well: as many as fit into `SHORT_BYTES`. Counted
are the marks between values, those in strings among them."""

MAX_ERRORS_AT_ONCE = 1000
"""Errors that are put into words there."""

Errors = Sequence[Mapping[str, Any]]
"""In the form of ``ValidationError.errors()``."""


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentsParser:
    """The validator of one tool's arguments.

    Attributes:
        schema: JSON Schema.
        validate: JSON bytes → what the root of the schema stands for.
        explain: The error for errors of pydantic in these bytes.
        input: The parameter that gets the validated object; None when it is a dict of arguments.
        bounded: Makes the validator of long arguments, once.
    """

    schema: Mapping[str, Any]
    validate: Callable[[bytes], Any]
    explain: Callable[[Errors, bytes], AgentError]
    input: str | None
    bounded: Callable[[], BoundedValidator]

    def bind(self, injected: Mapping[str, Any]) -> Callable[[bytes], dict[str, Any]]:
        """The function of `CompiledTool.parse`, which adds the injected objects."""
        validate, explain, name = self.validate, self.explain, self.input

        def parse(data: bytes) -> dict[str, Any]:
            if len(data) > SHORT_BYTES and marks_in(data) > MAX_VALUES_AT_ONCE:
                raise TakesLong(partial(check, data))
            try:
                found = validate(data)
                if name is not None:
                    return {name: found, **injected}
                if injected:
                    found.update(injected)
                checked: dict[str, Any] = found
                return checked
            except ValidationError as problem:
                errors = problem.errors(include_url=False) if problem.error_count() <= MAX_ERRORS_AT_ONCE else None
            except TooCostly:
                errors = None
            # Outside the handler, or the error would keep pydantic's, and so the values, as its context.
            if errors is None:
                raise TakesLong(partial(check, data))
            error = explain(errors, data)
            if error is _OMITTED:
                return parse(b"{}")
            raise error

        def check(data: bytes, work: Work) -> dict[str, Any]:
            try:
                found = self.bounded().validate(data, work)
                return {**injected, name: found} if name is not None else {**found, **injected}
            except InvalidLong as problem:
                error = explain(problem.errors, data)
            except TooCostly as problem:
                error = _refused(problem.code, problem.message)
            raise error

        return parse


_OMITTED = AgentError.standard("INVALID_ARGUMENTS", "null stands for no arguments")
"""The result of `explain` for ``null``."""


def arguments_parser(function: Callable[..., Any], plan: SignaturePlan) -> ArgumentsParser:
    """Build the validator and the schema of a tool's arguments.

    Raises:
        UnusableType: An argument has no JSON form.
    """
    annotations: dict[str, Any] = {}
    for argument in plan.arguments:
        annotation = argument.annotation
        if argument.default is not inspect.Parameter.empty:
            annotation = Annotated[annotation, pydantic.Field(default=argument.default)]
        annotations[argument.name] = annotation
    types = types_of(annotations)
    refuse_content(types)
    strict = argument_types(types)
    published: Node | None = None
    if plan.input is None:
        root: Node = object_of(strict.fields)
    else:
        root = strict.fields[plan.input]["schema"]
        published = types.fields[plan.input]["schema"]
    descriptions = docstrings.arguments_of(function)
    schema = input_schema(types, published, _under_wire_names(types, descriptions))
    try:
        # Nested models bring prebuilt validators, which know nothing of the rewriting.
        validator = SchemaValidator(
            whole(root, strict.definitions.values()), CoreConfig(strict=True), _use_prebuilt=False
        )
    except SchemaError as problem:
        text = str(problem).split("\n", 1)[0]
        raise UnusableType(f"the arguments have no validator: {text}", "Use simpler types.") from None

    def explain(errors: Errors, data: bytes) -> AgentError:
        return _explain(strict, root, errors, data)

    return ArgumentsParser(
        schema,
        counting_validator(strict, root) or validator.validate_json,
        explain,
        plan.input,
        functools.cache(partial(BoundedValidator, strict, root)),
    )


def _under_wire_names(types: Types, descriptions: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in descriptions.items():
        alias = types.fields.get(name, {}).get("validation_alias", name)
        found[alias if isinstance(alias, str) else name] = text
    return found


def _explain(types: Types, root: Node, errors: Errors, data: bytes) -> AgentError:
    first = errors[0]
    if first["type"] == "json_invalid" and not first["loc"]:
        # The parser's text names positions, never content.
        return invalid_request(f"the arguments are not valid JSON: {first['ctx']['error']}")
    if not first["loc"]:
        if data.strip() == b"null":
            return _OMITTED
        if data.lstrip()[:1] != b"{":
            return _refused("wrong_type", "the arguments must be a JSON object")
    return invalid_arguments(problems_of(types, root, errors))


def _refused(code: str, message: str) -> AgentError:
    problem: Problem = {"path": "", "code": code, "message": message}
    return invalid_arguments([problem])
