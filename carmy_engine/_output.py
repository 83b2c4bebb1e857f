"""Outputs: what a tool returned into JSON bytes that fit its schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from pydantic_core import (
    CoreConfig,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
)

from . import codec
from ._error_boundary import Fault, call_foreign
from ._schema.core_schema import Node, Types, types_of, whole
from ._schema.json_form import first_infinite, first_without_form, jsonable
from ._schema.json_schema import output_schema
from ._schema.messages import Problem, output_subject, problems_of
from ._schema.output_rules import Checked, Loose, Rendered, is_constrained, is_finite, is_wrapped
from ._schema.serializer import make_serializer, too_large
from ._schema.type_guards import is_dict
from ._signature import SignaturePlan
from .errors import AgentError

__all__ = ["OutputRenderer", "invalid_output", "output_renderer", "too_large"]

_RETURN = "return"


@dataclasses.dataclass(frozen=True, slots=True)
class OutputRenderer:
    """The serialiser of one tool's output.

    Attributes:
        schema: JSON Schema.
        limited: A number of bytes → the function of `CompiledTool.render`, which refuses more.
        promised: A value that was rendered → the same, in the shape that the return type promises.
    """

    schema: Mapping[str, Any]
    limited: Callable[[int], Callable[[Any], bytes]]
    promised: Callable[[Any], Any]


def invalid_output(problems: Sequence[Problem]) -> AgentError:
    """``INVALID_OUTPUT``."""
    said = "; ".join(problem["message"] for problem in problems)
    return AgentError.standard(
        "INVALID_OUTPUT",
        f"the tool ran, but its output does not fit its schema: {said}",
        details={"problems": list(problems)},
    )


def output_renderer(function: Callable[..., Any], plan: SignaturePlan) -> OutputRenderer:
    """Build the serialiser and the schema of a tool's output.

    Raises:
        UnusableType: The return type has no JSON form.
    """
    types = types_of({_RETURN: plan.returns})
    schema = output_schema(types, types.fields[_RETURN]["schema"])
    rendered = Rendered(types)
    root = rendered.visit(types.fields[_RETURN]["schema"])
    definitions = [{**rendered.visit(node), "ref": ref} for ref, node in types.definitions.items()]
    # NaN written as such is found afterwards; written as null it would be lost.
    serializer = SchemaSerializer(
        whole(root, definitions), CoreConfig(ser_json_inf_nan="constants"), _use_prebuilt=False
    )
    nodes = [root, *definitions]
    renderer = _Renderer(serializer, types, is_finite=is_finite(nodes), is_wrapped=is_wrapped(nodes))
    return OutputRenderer(schema, renderer.limited, renderer.promised)


def _plain_type(node: Node) -> type | None:
    """``object`` for Any, ``dict`` for a dict of names to Any, None for everything else."""
    if "serialization" in node:
        return None
    if node["type"] == "any":
        return object
    keys: Node = node.get("keys_schema") or {}
    values: Node = node.get("values_schema") or {}
    is_open = node["type"] == "dict" and keys == {"type": "str"} and values == {"type": "any"}
    return dict if is_open and not {"min_length", "max_length"} & node.keys() else None


class _Renderer:
    """Renders at once when it can; asks what is wrong only when something is."""

    def __init__(self, serializer: SchemaSerializer, types: Types, *, is_finite: bool, is_wrapped: bool) -> None:
        self._serializer = serializer
        self._to_json = serializer.to_json
        self._is_finite = is_finite
        self._is_wrapped = is_wrapped
        self._plain = _plain_type(types.resolve(types.fields[_RETURN]["schema"]))
        self._types = types
        self._check = _Validator(Checked(types).all()) if is_constrained(types) else None
        self._diagnosis: _Validator | None = None
        self._convert: _Validator | None = None

    def limited(self, limit: int) -> Callable[[Any], bytes]:
        """The function that renders, and refuses more than `limit` bytes.

        It raises `AgentError` ``INVALID_OUTPUT`` or ``OUTPUT_TOO_LARGE``.
        """
        prove = None if self._is_finite and self._check is None else self._proved
        typed = make_serializer(self._serializer, self._converted, prove, limit, is_wrapped=self._is_wrapped)
        if self._plain is None:
            return typed

        def plain(value: Any) -> bytes:
            if self._is_plain(value):
                data = _as_it_is(value)
                # With a null in it, there was perhaps a NaN: pydantic tells, at half the speed.
                if data is not None and len(data) <= limit and b"null" not in data:
                    return data
            return typed(value)

        return plain

    def _proved(self, value: Any, data: bytes) -> bytes:
        """`data`, if what it was made of has the right values as well as the right types."""
        if self._may_be_infinite(data):
            return self._finite(value, data)
        if self._check is not None:
            problems = self._check(value)
            if problems:
                raise invalid_output(problems)
        return data

    def _may_be_infinite(self, data: bytes) -> bool:
        # One letter is found ten times as fast as a word, and many outputs have neither.
        return not self._is_finite and ((b"N" in data and b"NaN" in data) or (b"I" in data and b"Infinity" in data))

    def promised(self, value: Any) -> Any:
        """A value that was rendered, in the shape that the type promises: a model, if the tool returned a dict for it."""
        if self._convert is None:
            return value  # nothing of another shape was ever rendered
        try:
            self._to_json(value, by_alias=True, warnings="error")
        except Exception:  # noqa: BLE001 - see `make_serializer`
            return self._convert.converted(value)
        return value

    def _is_plain(self, value: Any) -> bool:
        """True for a value that holds nothing but Any, which needs no schema to be written."""
        if self._plain is dict:
            return is_dict(value) and type(value) is dict and all(type(name) is str for name in value)
        return self._plain is object

    def _checked(self, value: Any) -> list[Problem]:
        """What is wrong with a value whose outermost type is right."""
        if self._diagnosis is None:
            self._diagnosis = self._check or _Validator(Checked(self._types).all())
        return self._diagnosis(value)

    def _finite(self, value: Any, data: bytes) -> bytes:
        """`data`, if what looks like a number that JSON lacks is a text."""
        problems = self._checked(value)
        if problems:
            raise invalid_output(problems)
        try:
            codec.decode(data)
        except AgentError:
            pass
        else:
            return data
        raise invalid_output([_problem(first_infinite(value) or "", "must be a finite number")])

    def _converted(self, value: Any) -> bytes:
        """The JSON of a value that has another shape than promised, such as a dict for a model."""
        if self._convert is None:
            self._convert = _Validator(Loose(self._types).all())
        problems = self._convert(value)
        if problems:
            raise invalid_output(problems)
        converted = self._convert.converted(value)
        try:
            data = self._to_json(converted, by_alias=True, warnings="error")
        except Exception:  # noqa: BLE001 - see `make_serializer`
            data = None
        if data is None:
            problems = self._checked(converted)
            if problems:
                raise invalid_output(problems)
            found = first_without_form(converted) or ("", "has no JSON form")
            raise invalid_output([_problem(*found)]) from self._failure(converted)
        return self._proved(converted, data)

    def _failure(self, value: Any) -> BaseException | None:
        """What code of the tool's author raises when `value` is written, None if it raises nothing. `to_json` keeps only its text."""
        try:
            call_foreign(self._serializer.to_python, value, mode="json", by_alias=True, warnings="none")
        except AgentError as error:
            return error
        except Fault as fault:
            return fault.origin.__cause__ if isinstance(fault.origin, PydanticSerializationError) else fault.origin
        return None


class _Validator:
    """One way to look at a value, in Python mode."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._root: Node = types.fields[_RETURN]["schema"]
        schema = whole(self._root, types.definitions.values())
        self._validate = SchemaValidator(schema, CoreConfig(strict=True), _use_prebuilt=False).validate_python

    def __call__(self, value: Any) -> list[Problem]:
        """What is wrong with a value."""
        try:
            self._validate(value, by_alias=True, by_name=True)
        except ValidationError as problem:
            errors: Any = problem.errors(include_url=False)
            return problems_of(self._types, self._root, errors, output_subject)
        except RecursionError:
            return [_problem("", "is nested too deeply, or contains itself")]
        return []

    def converted(self, value: Any) -> Any:
        """The value as the type promises it, after a call has found nothing wrong."""
        return self._validate(value, by_alias=True, by_name=True)


def _as_it_is(value: Any) -> bytes | None:
    """A value of no declared type as JSON; None when that needs a closer look."""
    try:
        return msgspec.json.encode(value, enc_hook=jsonable)
    except Exception:  # noqa: BLE001 - properties of the tool's author run in there
        return None


def _problem(path: str, said: str) -> Problem:
    return {"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}
