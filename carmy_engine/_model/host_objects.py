"""Checks of the host's objects and functions at registration."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from .context import AgentContext
from .errors import DeclarationError

STORE_METHODS = ("reserve", "complete", "release", "interrupt", "get", "aclose")


def described(value: object) -> str:
    """The kind and name of a value for a message, such as ``the function look`` or ``str object``; never its contents."""
    name = str(getattr(value, "__qualname__", type(value).__qualname__)).rpartition("<locals>.")[2]
    if isinstance(value, type):
        return f"the class {name}"
    if is_async(value) and isinstance(value, types.FunctionType | types.MethodType):
        return f"the async function {name}"
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return f"the function {name}"
    if isinstance(value, types.CoroutineType):
        return f"the coroutine of {name}"
    if isinstance(value, functools.partial):
        return f"a partial of {described(value.func)}"
    return f"{type(value).__name__} object"


def is_async(function: Any) -> bool:
    """True if a call returns an awaitable: an async function, a wrapper or partial of one, or an async ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    made = (function, inspect.unwrap(function), getattr(function, "__call__", None))  # noqa: B004 - the method itself
    return any(map(inspect.iscoroutinefunction, made))


def check_policy(policy: object, owner: str) -> None:
    """Refuse a value that is not a policy.

    Args:
        policy: An object with ``check``, and perhaps ``check_arguments`` and ``is_listed``.
        owner: The application, such as ``application 'shop'``; so below.

    Raises:
        DeclarationError: Names the value and the required interface; so below.
    """
    needs = "check(context, spec), sync or async"
    _check_methods(policy, "a policy", owner, needs, {"check": 2})
    for method, needs in (
        ("check_arguments", "check_arguments(context, spec, arguments)"),
        ("is_listed", "is_listed(context, spec) -> bool"),
    ):
        if getattr(policy, method, None) is not None:
            _check_methods(policy, "a policy", owner, f"{needs}, sync or async", {method: needs.count(",") + 1})


def check_sink(sink: object, owner: str) -> None:
    """Refuse a value that is not a sink. ``record`` must be sync: it runs directly before the answer is sent."""
    needs = "record(record), a plain function that does not wait; one that has to puts the records into a queue"
    _check_methods(sink, "a sink", owner, needs, {"record": 1})
    if is_async(getattr(sink, "record", None)):
        _refuse(sink, "a sink", owner, needs)


def check_store(store: object, owner: str) -> None:
    """Refuse a value that is not a store."""
    _check_methods(
        store,
        "a store",
        owner,
        f"the async methods {', '.join(STORE_METHODS[:-1])} and {STORE_METHODS[-1]} of IdempotencyStore",
        dict(zip(STORE_METHODS, (1, 4, 2, 4, 1, 0), strict=True)),
    )


def check_authenticator(authenticator: object, owner: str) -> None:
    """Refuse a value that cannot be called with credentials."""
    _check_function(authenticator, "an authenticator", owner, "a call with the credentials, sync or async", 1)


def check_ready_check(check: object, owner: str) -> None:
    """Refuse a value that cannot be called without arguments."""
    _check_function(check, "a readiness check", owner, "a call without arguments, sync or async", 0)


def check_confirm(confirm: object, owner: str) -> None:
    """Refuse a value that cannot be called with a tool's spec and arguments."""
    _check_function(confirm, "a confirm function", owner, "a call with (spec, arguments), sync or async", 2)


def check_middleware(middleware: object, owner: str) -> None:
    """Refuse a value that is not an async function of a call and the function that proceeds."""
    needs = "async def middleware(call, proceed), which awaits proceed() and returns its value"
    _check_function(middleware, "a middleware", owner, needs, 2)
    if not is_async(middleware):
        _refuse(middleware, "a middleware", owner, needs)


def check_client(client: object, owner: str) -> None:
    """Refuse a value that is no `ClientFeatures`. A transport may bind one for each call, so only the names are checked."""
    names = ("can_ask", "can_sample", "has_roots", "ask", "sample", "roots", "log")
    if isinstance(client, type) or not all(hasattr(type(client), name) or hasattr(client, name) for name in names):
        _refuse(client, "a client", owner, f"the members {', '.join(names)} of ClientFeatures")


def check_context(context: object, owner: str) -> None:
    """Refuse a value that is not an `AgentContext`, such as a dict from an authenticator."""
    if not isinstance(context, AgentContext):
        _refuse(context, "a caller's context", owner, "an AgentContext")


def check_state(value: object, owner: str) -> None:
    """Refuse a factory, coroutine or context manager given in place of its value."""
    kind = type(value)
    if kind.__module__ == "contextlib" and (hasattr(kind, "__exit__") or hasattr(kind, "__aexit__")):
        _refuse(value, "a state", owner, "the value that entering the context manager gives: enter it, and give that")
    if kind is types.CoroutineType:
        close_coroutine(value)
        _refuse(value, "a state", owner, "the value that awaiting it gives")
    if kind in _MAKERS or issubclass(kind, type):
        _refuse(value, "a state", owner, "the value itself, or as_type= if this is it")


_MAKERS = (types.FunctionType, types.MethodType, types.GeneratorType, types.AsyncGeneratorType)


def close_coroutine(value: object) -> None:
    """Close a coroutine that is never awaited, so that Python emits no warning."""
    if isinstance(value, types.CoroutineType):
        value.close()


def _check_methods(value: object, what: str, owner: str, needs: str, methods: dict[str, int]) -> None:
    for name, arguments in methods.items():
        method = getattr(value, name, None)
        if isinstance(value, type) or not _fits(method, arguments):
            _refuse(value, what, owner, needs)


def _check_function(value: object, what: str, owner: str, needs: str, arguments: int) -> None:
    if isinstance(value, type) or not _fits(value, arguments):
        _refuse(value, what, owner, needs)


def _fits(function: object, arguments: int) -> bool:
    """True if the function accepts so many positional arguments, and is not a generator function."""
    if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return False
    placeholders: Sequence[None] = (None,) * arguments
    try:
        inspect.signature(function).bind(*placeholders)
    except TypeError:
        return False
    except ValueError:  # a callable without a signature, such as one written in C
        return True
    return True


def _refuse(value: object, what: str, owner: str, needs: str) -> NoReturn:
    raise DeclarationError(f"{described(value)} is not {what} for {owner}: it needs {needs}")
