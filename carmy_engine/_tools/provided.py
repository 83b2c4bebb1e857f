"""Factories of state: what a factory needs and makes, and the order in which several are entered."""

from __future__ import annotations

import contextlib
import graphlib
import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any

from .._model.context import AgentContext
from .._model.errors import AgentError, DeclarationError
from .._model.host_objects import described, is_async
from .._model.provision import Provision, ScopedState, StateScope, is_async_manager, is_manager, type_name
from .._schema.annotations import StateMarker, split_annotated
from .signature import local_names, location_of

_WRAPPERS = (
    AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Coroutine, Generator, Iterable, Iterator,
    AbstractAsyncContextManager, AbstractContextManager,
)  # fmt: skip
_ASYNC_WRAPPERS = (AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Coroutine, AbstractAsyncContextManager)


def provision_of(
    factory: Any, as_type: Any, scope: str, owner: str, *, enters: bool = True, depth: int = 0
) -> Provision:
    """Read the signature of a factory.

    Args:
        factory: A function, a generator function, a class, or a context manager.
        as_type: The type of the value; None for the one that the annotations name.
        scope: ``app`` or ``execution``.
        owner: The application, for messages.
        enters: Enter the value if it is a context manager.
        depth: Frames between this call and the code that defines the factory.

    Raises:
        DeclarationError: It is no factory, has parameters without a value, or does not name the type of its value.
    """
    try:
        life = StateScope(scope)
    except ValueError:
        raise DeclarationError(f"{owner}: the scope of state is 'app' or 'execution', not {scope!r}") from None
    made: Any
    made, is_entered_here = (
        factory,
        not isinstance(factory, type) and (is_manager(factory) or is_async_manager(factory)),
    )
    if is_entered_here:
        if life is StateScope.EXECUTION:
            raise DeclarationError(
                f"{owner}: {described(factory)} is one context manager, and each execution needs a new one:"
                " provide a function that returns it"
            )
        made = partial(_give, factory)
    elif not callable(factory):
        raise DeclarationError(
            f"{described(factory)} is not a factory of state for {owner}: it needs a function, a generator function, a class or"
            " a context manager; a value that is ready goes to app.state(...)"
        )
    inner = factory if is_entered_here else _unwrapped(factory)
    needs, context, returns = ({}, None, None) if is_entered_here else _signature(inner, factory, owner, depth + 1)
    if context is not None and life is StateScope.APP:
        raise DeclarationError(
            f"{owner}: {_place(inner)} asks for the AgentContext of a call; give it scope='execution'"
        )
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        enters = True
        if inner is factory:
            make: Any = (
                contextlib.asynccontextmanager if inspect.isasyncgenfunction(inner) else contextlib.contextmanager
            )
            made = make(factory)
    if as_type is None and is_entered_here and type(factory).__module__ != "contextlib":
        as_type = _class_of(factory)
    return Provision(
        factory=made,
        key=_key(inner, returns, owner) if as_type is None else as_type,
        scope=life,
        needs=types.MappingProxyType(needs),
        context=context,
        is_async=is_entered_here or _is_async(inner, factory, returns),
        enters=enters,
        place=_place(inner),
    )


def problems_of_state(provisions: Mapping[Any, Provision], values: Mapping[Any, object]) -> list[AgentError]:
    """Every problem of the needs of provided state.

    Args:
        provisions: By type.
        values: State that is ready, by type.
    """
    problems: list[AgentError] = []
    for provision in provisions.values():
        for parameter, wanted in provision.needs.items():
            problem = _problem_of_need(provision, parameter, wanted, provisions, values)
            if problem is not None:
                problems.append(problem)
    try:
        _sorted(provisions)
    except graphlib.CycleError as cycle:
        names = " needs ".join(provisions[key].place for key in reversed(cycle.args[1]))
        problems.append(AgentError.standard("STATE_FAILED", f"state that needs itself cannot be made: {names}"))
    return problems


def _problem_of_need(
    provision: Provision,
    parameter: str,
    wanted: Any,
    provisions: Mapping[Any, Provision],
    values: Mapping[Any, object],
) -> AgentError | None:
    name = type_name(wanted)
    details = {"state": type_name(provision.key), "type": name}
    if wanted in values:
        return None
    needed = provisions.get(wanted)
    if needed is None:
        message = (
            f"{provision.place} needs State[{name}] for its parameter '{parameter}', and the application has none:"
            " add app.state(...) or app.provide(...)"
        )
        return AgentError.standard("MISSING_STATE", message, details=details)
    if needed.scope is StateScope.EXECUTION and provision.scope is StateScope.APP:
        message = (
            f"{provision.place} lives as long as the application, and needs State[{name}], which each execution makes anew:"
            " give both the same scope"
        )
        return AgentError.standard("STATE_FAILED", message, details=details)
    return None


