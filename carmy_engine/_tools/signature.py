"""A function's parameters, sorted into context, state and arguments; refusals that explain what to write instead."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, Union

import msgspec
import pydantic
import typing_extensions
from pydantic.fields import FieldInfo

from .._model.context import AgentContext
from .._model.errors import DeclarationError
from .._schema.annotations import Arg, StateMarker, split_annotated


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One parameter that the caller fills in.

    Attributes:
        name: The parameter.
        annotation: Its type with metadata, the default's own `FieldInfo` included.
        default: What Python passes when it is omitted; `inspect.Parameter.empty` when it must be sent.
    """

    name: str
    annotation: Any
    default: Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePlan:
    """What each parameter of a tool is.

    Attributes:
        context: The parameter that receives the `AgentContext`.
        state: Injected parameters, by name, with the type each asks for.
        arguments: What the caller sends, in the order of the parameters.
        input: The parameter whose fields are the arguments; then `arguments` has exactly this one.
        returns: The return annotation.
    """

    context: str | None
    state: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    input: str | None
    returns: Any


def location_of(function: Callable[..., Any]) -> str:
    """``file:line`` of a function, seen through its decorators."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "unknown place"


def refuse(function: Callable[..., Any], what: str, instead: str) -> DeclarationError:
    """The error for a tool that is declared wrongly.

    Args:
        function: The function.
        what: What is wrong, without a full stop.
        instead: What to write, a whole sentence.
    """
    name = getattr(function, "__qualname__", repr(function))
    return DeclarationError(f"tool {name} ({location_of(function)}): {what}. {instead}")


def local_names(function: Callable[..., Any], depth: int) -> dict[str, Any]:
    """The local variables around a function's definition, for annotations that name classes defined in a function.

    Args:
        function: The function.
        depth: Frames between this call and the code that defines the function.
    """
    inner = inspect.unwrap(function)
    module = getattr(inner, "__globals__", None)
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame.f_back if frame is not None else None
    while frame is not None and frame.f_globals is module and frame.f_locals is not frame.f_globals:
        found = {**frame.f_locals, **found}
        frame = frame.f_back
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
    for name, cell in zip(code.co_freevars if code is not None else (), cells or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # assigned after the definition: the frame's value, if any, is as good
    return found


def is_method(function: Callable[..., Any]) -> bool:
    """True for a function from the body of a class that waits for its object: ``self`` is not an argument."""
    scope = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not scope or scope.endswith("<locals>") or inspect.ismethod(function):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and (first.annotation is first.empty or first.name in ("self", "cls"))


def plan_of(function: Callable[..., Any], names: Mapping[str, Any], *, method: bool = False) -> SignaturePlan:
    """Sort a function's parameters.

    Args:
        function: The function; decorators that used `functools.wraps` are seen through.
        names: Names for string annotations beside the function's module.
        method: The first parameter is the object, which the engine never fills in.

    Raises:
        DeclarationError: It cannot be a tool.
        NameError: An annotation names something that does not exist (yet).
    """
    # Like inspect.signature, which stops at a decorator with a ``__signature__``.
    inner = inspect.unwrap(function, stop=lambda layer: hasattr(layer, "__signature__"))
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise refuse(function, "it is a generator", "Return a list; send parts with ctx.progress.partial(...).")
    signature = inspect.signature(inner)
    # A copy: get_type_hints would otherwise write evaluated names into the caller's variables.
    # Type parameters ("def first[T](...)") are names of the function's own; Python 3.12 does not look them up.
    own = {parameter.__name__: parameter for parameter in getattr(inner, "__type_params__", ())}
    hints = typing.get_type_hints(inner, localns={**names, **own}, include_extras=True)
    if hasattr(inner, "__signature__"):
        hints = {**hints, **_said(signature)}
    if "return" not in hints:
        raise refuse(function, "it has no return annotation", "Write what it returns, such as '-> str' or '-> None'.")
    context: str | None = None
    state: dict[str, Any] = {}
    arguments: list[Argument] = []
    for parameter in list(signature.parameters.values())[1 if method else 0 :]:
        _check_kind(function, parameter)
        if parameter.name not in hints and parameter.name in ("self", "cls"):
            # Not in the body of a class: `is_method` would have seen it.
            what = f"it is a method: no call could pass '{parameter.name}'"
            raise refuse(function, what, "Write a function; what the object holds can be State[...].")
        if parameter.name not in hints:
            instead = f"Annotate it, such as '{parameter.name}: str'."
            raise refuse(function, f"parameter '{parameter.name}' has no annotation", instead)
        annotation = hints[parameter.name]
        base, metadata = split_annotated(annotation)
        if _is_context(base):
            if context is not None:
                what = f"'{context}' and '{parameter.name}' both ask for the AgentContext"
                raise refuse(function, what, "Keep one of them.")
            context = parameter.name
        elif any(isinstance(item, StateMarker) for item in metadata):
            state[parameter.name] = _state_type(function, parameter.name, base)
        else:
            arguments.append(_argument(parameter, annotation))
    chosen = _input_of(function, arguments)
    return SignaturePlan(
        context=context,
        state=types.MappingProxyType(state),
        arguments=tuple(arguments),
        input=chosen,
        returns=hints["return"],
    )


def is_object_type(annotation: Any) -> bool:
    """True for types whose fields can be the arguments: a model, a dataclass, a TypedDict, a msgspec Struct."""
    base, _ = split_annotated(annotation)
    origin: Any = typing.get_origin(base) or base
    if typing_extensions.is_typeddict(origin):
        return True
    if not inspect.isclass(origin):
        return False
    if issubclass(origin, pydantic.BaseModel):
        return not issubclass(origin, pydantic.RootModel)
    return issubclass(origin, msgspec.Struct) or hasattr(origin, "__dataclass_fields__")


def _said(signature: inspect.Signature) -> dict[str, Any]:
    """The annotations of a signature that a decorator has made, as far as they are types."""
    found = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    found["return"] = signature.return_annotation
    return {
        name: said for name, said in found.items() if said is not inspect.Signature.empty and not isinstance(said, str)
    }


def _check_kind(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise refuse(function, f"'*{name}' has no name for a caller", f"Take a list: '{name}: list[str]'.")
    if parameter.kind is parameter.VAR_KEYWORD:
        instead = f"Name each argument, or take a dict: '{name}: dict[str, str]'."
        raise refuse(function, f"'**{name}' would take arguments that no schema describes", instead)
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise refuse(function, f"parameter '{name}' is positional-only", "Arguments have names: remove the '/'.")


def _is_context(base: Any) -> bool:
    if base is AgentContext:
        return True
    if typing.get_origin(base) in (Union, types.UnionType):
        members = [member for member in typing.get_args(base) if member is not types.NoneType]
        return members == [AgentContext]
    return False


def _state_type(function: Callable[..., Any], name: str, base: Any) -> Any:
    if typing.get_origin(base) in (Union, types.UnionType) or base is Any or isinstance(base, TypeVar | str):
        what = f"parameter '{name}' asks for State of {base!r}, which is not one type"
        raise refuse(function, what, "Name one class, such as 'State[Database]', and register an object for it.")
    return base


def _argument(parameter: inspect.Parameter, annotation: Any) -> Argument:
    default = parameter.default
    if isinstance(default, FieldInfo):
        # limit: int = Field(10, ge=1): the default is in there, and so are constraints and text.
        return Argument(name=parameter.name, annotation=Annotated[annotation, default], default=parameter.empty)
    return Argument(name=parameter.name, annotation=annotation, default=default)


def _input_of(function: Callable[..., Any], arguments: list[Argument]) -> str | None:
    objects = [
        argument.name
        for argument in arguments
        if is_object_type(argument.annotation)
        and not any(isinstance(item, Arg) or item is Arg for item in split_annotated(argument.annotation)[1])
    ]
    if len(objects) > 1:
        instead = (
            "Combine them into one model, or mark each with Annotated[T, Arg()] to make it one argument of that name."
        )
        raise refuse(function, f"parameters {_quoted(objects)} are each an object with fields of its own", instead)
    if len(objects) == 1 and len(arguments) == 1:
        if arguments[0].default is not inspect.Parameter.empty:
            what = f"parameter '{objects[0]}' is the whole input, so its default would never be used"
            raise refuse(function, what, "Give its fields defaults, or mark it with Annotated[T, Arg()].")
        return objects[0]
    return None


def _quoted(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return " and ".join((", ".join(quoted[:-1]), quoted[-1])) if len(quoted) > 1 else quoted[0]
