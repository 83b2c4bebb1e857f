"""Outputs: what a tool returned into JSON bytes that fit its schema."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from pydantic_core import (
    CoreConfig,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
    from_json,
)

from .._model import codec
from .._model.compiled_tool import TakesLong
from .._model.error_boundary import Fault, call_foreign
from .._model.errors import AgentError
from .._model.type_guards import is_dict
from .._schema.bounded_validator import BoundedValidator, InvalidLong, counting_validator, marks_in
from .._schema.content_rules import check_content
from .._schema.core_schema import types_of
from .._schema.json_form import (
    ODD_OFFSET,
    Doubts,
    first_ambiguous,
    first_infinite,
    first_odd_offset,
    first_without_form,
    has_infinite,
    make_serializer,
    may_hide_odd_offset,
    too_large,
)
from .._schema.json_schema import output_schema
from .._schema.messages import Problem, output_subject, problems_of
from .._schema.nodes import Node, Types, whole
from .._schema.output_rules import (
    checked_types,
    converted_types,
    has_open_names,
    has_times,
    is_finite,
    is_wrapped,
    null_fits_inside,
    proof_of,
    written_types,
)
from .._schema.plain_values import has_only_names, jsonable
from .._schema.work import TooCostly, Work
from .signature import SignaturePlan

__all__ = ["OutputRenderer", "invalid_output", "output_renderer", "too_large"]

_RETURN = "return"

SHORT_BYTES = 32 * 1024
"""Outputs up to this size are checked on the event loop, where their JSON has to be checked at all: that takes a few
milliseconds at most."""

MAX_VALUES_AT_ONCE = 8192
"""Values in longer outputs, such as a long text, that are checked there as well. Counted are the marks between values."""


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
    check_content(types, types.fields[_RETURN]["schema"])
    schema = output_schema(types, types.fields[_RETURN]["schema"])
    written = written_types(types)
    root = written.fields[_RETURN]["schema"]
    nodes = [root, *written.definitions.values()]
    # NaN written as such is found afterwards; written as null it would be lost.
    serializer = SchemaSerializer(
        whole(root, written.definitions.values()),
        CoreConfig(ser_json_inf_nan="constants", serialize_by_alias=True),
        _use_prebuilt=False,
    )
    own: Node = types.fields[_RETURN]["schema"]
    doubts = Doubts(
        null=not null_fits_inside(types, own),
        infinite=not is_finite(written, nodes),
        offset=has_times(types),
        names=has_open_names(types),
        proof=proof_of(types, own),
    )
    renderer = _Renderer(serializer, types, doubts, is_wrapped=is_wrapped(nodes))
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

    def __init__(self, serializer: SchemaSerializer, types: Types, doubts: Doubts, *, is_wrapped: bool) -> None:
        self._serializer = serializer
        self._to_json = serializer.to_json
        self._doubts = doubts
        self._is_wrapped = is_wrapped
        self._plain = _plain_type(types.resolve(types.fields[_RETURN]["schema"]))
        self._types = types
        self._check: _Validator | None = None
        self._convert: _Validator | None = None

    def limited(self, limit: int) -> Callable[[Any], bytes]:
        """The function that renders, and refuses more than `limit` bytes.

        It raises `AgentError` ``INVALID_OUTPUT`` or ``OUTPUT_TOO_LARGE``, or `TakesLong`.
        """
        typed = make_serializer(
            self._serializer,
            partial(self._converted, limit),
            partial(self._verified, limit),
            self._doubts,
            limit,
            is_wrapped=self._is_wrapped,
        )
        if self._plain is None:
            return typed

        def plain(value: Any) -> bytes:
            if self._is_plain(value):
                data = _as_it_is(value)
                # A null may have been NaN: the typed path finds out, at half the speed.
                if data is not None and len(data) <= limit and b"null" not in data:
                    return data
            return typed(value)

        return plain

    @property
    def _checker(self) -> _Validator:
        if self._check is None:
            self._check = _Validator(checked_types(self._types))
        return self._check

    def _verified(self, limit: int, value: Any, data: bytes, *, is_converted: bool = False) -> bytes:
        """`data`, if it fits the schema and holds the value exactly.

        Raises:
            TakesLong: The JSON is long. Its check, in a thread, leaves the value alone, which the tool may change meanwhile;
                unless the JSON does not fit.
        """
        if len(data) > SHORT_BYTES and marks_in(data) > MAX_VALUES_AT_ONCE:
            found = self._problems_of_value(value, data)
        else:
            try:
                problems = self._problems_of_json(data, None) or self._problems_of_value(value, data)
                return self._agreed(limit, value, data, problems, is_converted=is_converted, work=None)
            except TooCostly:
                found = self._problems_of_value(value, data)

        def check(work: Work) -> bytes:
            if len(data) > limit:
                raise too_large(len(data), limit)
            problems = self._problems_of_json(data, work) or found
            return self._agreed(limit, value, data, problems, is_converted=is_converted, work=work)

        raise TakesLong(check)

    def _agreed(
        self, limit: int, value: Any, data: bytes, problems: list[Problem], *, is_converted: bool, work: Work | None
    ) -> bytes:
        """`data`, if there are no problems."""
        if not problems:
            return data
        if is_converted:
            raise invalid_output(problems)
        # A value of another class, perhaps, which pydantic takes for the one promised.
        try:
            return self._converted(limit, value)
        except TakesLong as long:
            if work is None:
                raise
            check: Callable[[Work], bytes] = long.check
        return check(work)

    def _problems_of_json(self, data: bytes, work: Work | None) -> list[Problem]:
        """What is wrong with JSON that was written."""
        problems = self._checker.problems_in_json(data, work)
        if not problems and has_infinite(data):
            try:
                codec.decode(data)
            except AgentError:
                problems = [_problem(first_infinite(from_json(data)) or "", "must be a finite number")]
        return problems

    def _problems_of_value(self, value: Any, data: bytes) -> list[Problem]:
        """What the JSON of a value does not show."""
        if self._doubts.offset and may_hide_odd_offset(value, data):
            odd = first_odd_offset(value)
            if odd is not None:
                return [_problem(odd, ODD_OFFSET)]
        if self._doubts.names and not has_only_names(value):
            ambiguous = first_ambiguous(value)
            if ambiguous is not None:
                return [_problem(*ambiguous)]
        return []

    def promised(self, value: Any) -> Any:
        """A value that was rendered, in the shape that the type promises: a model, if the tool returned a dict for it."""
        if self._convert is None:
            return value  # nothing of another shape was ever rendered
        try:
            self._to_json(value, warnings="error")
        except Exception:  # noqa: BLE001 - see `make_serializer`
            return self._convert.converted(value)
        return value

    def _is_plain(self, value: Any) -> bool:
        """True for a value that holds nothing but Any, which needs no schema to be written."""
        if self._plain is dict:
            return is_dict(value) and type(value) is dict and all(type(name) is str for name in value)
        return self._plain is object

    def _converted(self, limit: int, value: Any) -> bytes:
        """The JSON of a value that has another shape than promised, such as a dict for a model."""
        if self._convert is None:
            self._convert = _Validator(converted_types(self._types))
        problems = self._convert(value)
        if problems:
            raise invalid_output(problems)
        converted = self._convert.converted(value)
        try:
            data = self._to_json(converted, warnings="error")
        except Exception:  # noqa: BLE001 - see `make_serializer`
            data = None
        if data is None:
            problems = self._mismatches(converted)
            if problems:
                raise invalid_output(problems)
            found = first_without_form(converted) or first_ambiguous(converted) or ("", "has no JSON form")
            raise invalid_output([_problem(*found)]) from self._failure(converted)
        return self._verified(limit, converted, data, is_converted=True)

    def _mismatches(self, value: Any) -> list[Problem]:
        """Problems of a value that its serialiser refuses, found in the JSON that is written regardless."""
        try:
            return self._checker.problems_in_json(self._to_json(value, warnings=False), None)
        except Exception:  # noqa: BLE001 - see `make_serializer`
            return []

    def _failure(self, value: Any) -> BaseException | None:
        """What code of the tool's author raises when `value` is written, None if it raises nothing. `to_json` keeps only its text."""
        try:
            call_foreign(self._serializer.to_python, value, mode="json", warnings="none")
        except AgentError as error:
            return error
        except Fault as fault:
            return fault.origin.__cause__ if isinstance(fault.origin, PydanticSerializationError) else fault.origin
        return None