def in_order_of_need(provisions: Mapping[Any, Provision]) -> list[Provision]:
    """The provisions, each after those that it needs. `problems_of_state` has found no problem."""
    return [provisions[key] for key in _sorted(provisions)]


def _sorted(provisions: Mapping[Any, Provision]) -> list[Any]:
    graph = {
        key: [wanted for wanted in provision.needs.values() if wanted in provisions]
        for key, provision in provisions.items()
    }
    return [*graphlib.TopologicalSorter(graph).static_order()]


def scoped_states(wanted: Iterable[Any], state: Mapping[Any, object]) -> tuple[ScopedState, ...]:
    """The states that one execution enters for these types, in order of need.

    Args:
        wanted: Types that a tool asks for.
        state: All state by type: values, and the provisions of executions.
    """
    found: dict[Any, Provision] = {}
    pending = [*wanted]
    while pending:
        key = pending.pop()
        provision = state[key]
        if key not in found and isinstance(provision, Provision):
            found[key] = provision
            pending.extend(provision.needs.values())
    return tuple(
        ScopedState(
            provision=provision,
            fixed={name: state[key] for name, key in provision.needs.items() if key not in found},
            chained={name: key for name, key in provision.needs.items() if key in found},
        )
        for provision in in_order_of_need(found)
    )


def _class_of(value: object) -> Any:
    return type(value)


def _give(value: Any) -> Any:
    return value


def _unwrapped(factory: Any) -> Any:
    """The function under `contextlib`'s decorators and `functools.partial`."""
    while isinstance(factory, partial):
        factory = factory.func
    return inspect.unwrap(factory)


def _code_of(inner: Any) -> Any:
    return inspect.getattr_static(inner, "__init__") if isinstance(inner, type) else inner


def _place(inner: Any) -> str:
    place = location_of(_code_of(inner))
    name = described(inner)
    return name if place == "unknown place" else f"{name} ({place})"


def _signature(inner: Any, factory: Any, owner: str, depth: int) -> tuple[dict[str, Any], str | None, Any]:
    """The state that a factory needs, its parameter for the context, and the annotation of its value."""
    target = _code_of(inner)
    try:
        hints = typing.get_type_hints(target, localns=local_names(target, depth + 1), include_extras=True)
    except NameError as problem:
        raise DeclarationError(
            f"{owner}: an annotation of {_place(inner)} names '{problem.name}', which does not exist at run time."
            " Import it outside 'if TYPE_CHECKING:', and provide the factory after it."
        ) from None
    except TypeError:
        hints = {}  # a callable without annotations, such as one written in C
    needs: dict[str, Any] = {}
    context: str | None = None
    for parameter in _parameters(factory):
        base, metadata = split_annotated(hints.get(parameter.name, parameter.annotation))
        if any(isinstance(item, StateMarker) for item in metadata):
            needs[parameter.name] = base
        elif base is AgentContext:
            context = parameter.name
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise DeclarationError(
                f"{owner}: parameter '{parameter.name}' of {_place(inner)} has no value: annotate it with State[...], or give it"
                " a default"
            )
    return needs, context, hints.get("return")


def _parameters(factory: Any) -> Sequence[inspect.Parameter]:
    try:
        return [*inspect.signature(factory).parameters.values()]
    except (TypeError, ValueError):  # a callable without a signature, such as one written in C
        return []


def _key(inner: Any, returns: Any, owner: str) -> Any:
    """The type of the value that the annotations of a factory name."""
    found, _ = split_annotated(inner if isinstance(inner, type) else returns)
    while not isinstance(found, type) and typing.get_origin(found) in _WRAPPERS:
        position = 2 if typing.get_origin(found) is Coroutine else 0
        found, _ = split_annotated(typing.get_args(found)[position])
    if found is None or found is types.NoneType or found is Any or isinstance(found, str | typing.TypeVar):
        raise DeclarationError(
            f"{owner}: {_place(inner)} does not name the type of its value: annotate what it returns, or give as_type="
        )
    return found


def _is_async(inner: Any, factory: Any, returns: Any) -> bool:
    if isinstance(inner, type):
        return hasattr(inner, "__aenter__")
    origin = typing.get_origin(split_annotated(returns)[0])
    return inspect.isasyncgenfunction(inner) or is_async(factory) or is_async(inner) or origin in _ASYNC_WRAPPERS
