"""Tools made by hand: an object with ``spec`` and ``execute``, checked against the JSON Schemas of its spec."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from . import abc
from ._compiled import CompiledTool
from ._model.spec import ToolSpec
from ._output import invalid_output, too_large
from ._schema.json_form import first_infinite, first_without_form, jsonable, may_hide_infinite
from ._schema.messages import (
    MAX_PROBLEMS,
    Location,
    Problem,
    Subject,
    invalid_arguments,
    output_subject,
    path_of,
    subject_of,
    unknown_problem,
)
from ._schema.type_guards import is_dict, is_list, is_mapping
from ._schema.type_names import noun_of_type, one_of
from .codec import MAX_JSON_DEPTH, decode, invalid_request
from .errors import AgentError

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

_LIMITS: Mapping[str, tuple[str, str]] = {
    "minimum": ("out_of_range", "must be at least {}"),
    "maximum": ("out_of_range", "must be at most {}"),
    "exclusiveMinimum": ("out_of_range", "must be greater than {}"),
    "exclusiveMaximum": ("out_of_range", "must be less than {}"),
    "multipleOf": ("out_of_range", "must be a multiple of {}"),
    "minLength": ("too_short", "must have at least {} characters"),
    "maxLength": ("too_long", "must have at most {} characters"),
    "minItems": ("too_short", "must have at least {} items"),
    "maxItems": ("too_long", "must have at most {} items"),
    "minProperties": ("too_short", "must have at least {} fields"),
    "maxProperties": ("too_long", "must have at most {} fields"),
    "pattern": ("wrong_format", "must match the pattern {}"),
}


def compile_object(made: abc.Tool, spec: ToolSpec) -> CompiledTool:
    """Build the checks of a tool that was made by hand.

    Args:
        made: The object.
        spec: Its declared properties.

    Raises:
        AgentError: ``INVALID_SCHEMA``.
    """
    if spec.input_schema.get("type") != "object":
        raise _invalid_schema(spec, "input_schema", "its root must have 'type': 'object', because arguments have names")
    arguments = _validator(spec, "input_schema", spec.input_schema)
    output = _validator(spec, "output_schema", spec.output_schema)
    return CompiledTool(
        spec=spec,
        function=made.execute,
        is_async=inspect.iscoroutinefunction(made.execute),
        context_parameter="ctx",
        parse=_parser(arguments),
        render=_renderer(output, spec.max_output_bytes),
        reconcile=getattr(made, "reconcile", None),
    )


def _parser(validator: Draft202012Validator) -> Callable[[bytes], dict[str, Any]]:
    def parse(data: bytes) -> dict[str, Any]:
        value: Any = decode(data)
        if value is None:
            value = {}
        if not is_dict(value):
            problem = {"path": "", "code": "wrong_type", "message": "the arguments must be a JSON object"}
            raise invalid_arguments([problem])
        try:
            problems = _problems(validator, value, subject_of)
        except RecursionError:
            problems = None
        if problems is None:
            raise invalid_request(f"the arguments are nested too deeply (the limit is {MAX_JSON_DEPTH} levels)")
        if problems:
            raise invalid_arguments(problems)
        return {"input": value}

    return parse


def _renderer(validator: Draft202012Validator, limit: int) -> Callable[[Any], bytes]:
    def render(value: Any) -> bytes:
        plain: Any = None
        data: bytes | None = None
        with contextlib.suppress(TypeError, ValueError, RecursionError, OverflowError):
            plain = msgspec.to_builtins(value, enc_hook=jsonable, str_keys=True)
            data = msgspec.json.encode(plain)
        if data is None:
            path, said = first_without_form(value) or ("", "has no JSON form")
            raise invalid_output([_output_problem(path, said)])
        infinite = first_infinite(plain) if may_hide_infinite(plain, data) else None
        if infinite is not None:
            raise invalid_output([_output_problem(infinite, "must be a finite number")])
        if len(data) > limit:
            raise too_large(len(data), limit)
        try:
            # Decoded again, because the validator knows lists and not tuples.
            problems = _problems(validator, decode(data), output_subject)
        except RecursionError:
            problems = [_output_problem("", "is nested too deeply")]
        if problems:
            raise invalid_output(problems)
        return data

    return render


def _output_problem(path: str, said: str) -> Problem:
    return {"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}


def _validator(spec: ToolSpec, which: str, schema: Mapping[str, Any]) -> Draft202012Validator:
    # Imported here because it takes longer than the rest of the engine together, and most applications never need it.
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    try:
        plain = msgspec.to_builtins(schema, enc_hook=jsonable, str_keys=True)
        Draft202012Validator.check_schema(plain)
    except SchemaError as problem:
        reason = f"it is not JSON Schema 2020-12: {path_of(problem.absolute_path) or 'root'}: {problem.message}"
    except (TypeError, ValueError, RecursionError):
        reason = "it is not JSON"
    else:
        missing = _unresolved(plain) if is_dict(plain) else None
        if missing is None:
            # Without a registry of our own a "$ref" could make the library fetch from the network.
            return Draft202012Validator(plain, registry=Registry())
        reason = f"'$ref': {missing!r} does not point into the schema itself"
    raise _invalid_schema(spec, which, reason)


def _invalid_schema(spec: ToolSpec, which: str, reason: str) -> AgentError:
    return AgentError.standard("INVALID_SCHEMA", f"tool '{spec.name}': {which}: {reason}", details={"tool": spec.name})


def _unresolved(schema: Any) -> str | None:
    """A reference that does not lead anywhere inside the schema; None when all do."""
    own: str = schema.get("$id", "")
    anchors = {part.get(key) for part in _parts(schema) for key in ("$anchor", "$dynamicAnchor")}
    for part in _parts(schema):
        if "$id" in part and part is not schema:
            return str(part["$id"])  # a second document inside this one: nothing here needs that
        for key in ("$ref", "$dynamicRef"):
            reference = part.get(key)
            if isinstance(reference, str):
                inner = reference.removeprefix(own)
                if inner not in ("", "#") and inner[1:] not in anchors and not _points_into(schema, inner):
                    return reference
    return None


def _points_into(schema: Any, reference: str) -> bool:
    if not reference.startswith("#/"):
        return False
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if is_list(schema) and name.isdigit() and int(name) < len(schema):
            schema = schema[int(name)]
        elif is_dict(schema) and name in schema:
            schema = schema[name]
        else:
            return False
    return True


def _parts(schema: Any) -> Iterable[dict[str, Any]]:
    if is_dict(schema):
        yield schema
        for key, part in schema.items():
            if key not in ("const", "enum", "default", "examples"):
                yield from _parts(part)
    elif is_list(schema):
        for part in schema:
            yield from _parts(part)


def _problems(validator: Draft202012Validator, value: Any, subject: Subject) -> list[Problem]:
    untyped: Any = validator  # its stubs leave half of it open
    found: list[ValidationError] = list(untyped.iter_errors(value))
    errors = sorted(found, key=lambda error: [str(part) for part in error.absolute_path])
    return [problem for error in errors[:MAX_PROBLEMS] for problem in _in_words(error, subject)][:MAX_PROBLEMS]


def _in_words(error: ValidationError, subject: Subject) -> Iterable[Problem]:
    """One error of the library in the engine's words, which never repeat the value."""
    location: Location = tuple(error.absolute_path)
    path = path_of(location)
    keyword = str(error.validator)
    wanted: Any = error.validator_value
    instance: Any = error.instance
    if keyword == "required" and is_mapping(instance):
        # The library reports each missing name on its own; its text is where the name stands.
        name = next((name for name in wanted if name not in instance and repr(name) in error.message), "")
        inner = path_of((*location, name))
        yield {"path": inner, "code": "missing", "message": f"{subject(inner)} is missing"}
    elif keyword in ("additionalProperties", "unevaluatedProperties") and is_mapping(instance):
        schema: Any = error.schema
        valid = [str(name) for name in schema.get("properties", {})]
        for name in instance:
            if name not in valid:
                yield unknown_problem((*location, str(name)), valid, subject)
    elif keyword == "type":
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        said = " or ".join(noun_of_type(name) for name in names)
        yield {"path": path, "code": "wrong_type", "message": f"{subject(path)} must be {said}"}
    elif keyword in ("enum", "const"):
        said = one_of(list(wanted) if keyword == "enum" else [wanted])
        yield {"path": path, "code": "not_allowed", "message": f"{subject(path)} must be {said}"}
    elif keyword in _LIMITS:
        code, words = _LIMITS[keyword]
        yield {"path": path, "code": code, "message": f"{subject(path)} {words.format(wanted)}"}
    elif keyword in ("anyOf", "oneOf"):
        said = "fits none of its forms" if error.context else "fits more than one of its forms"
        yield {"path": path, "code": "wrong_type", "message": f"{subject(path)} {said}"}
    else:
        yield {"path": path, "code": "invalid", "message": f"{subject(path)} is not valid ({keyword})"}