class _Validator:
    """One way to look at an output."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._root: Node = types.fields[_RETURN]["schema"]
        schema = whole(self._root, types.definitions.values())
        self._validator = SchemaValidator(schema, CoreConfig(strict=True), _use_prebuilt=False)
        self._validate = self._validator.validate_python

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

    def problems_in_json(self, data: bytes, work: Work | None) -> list[Problem]:
        """What is wrong with JSON that was written.

        Args:
            data: The JSON.
            work: Of a check in a thread; None on the event loop.

        Raises:
            Abandoned: See there.
            TooCostly: Recursive unions try too much for the event loop.
        """
        try:
            if work is None:
                self._validate_json(data)
            else:
                self._bounded.validate(data, work)
        except ValidationError as problem:
            errors: Any = problem.errors(include_url=False)
        except InvalidLong as problem:
            errors = problem.errors
        else:
            return []
        return problems_of(self._types, self._root, errors, output_subject)

    @functools.cached_property
    def _validate_json(self) -> Callable[[bytes], Any]:
        return counting_validator(self._types, self._root) or self._validator.validate_json

    @functools.cached_property
    def _bounded(self) -> BoundedValidator:
        return BoundedValidator(self._types, self._root)

    def converted(self, value: Any) -> Any:
        """The value as the type promises it, after a call has found nothing wrong."""
        return self._validate(value, by_alias=True, by_name=True)


def _as_it_is(value: Any) -> bytes | None:
    """A value of no declared type as JSON; None when that needs a closer look."""
    try:
        if not has_only_names(value):
            return None
        data = msgspec.json.encode(value, enc_hook=jsonable)
        return None if may_hide_odd_offset(value, data) else data
    except Exception:  # noqa: BLE001 - properties of the tool's author run in there
        return None


def _problem(path: str, said: str) -> Problem:
    return {"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}
