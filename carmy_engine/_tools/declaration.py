"""``@tool``: what a declaration holds, and how it becomes a tool that is ready to run."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, NoReturn, TypeVar, Unpack, cast

import msgspec

from .._model import protocols
from .._model.compiled_tool import Backend, CompiledTool, RunIn, TakesLong
from .._model.effect import Effect
from .._model.errors import AgentError, DeclarationError
from .._model.host_objects import is_async
from .._model.provision import Provision
from .._model.settlement import Reconcile
from .._model.spec import ToolSpec
from .._schema.annotations import INJECTED, Arg, State, UnresolvedType, UnusableType
from .._schema.docstrings import description_of
from .._schema.plain_values import jsonable
from .arguments import ArgumentsParser, arguments_parser
from .attributes import SPEC_ATTRIBUTES, ToolAttributes, checked_attributes, choices
from .function_place import check_plan, place_of_function
from .output import OutputRenderer, output_renderer
from .provided import scoped_states
from .signature import SignaturePlan, is_method, local_names, location_of, plan_of, refuse
from .tool_objects import compile_object, spec_of_object

__all__ = [
    "INJECTED",
    "Arg",
    "State",
    "ToolAttributes",
    "ToolDeclaration",
    "compile_tool",
    "declaration_of",
    "declared",
    "function_tool",
    "problems_of",
    "spec_of",
    "tool",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

MakeOutput = Callable[[Callable[..., Any], SignaturePlan], OutputRenderer]

_ATTRIBUTE = "__carmy_tool__"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_registered: list[ToolDeclaration] = []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """What ``@tool`` found out about a function.

    Attributes:
        function: What to call.
        name: The tool's name.
        location: ``file:line`` of the function.
        description: What a model reads.
        properties: The attributes that are fields of its `ToolSpec`, as far as they were given.
        register: Part of `declared`.
        reconcile: Returns the outcome of an interrupted attempt. One from the body of a class waits for its object as well.
        backend: The library of an async function; None for that of the application.
        run_in: ``process``: the function runs in a worker process.
        plan: What the parameters are; None as long as an annotation names something not defined yet.
        names: What string annotations may name beside the module; only kept while `plan` is None.
        parts: Validator and serialiser; None as long as a type names something not defined yet.
        make_output: Makes the serialiser.
        is_method: `function` waits for its object; see `bound_to`.
    """

    function: Callable[..., Any]
    name: str
    location: str
    description: str
    properties: Mapping[str, Any]
    register: bool = True
    reconcile: Reconcile | None = None
    backend: Backend | None = None
    run_in: RunIn | None = None
    plan: SignaturePlan | None = None
    names: Mapping[str, Any] | None = None
    parts: tuple[ArgumentsParser, OutputRenderer] | None = None
    make_output: MakeOutput = output_renderer
    is_method: bool = False

    def bound_to(self, function: Callable[..., Any]) -> ToolDeclaration:
        """The same tool that calls `function`: the method of an object, or what a decorator made of it."""
        reconcile, owner = self.reconcile, getattr(function, "__self__", None)
        if owner is not None and reconcile is not None and is_method(reconcile):
            reconcile = MethodType(reconcile, owner)
        return dataclasses.replace(self, function=function, is_method=False, reconcile=reconcile)


def tool(*function: NoReturn, **attributes: Unpack[ToolAttributes]) -> Callable[[F], F]:
    """Declare a function as a tool. Returns the same function, so that it can still be called and tested as it is.

    Args:
        *function: Catches ``@tool`` without its parentheses.
        **attributes: See `ToolAttributes`.

    Raises:
        DeclarationError: The function cannot be a tool; the message has the reason, the place and a correction.
    """
    if function:
        raise refuse(
            function[0], "@tool needs an effect", "Write @tool(effect=...) with one of: " + choices(Effect) + "."
        )

    def decorate(target: F) -> F:
        declaration = declare(target, dict(attributes), depth=1)
        setattr(target, _ATTRIBUTE, declaration)
        if declaration.register and not declaration.is_method:
            _registered.append(declaration)
        return target

    return decorate


def declared() -> tuple[ToolDeclaration, ...]:
    """Every tool declared with ``register=True`` so far, in order."""
    return tuple(_registered)


def declare(
    function: Callable[..., Any],
    attributes: Mapping[str, Any],
    *,
    depth: int = 0,
    make_output: MakeOutput = output_renderer,
) -> ToolDeclaration:
    """Check a function and its attributes.

    Args:
        function: The function.
        attributes: See `ToolAttributes`.
        depth: Frames between this call and the code that defines the function.
        make_output: Makes the serialiser of what it returns.

    Raises:
        DeclarationError: See `tool`.
    """
    if not inspect.isfunction(function):
        instead = "Decorate a function; for full control pass an object with 'spec' and 'execute' to App.add."
        raise refuse(function, "it is not a function", instead)
    checked = checked_attributes(function, attributes)
    names = local_names(function, depth + 1)
    method = is_method(function)
    try:
        plan = plan_of(function, names, method=method)
    except NameError:
        plan = None  # a class further down in the module; compile_tool asks again
    if plan is not None and checked.get("run_in") is not None:
        check_plan(function, plan)
    parts = None if plan is None else _parts_at_declaration(function, plan, make_output)
    description, name = checked.get("description"), checked.get("name")
    return ToolDeclaration(
        function=function,
        name=function.__name__ if name is None else name,
        location=location_of(function),
        description=description_of(function) if description is None else description,
        properties={key: value for key, value in checked.items() if key in SPEC_ATTRIBUTES},
        register=checked.get("register", True),
        reconcile=checked.get("reconcile"),
        backend=checked.get("backend"),
        run_in=checked.get("run_in"),
        plan=plan,
        names=names if plan is None else None,
        parts=parts,
        make_output=make_output,
        is_method=method,
    )


def function_tool(attribute: object) -> ToolDeclaration | None:
    """The declaration that a function, or a static or class method of one, carries; None for everything else."""
    function: object = attribute
    if isinstance(attribute, staticmethod | classmethod):
        function = cast("staticmethod[..., object]", attribute).__func__
    found = getattr(function, _ATTRIBUTE, None) if inspect.isfunction(function) else None
    return found if isinstance(found, ToolDeclaration) else None


def declaration_of(candidate: object) -> ToolDeclaration | protocols.Tool:
    """What an application was given as a tool.

    Args:
        candidate: A function decorated with `tool`, a declaration, or an object with ``spec`` and ``execute``.

    Raises:
        DeclarationError: It is none of them, or a method without its object.
    """
    if isinstance(candidate, ToolDeclaration):
        return _with_object(candidate)
    declaration = getattr(candidate, _ATTRIBUTE, None)
    if isinstance(declaration, ToolDeclaration) and callable(candidate):
        if declaration.function is not candidate and not (declaration.is_method and inspect.isfunction(candidate)):
            # The method of an object; or decorated again above @tool, by something that copies attributes: call the outermost.
            return declaration.bound_to(candidate)
        return _with_object(declaration)
    if isinstance(candidate, protocols.Tool) and not isinstance(candidate, type):
        spec_of_object(candidate)  # so that a wrong one is refused where it is given
        return candidate
    if callable(candidate):
        raise refuse(candidate, "it is not declared as a tool", "Decorate it with @tool(effect=...).")
    raise DeclarationError(
        f"{type(candidate).__name__} object is not a tool. Pass functions decorated with @tool(effect=...), "
        "or objects with 'spec' and 'execute(ctx, input)'."
    )


def _with_object(declaration: ToolDeclaration) -> ToolDeclaration:
    if not declaration.is_method:
        return declaration
    owner = declaration.function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    instead = f"Pass the object, such as {owner}(...), or the method of one."
    raise refuse(declaration.function, "it is a method, and the engine has no object to call it on", instead)


def spec_of(declaration: ToolDeclaration | protocols.Tool) -> ToolSpec:
    """The properties of one tool, which do not depend on any state.

    Raises:
        AgentError: ``INVALID_TOOL_NAME`` or ``INVALID_SCHEMA``.
        DeclarationError: The spec of a tool made by hand is no `ToolSpec`.
    """
    if not isinstance(declaration, ToolDeclaration):
        return compile_tool(declaration, {}).spec
    _check_name(declaration.name, declaration.location)
    return _spec(declaration, *_parts(declaration, _resolved_plan(declaration)))


def returns_of(tool: object) -> Any:
    """The return annotation of a function declared as a tool.

    Raises:
        AgentError: ``INVALID_SCHEMA``.
        DeclarationError: It is not a tool.
    """
    found = declaration_of(tool)
    return _resolved_plan(found).returns if isinstance(found, ToolDeclaration) else None


def compile_tool(
    declaration: object,
    state: Mapping[Any, object],
    max_output_bytes: int | None = None,
    *,
    in_worker: bool = False,
) -> CompiledTool:
    """Build validators and schemas, and resolve the state, of one tool.

    Args:
        declaration: Anything that `declaration_of` accepts.
        state: Objects by the exact type that ``State[T]`` asks for; a `Provision` for what each execution makes.
        max_output_bytes: Of the rendered output, whatever the tool declares; None: the limit of the tool.
        in_worker: This is the worker process that runs the tool.

    Raises:
        AgentError: ``INVALID_TOOL_NAME``, ``INVALID_SCHEMA`` or ``MISSING_STATE``.
        DeclarationError: It is not a tool.
    """
    found = declaration_of(declaration)
    if not isinstance(found, ToolDeclaration):
        spec = spec_of_object(found)
        _check_name(spec.name, f"{type(found).__name__} object")
        _check_text(spec, f"tool '{spec.name}'")
        return compile_object(found, spec, _least(spec.max_output_bytes, max_output_bytes))
    _check_name(found.name, found.location)
    plan = _resolved_plan(found)
    given = {name: _state_of(found, name, wanted, state) for name, wanted in plan.state.items()}
    scoped = {name: plan.state[name] for name, value in given.items() if isinstance(value, Provision)}
    injected = {name: value for name, value in given.items() if name not in scoped}
    arguments, output = _parts(found, plan)
    spec = _spec(found, arguments, output)
    _check_text(spec, found.location)
    parse, place = arguments.bind(injected), None
    if found.run_in is not None and not in_worker:
        parse, place = _as_json(parse), place_of_function(found.function)
    return CompiledTool(
        spec=spec,
        function=found.function,
        is_async=is_async(found.function),
        context_parameter=plan.context,
        parse=parse,
        place=place,
        render=output.limited(_least(spec.max_output_bytes, max_output_bytes)),
        parameters=tuple(argument.name for argument in plan.arguments),
        input=plan.input,
        promised=output.promised,
        reconcile=found.reconcile,
        backend=found.backend,
        injected=tuple(given),
        scoped=scoped_states(scoped.values(), state),
        scoped_parameters=scoped,
    )


def _as_json(parse: Callable[[bytes], object]) -> Callable[[bytes], dict[str, Any]]:
    """The check of arguments that are sent on as JSON."""

    def check(data: bytes) -> dict[str, Any]:
        try:
            parse(data)
        except TakesLong as taken:
            long: Callable[[Any], object] = taken.check
        else:
            return {"arguments": data}

        def check_long(work: Any) -> dict[str, Any]:
            long(work)
            return {"arguments": data}

        raise TakesLong(check_long)

    return check


def _least(own: int, most: int | None) -> int:
    return own if most is None else min(own, most)


def problems_of(declaration: object, state: Mapping[Any, object]) -> list[AgentError]:
    """Everything that `compile_tool` would refuse, not only the first."""
    found = declaration_of(declaration)
    problems: list[AgentError] = []

    def attempt(step: Callable[..., T], *given: object) -> T | None:
        try:
            return step(*given)
        except AgentError as problem:
            problems.append(problem)
            return None

    if not isinstance(found, ToolDeclaration):
        spec = spec_of_object(found)
        attempt(_check_name, spec.name, f"{type(found).__name__} object")
        attempt(compile_object, found, spec, spec.max_output_bytes)
        return problems
    attempt(_check_name, found.name, found.location)
    plan = attempt(_resolved_plan, found)
    if plan is not None:
        for name, wanted in plan.state.items():
            attempt(_state_of, found, name, wanted, state)
        attempt(_parts, found, plan)
    return problems


def _spec(declaration: ToolDeclaration, arguments: ArgumentsParser, output: OutputRenderer) -> ToolSpec:
    return ToolSpec(
        name=declaration.name,
        description=declaration.description,
        input_schema=arguments.schema,
        output_schema=output.schema,
        **declaration.properties,
    )


def _parts(declaration: ToolDeclaration, plan: SignaturePlan) -> tuple[ArgumentsParser, OutputRenderer]:
    try:
        return declaration.parts or _parts_of(declaration.function, plan, declaration.make_output)
    except UnusableType as problem:
        raise _invalid_schema(declaration, str(problem)) from None


def _parts_of(
    function: Callable[..., Any], plan: SignaturePlan, make_output: MakeOutput
) -> tuple[ArgumentsParser, OutputRenderer]:
    return arguments_parser(function, plan), make_output(function, plan)


def _parts_at_declaration(
    function: Callable[..., Any], plan: SignaturePlan, make_output: MakeOutput
) -> tuple[ArgumentsParser, OutputRenderer] | None:
    """Build everything where the function stands, so that a type without a schema is refused where it was written."""
    try:
        return _parts_of(function, plan, make_output)
    except UnresolvedType:
        return None
    except UnusableType as problem:
        raise refuse(function, problem.what, problem.instead) from None


def _resolved_plan(declaration: ToolDeclaration) -> SignaturePlan:
    if declaration.plan is not None:
        return declaration.plan
    try:
        plan = plan_of(declaration.function, declaration.names or {}, method=declaration.is_method)
        if declaration.run_in is not None:
            check_plan(declaration.function, plan)
        return plan
    except NameError as problem:
        missing = f"an annotation names '{problem.name}', which does not exist at run time"
        raise _invalid_schema(declaration, f"{missing}. Import it outside 'if TYPE_CHECKING:'.") from None
    except DeclarationError as problem:
        raise AgentError.standard("INVALID_SCHEMA", str(problem), details={"tool": declaration.name}) from None


def _invalid_schema(declaration: ToolDeclaration, what: str) -> AgentError:
    message = f"tool '{declaration.name}' ({declaration.location}): {what}"
    return AgentError.standard("INVALID_SCHEMA", message, details={"tool": declaration.name})


def _check_text(spec: ToolSpec, location: str) -> None:
    try:
        msgspec.json.encode([spec.title, spec.description, spec.input_schema, spec.output_schema], enc_hook=jsonable)
    except UnicodeEncodeError:
        message = f"{location}: its description or a schema has a lone surrogate, which is not valid Unicode"
        raise AgentError.standard("INVALID_SCHEMA", message, details={"tool": spec.name}) from None
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass  # `compile_object` names the schema


def _check_name(name: object, where: str) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        message = f"{name!r} ({where}) is not a tool name: use 1-128 ASCII letters, digits, '_', '-' and '.'"
        raise AgentError.standard("INVALID_TOOL_NAME", message, details={"tool": str(name)})


def _state_of(declaration: ToolDeclaration, parameter: str, wanted: Any, state: Mapping[Any, object]) -> object:
    try:
        return state[wanted]
    except (KeyError, TypeError):
        name = getattr(wanted, "__qualname__", repr(wanted))
        message = (
            f"tool '{declaration.name}' ({declaration.location}) needs State[{name}] for its parameter '{parameter}', "
            f"and the application has none: add app.state(...) with an object of exactly this type, "
            f"app.state(object, as_type={name}), or app.provide(...) with a function that makes one"
        )
        raise AgentError.standard("MISSING_STATE", message, details={"tool": declaration.name, "type": name}) from None
