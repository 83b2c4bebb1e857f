"""Tools made by hand: an object with ``spec`` and ``execute``, checked against the JSON Schemas of its spec."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from .._json_schema import Failure, SchemaFault, Validator
from .._model import protocols
from .._model.codec import containers_in, decode
from .._model.compiled_tool import CompiledTool, TakesLong
from .._model.errors import AgentError, DeclarationError
from .._model.host_objects import is_async
from .._model.json_pieces import decode_in_pieces
from .._model.spec import ToolSpec
from .._model.suggestions import shortened
from .._model.type_guards import is_dict
from .._schema.annotations import UnusableType
from .._schema.bounded_validator import marks_in
from .._schema.json_form import first_infinite, first_without_form, may_hide_infinite
from .._schema.messages import (
    MAX_PROBLEMS,
    MAX_SUGGESTIONS,
    Problem,
    Subject,
    invalid_arguments,
    output_subject,
    path_of,
    subject_of,
    unknown_problem,
)
from .._schema.plain_values import jsonable
from .._schema.type_names import noun_of_type, one_of
from .._schema.work import Work
from .arguments import arguments_parser
from .attributes import wrong_limit
from .output import invalid_output, output_renderer, too_large
from .signature import Argument, SignaturePlan, is_object_type

SHORT_BYTES = 4096
"""Arguments and outputs up to this size are checked on the event loop."""

MAX_VALUES_AT_ONCE = 512
"""Values in longer ones, such as a long text, that are checked there as well. A check takes about 10 microseconds for each."""

MAX_CONTAINERS = 250_000
"""Lists and objects in the arguments of one call. Decoded and checked, each can take 300 bytes of memory."""

_WORDS: Mapping[str, tuple[str, str]] = {
    # keyword: our code, what follows "argument 'x' "; {} is the keyword's value
    "required": ("missing", "is missing"),
    "dependentRequired": ("missing", "is missing"),
    "false": ("not_allowed", "is not allowed"),
    "not": ("not_allowed", "has a form that is not allowed"),
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
    "contains": ("too_short", "must have at least {} items of the form that it must contain"),
    "maxContains": ("too_long", "must have at most {} items of the form that it must contain"),
    "uniqueItems": ("invalid", "must not have two equal items"),
    "pattern": ("wrong_format", "must match the pattern {}"),
}


_CLOSING = ("additionalProperties", "unevaluatedProperties")
"""Keywords that call a name not known."""


def spec_of_object(made: protocols.Tool) -> ToolSpec:
    """The spec of a tool made by hand, with plain words in place of enums understood.

    Raises:
        DeclarationError: The object cannot be called as a tool, or its spec is wrong.
    """
    name = type(made).__qualname__
    given: Any = made.spec
    if not isinstance(given, ToolSpec):
        raise DeclarationError(f"the spec of a {name} object is no ToolSpec. Build it with carmy_engine.ToolSpec(...).")
    wrong: str | None
    try:
        spec = msgspec.convert(msgspec.structs.asdict(given), ToolSpec)
    except msgspec.ValidationError as problem:
        wrong = str(problem)
    else:
        wrong = wrong_limit(msgspec.structs.asdict(spec))
        if wrong is None:
            _check_callables(made, name)
            return spec
    raise DeclarationError(f"the spec of a {name} object is wrong: {wrong}. See carmy_engine.ToolSpec.")


def compile_object(made: protocols.Tool, spec: ToolSpec, max_output_bytes: int) -> CompiledTool:
    """Build the checks of a tool that was made by hand.

    Args:
        made: The object.
        spec: Its declared properties.
        max_output_bytes: Of the rendered output.

    Raises:
        AgentError: ``INVALID_SCHEMA``, naming every schema that cannot be used.
    """
    arguments, output = _validators(spec)
    return CompiledTool(
        spec=spec,
        function=made.execute,
        is_async=is_async(made.execute),
        context_parameter="ctx",
        parse=_parser(arguments, _typed_parser(made, spec)),
        render=_renderer(output, max_output_bytes),
        reconcile=getattr(made, "reconcile", None),
        backend=getattr(made, "backend", None),
    )


def schema_of(type: Any, *, output: bool = False) -> Mapping[str, Any]:  # noqa: A002 - what it is called everywhere
    """The JSON Schema of a type, as a tool declared with it publishes it.

    ::

        class Search:
            spec = ToolSpec(
                name="search",
                description="Search the catalog.",
                input_schema=schema_of(Query),
                output_schema=schema_of(list[Product], output=True),
                effect=Effect.READ,
            )

            async def execute(self, ctx: AgentContext, input: Query) -> list[Product]: ...

    Args:
        type: Any type that a parameter of a tool can have. For ``input_schema`` it must be an object type: a model, a dataclass, a
            TypedDict or a msgspec Struct.
        output: The schema of what a tool returns, which can differ from that of what it takes.

    Raises:
        DeclarationError: The type has no JSON form, or names a type that is not defined yet.
    """
    try:
        if output:
            return output_renderer(_of_type, _plan(returns=type)).schema
        if is_object_type(type):
            return arguments_parser(_of_type, _plan(input=type)).schema
        whole = arguments_parser(_of_type, _plan(argument=type)).schema
    except (UnusableType, NameError) as problem:
        raise DeclarationError(f"schema_of: {problem}") from None
    kept = {key: value for key, value in whole.items() if key in ("$schema", "$defs")}
    return {**whole["properties"][_INPUT], **kept}


def parser_of_type(type: type[Any]) -> tuple[Mapping[str, Any], Callable[[bytes], Any]]:  # noqa: A002 - as above
    """The schema of an object type, and the function from its JSON to a value, which raises as `CompiledTool.parse` does.

    Raises:
        DeclarationError: It is no object type, or has no JSON form.
    """
    if not is_object_type(type):
        name = getattr(type, "__qualname__", repr(type))
        raise DeclarationError(f"{name} is no model, dataclass, TypedDict or msgspec Struct")
    try:
        parser = arguments_parser(_of_type, _plan(input=type))
    except (UnusableType, NameError) as problem:
        raise DeclarationError(f"{type.__qualname__}: {problem}") from None
    parse = parser.bind({})
    return parser.schema, lambda data: parse(data)[_INPUT]


def renderer_of_type(type: Any, max_bytes: int) -> Callable[[Any], bytes]:  # noqa: A002 - as above
    """The function from a value to JSON, which raises as `CompiledTool.render` does.

    Raises:
        DeclarationError: The type has no JSON form.
    """
    try:
        return output_renderer(_of_type, _plan(returns=type)).limited(max_bytes)
    except (UnusableType, NameError) as problem:
        raise DeclarationError(f"{getattr(type, '__qualname__', type)}: {problem}") from None


def reader_of_type(type: Any) -> Callable[[bytes], Any]:  # noqa: A002 - as above
    """The function from the JSON of a value of any type to the value, which raises as `CompiledTool.parse` does.

    Raises:
        DeclarationError: The type has no JSON form.
    """
    if is_object_type(type):
        return parser_of_type(type)[1]
    try:
        parse = arguments_parser(_of_type, _plan(argument=type)).bind({})
    except (UnusableType, NameError) as problem:
        raise DeclarationError(f"{getattr(type, '__qualname__', type)}: {problem}") from None

    def read(data: bytes) -> Any:
        try:
            return parse(b'{"%b":%b}' % (_INPUT.encode(), data))[_INPUT]
        except TakesLong as taken:
            check: Callable[[Any], dict[str, Any]] = taken.check
        raise TakesLong(lambda work: check(work)[_INPUT])

    return read


_INPUT = "input"


def _of_type() -> None:
    pass  # in place of a function whose docstring describes the arguments


def _plan(*, input: Any = None, argument: Any = None, returns: Any = None) -> SignaturePlan:  # noqa: A002
    annotation = argument if input is None else input
    given = (
        () if annotation is None else (Argument(name=_INPUT, annotation=annotation, default=inspect.Parameter.empty),)
    )
    chosen = None if input is None else _INPUT
    return SignaturePlan(context=None, state={}, arguments=given, input=chosen, returns=returns)


def _check_callables(made: protocols.Tool, name: str) -> None:
    """Refuse methods that could not be called when the time has come.

    Raises:
        DeclarationError: One of them takes other parameters, or `reconcile` is not async.
    """
    if not _takes(made.execute, ctx=None, input=None):
        raise DeclarationError(f"the execute of a {name} object cannot be called with (ctx=..., input=...)")
    reconcile = getattr(made, "reconcile", None)
    if reconcile is None:
        return
    if not is_async(reconcile):
        raise DeclarationError(f"the reconcile of a {name} object is not an async function")
    if not _takes(reconcile, None, None):
        raise DeclarationError(f"the reconcile of a {name} object cannot be called with (ctx, arguments)")


def _takes(function: Callable[..., Any], *arguments: object, **keywords: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError:
        return False
    except ValueError:  # a callable without a signature, such as one written in C
        return callable(function)
    return True


def _typed_parser(made: protocols.Tool, spec: ToolSpec) -> Callable[[bytes], dict[str, Any]] | None:
    """The parser of the type that `execute` names for its input; None if it names none whose fields are the arguments.

    Raises:
        AgentError: ``INVALID_SCHEMA``: the type has no JSON form, or does not exist at run time.
    """
    function = inspect.unwrap(made.execute)
    annotation: Any = getattr(function, "__annotations__", {}).get(_INPUT)
    try:
        if isinstance(annotation, str):
            holder = types.new_class(
                "Annotations", exec_body=lambda names: names.update(__annotations__={_INPUT: annotation})
            )
            annotation = typing.get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True)[
                _INPUT
            ]
        if annotation is None or not is_object_type(annotation):
            return None
        return arguments_parser(_of_type, _plan(input=annotation)).bind({})
    except NameError as problem:
        reason = f"'{problem.name}' does not exist at run time. Import it outside 'if TYPE_CHECKING:'"
    except UnusableType as problem:
        reason = str(problem)
    message = f"tool '{spec.name}': the type of its input: {reason}"
    raise AgentError.standard("INVALID_SCHEMA", message, details={"tool": spec.name})


def _validators(spec: ToolSpec) -> tuple[Validator, Validator]:
    """Of the arguments and of the output."""
    faults: list[str] = []
    made: list[Validator] = []
    for which, schema in (("input_schema", spec.input_schema), ("output_schema", spec.output_schema)):
        try:
            made.append(Validator(msgspec.to_builtins(schema, enc_hook=jsonable, str_keys=True)))
        except SchemaFault as fault:
            place = path_of(fault.place) or "root"
            faults.append(f"{which}: it is not JSON Schema 2020-12: {place}: {fault.reason}")
        except (TypeError, ValueError, RecursionError, OverflowError):
            faults.append(f"{which}: it is not JSON")
        else:
            if which == "input_schema" and schema.get("type") != "object":
                faults.append(f"{which}: its root must have 'type': 'object', because arguments have names")
    if faults:
        message = f"tool '{spec.name}': {'; '.join(faults)}"
        raise AgentError.standard("INVALID_SCHEMA", message, details={"tool": spec.name})
    arguments, output = made
    return arguments, output


def _parser(validator: Validator, typed: Callable[[bytes], dict[str, Any]] | None) -> Callable[[bytes], dict[str, Any]]:
    """The function of `CompiledTool.parse`.

    Args:
        validator: Of the input schema.
        typed: The parser of the type that the tool wants; None if it takes a dict.
    """

    def parse(data: bytes) -> dict[str, Any]:
        if _takes_long(data):
            raise TakesLong(partial(check, data))
        return check(data, None)

    def check(data: bytes, work: Work | None) -> dict[str, Any]:
        # A container takes at least three bytes of JSON.
        if len(data) > 3 * MAX_CONTAINERS and containers_in(data) > MAX_CONTAINERS:
            raise _refused("too_long", f"the arguments must have at most {MAX_CONTAINERS:,} lists and objects")
        value: Any = decode(data) if work is None else decode_in_pieces(data, decode, work.pause)
        if value is None:
            value = {}
        if not is_dict(value):
            raise _refused("wrong_type", "the arguments must be a JSON object")
        problems = _problems(validator, value, subject_of, _pulse_of(work))
        if problems:
            raise invalid_arguments(problems)
        if typed is None:
            return {_INPUT: value}
        try:
            return typed(data)
        except TakesLong as long:
            if work is None:
                raise
            checked: dict[str, Any] = long.check(work)
            return checked

    return parse


def _takes_long(data: bytes) -> bool:
    return len(data) > SHORT_BYTES and marks_in(data) > MAX_VALUES_AT_ONCE


def _refused(code: str, message: str) -> AgentError:
    return invalid_arguments([{"path": "", "code": code, "message": message}])


def _renderer(validator: Validator, limit: int) -> Callable[[Any], bytes]:
    def render(value: Any) -> bytes:
        plain: Any = None
        data: bytes | None = None
        with contextlib.suppress(TypeError, ValueError, RecursionError, OverflowError):
            plain = msgspec.to_builtins(value, enc_hook=jsonable, str_keys=True)
            data = msgspec.json.encode(plain)
        if data is None:
            path, said = first_without_form(value) or ("", "has no JSON form")
            raise invalid_output([_output_problem(path, said)])
        if len(data) > limit:
            raise too_large(len(data), limit)
        if _takes_long(data):
            raise TakesLong(partial(check, plain, data))
        return check(plain, data, None)

    def check(plain: Any, data: bytes, work: Work | None) -> bytes:
        infinite = first_infinite(plain) if may_hide_infinite(plain, data) else None
        if infinite is not None:
            raise invalid_output([_output_problem(infinite, "must be a finite number")])
        if validator.accepts_all:
            return data
        # Decoded again, because the validator takes lists and not tuples.
        written: Any = decode(data) if work is None else decode_in_pieces(data, decode, work.pause)
        problems = _problems(validator, written, output_subject, _pulse_of(work))
        if problems:
            raise invalid_output(problems)
        return data

    return render


def _pulse_of(work: Work | None) -> Callable[[], None] | None:
    """What the evaluation of a schema calls between its steps."""
    return None if work is None else work.pause


def _output_problem(path: str, said: str) -> Problem:
    return {"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}


def _problems(
    validator: Validator, value: Any, subject: Subject, pulse: Callable[[], None] | None = None
) -> list[Problem]:
    """The first `MAX_PROBLEMS`; the rest of the value is not looked at."""
    problems: list[Problem] = []
    unknown = 0
    for failure in itertools.islice(validator.failures(value, pulse), MAX_PROBLEMS):
        unknown += failure.keyword in _CLOSING
        problems.append(_in_words(failure, subject, suggests=unknown <= MAX_SUGGESTIONS))
    return problems


def _in_words(failure: Failure, subject: Subject, *, suggests: bool) -> Problem:
    """A failure in the engine's words, which never repeat the value."""
    location, keyword, wanted = failure
    if keyword in _CLOSING:
        return unknown_problem(location, wanted, subject, suggests=suggests)
    if keyword == "propertyNames":
        name = shortened(str(location[-1]))
        message = f"the name '{name}' in {subject(path_of(location[:-1]))} is not allowed"
        return {"path": path_of(location), "code": "invalid", "message": message}
    if keyword in ("required", "dependentRequired"):
        location = (*location, wanted)
    path = path_of(location)
    code, words = _WORDS.get(keyword, ("invalid", f"is not valid ({keyword})"))
    if keyword == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        code, words = "wrong_type", f"must be {' or '.join(noun_of_type(name) for name in names)}"
    elif keyword in ("enum", "const"):
        code, words = "not_allowed", f"must be {one_of(wanted if keyword == 'enum' else [wanted])}"
    elif keyword in ("anyOf", "oneOf"):
        code, words = "wrong_type", "fits more than one of its forms" if wanted else "fits none of its forms"
    elif "{}" in words:
        words = words.replace("{}", str(wanted))
        if wanted == 1:
            words = words.replace("characters", "character").replace("items", "item").replace("fields", "field")
    return {"path": path, "code": code, "message": f"{subject(path)} {words}"}
