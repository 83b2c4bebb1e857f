"""Outputs: what a tool returned into JSON bytes that fit its schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from pydantic_core import (
    CoreConfig,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
)

from . import codec
from ._encode import first_infinite, first_without_form, jsonable
from ._loose import Checked, Loose, Rendered, is_constrained
from ._publish import output_schema
from ._schema import Node, Types, types_of, whole
from ._shapes import is_table
from ._signature import SignaturePlan
from ._words import Problem, output_subject, problems_of
from .errors import AgentError

_RETURN = "return"


@dataclasses.dataclass(frozen=True, slots=True)
class OutputRenderer:
    """The serialiser of one tool's output.

    Attributes:
        schema: JSON Schema.
        render: A value → JSON, whatever its size.
        promised: A value that `render` took → the same, in the shape that the return type promises.
    """

    schema: Mapping[str, Any]
    render: Callable[[Any], bytes]
    promised: Callable[[Any], Any]

    def limited(self, limit: int) -> Callable[[Any], bytes]:
        """The function of `CompiledTool.render`, which refuses more than `limit` bytes."""
        plain = self.render

        def render(value: Any) -> bytes:
            data = plain(value)
            if len(data) > limit:
                raise too_large(len(data), limit)
            return data

        return render


def too_large(size: int, limit: int) -> AgentError:
    """``OUTPUT_TOO_LARGE``."""
    message = f"the tool ran, but its output of {size} bytes is over the limit of {limit} bytes"
    return AgentError.standard("OUTPUT_TOO_LARGE", message, details={"size_bytes": size, "limit_bytes": limit})


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
    renderer = _Renderer(serializer.to_json, types)
    return OutputRenderer(schema, renderer.render, renderer.promised)


class _NoScalar:
    """The scalar type of outputs that are none."""


_SCALARS: Mapping[str, type] = {"str": str, "int": int, "bool": bool, "none": type(None)}
"""By the type of the core schema."""


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

    def __init__(self, to_json: Callable[..., bytes], types: Types) -> None:
        self._to_json = to_json
        self._scalar = _SCALARS.get(types.fields[_RETURN]["schema"]["type"], _NoScalar)
        self._plain = _plain_type(types.resolve(types.fields[_RETURN]["schema"]))
        self._types = types
        self._check = _Validator(Checked(types).all()) if is_constrained(types) else None
        self._diagnosis: _Validator | None = None
        self._convert: _Validator | None = None

    def render(self, value: Any) -> bytes:
        """A value as JSON.

        Raises:
            AgentError: ``INVALID_OUTPUT``.
        """
        try:
            # A scalar of exactly the promised type gives no warnings, and the word "error" alone takes pydantic ten times
            # as long as writing it.
            if type(value) is self._scalar:
                data = self._to_json(value)
            elif self._is_plain(value):
                data = msgspec.json.encode(value, enc_hook=jsonable)
                if b"null" not in data:
                    return data
                # Perhaps a NaN: pydantic tells, at half the speed.
                data = self._to_json(value, by_alias=True, warnings="error")
            else:
                data = self._to_json(value, by_alias=True, warnings="error")
        except Exception:  # noqa: BLE001 - serialisers and properties of the tool's author run in there
            return self._converted(value)
        # A scalar is no float, and in a long text both words take longer to look for than it takes to write.
        if type(value) is not self._scalar and (b"NaN" in data or b"Infinity" in data):
            return self._finite(value, data)
        if self._check is not None:
            problems = self._check(value)
            if problems:
                raise invalid_output(problems)
        return data

    def promised(self, value: Any) -> Any:
        """A value that was rendered, in the shape that the type promises: a model, if the tool returned a dict for it."""
        if self._convert is None:
            return value  # nothing of another shape was ever rendered
        try:
            self._to_json(value, by_alias=True, warnings="error")
        except Exception:  # noqa: BLE001 - see render
            return self._convert.converted(value)
        return value

    def _is_plain(self, value: Any) -> bool:
        """True for a value that holds nothing but Any, which needs no schema to be written."""
        if self._plain is dict:
            return is_table(value) and type(value) is dict and all(type(name) is str for name in value)
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
        cause: Exception | None = None
        try:
            data = self._to_json(converted, by_alias=True, warnings="error")
        except Exception as problem:  # noqa: BLE001 - see render
            data, cause = None, problem
        if data is None:
            problems = self._checked(converted)
            if problems:
                raise invalid_output(problems)
            found = first_without_form(converted)
            if found is None:
                # Nothing is wrong with the data, so code of the tool's author failed: keep what it raised.
                raise invalid_output([_problem("", "has no JSON form")]) from cause
            raise invalid_output([_problem(*found)])
        if self._check is not None:
            problems = self._check(converted)
            if problems:
                raise invalid_output(problems)
        if b"NaN" in data or b"Infinity" in data:
            return self._finite(converted, data)
        return data


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


def _problem(path: str, said: str) -> Problem:
    return {"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}
