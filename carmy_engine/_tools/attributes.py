"""The attributes of ``@tool(...)``, and the check of their values.

A new attribute that callers can see is a field of `ToolSpec` and of `ToolAttributes`; the declaration, the spec and the registry
derive from these. `docs/tools.md` lists it.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Required, TypedDict

from .._model.compiled_tool import Backend, RunIn
from .._model.effect import Confirmation, Effect
from .._model.host_objects import described, is_async
from .._model.settlement import MethodReconcile, Reconcile
from .._model.spec import ToolSpec
from .function_place import check_importable
from .signature import is_method, refuse


class ToolAttributes(TypedDict, total=False):
    """The keyword arguments of ``@tool(...)``.

    Attributes:
        effect: What the tool does to the world. Required.
        description: What a model reads to choose it. Default: the docstring without its ``Args:`` section.
        name: 1-128 ASCII letters, digits, ``_``, ``-``, ``.``. Default: the function's name.
        title: Its name for people, such as in the list of a client.
        idempotent: Repeating the call is harmless.
        parallel_safe: False means that calls to this tool take turns.
        confirmation: ``required``: a call needs the permission ``confirm:<tool>``.
        timeout: Seconds. Default: the engine's.
        max_waiting: Calls that may wait for a turn.
        max_output_bytes: Limit of the rendered output.
        register: `carmy_engine.app` adds the tool without being given it.
        backend: ``asyncio`` for an async function that awaits libraries of asyncio. Default: the application's, ``trio``.
        run_in: ``process`` for a plain function that runs in a worker process, which is killed at the deadline. Default: a thread.
        reconcile: ``async def reconcile(ctx, arguments)``, asked when a retry meets an interrupted attempt of a tool that may not
            simply run again: `Completed`, `Failed`, `NotStarted` or `Unknown`. For a method also a method of the same class.
    """

    effect: Required[Effect | Literal["none", "read", "write", "external_write", "destructive"]]
    description: str | None
    name: str | None
    title: str | None
    idempotent: bool
    parallel_safe: bool
    confirmation: Confirmation | Literal["none", "required"]
    timeout: float | None
    max_waiting: int
    max_output_bytes: int
    register: bool
    backend: Backend | None
    run_in: RunIn | None
    reconcile: Reconcile | MethodReconcile | None


SPEC_ATTRIBUTES = frozenset(ToolAttributes.__annotations__) & frozenset(ToolSpec.__struct_fields__) - {
    "name",
    "description",
}
"""The attributes that a tool made by hand has as well, without those that a function has a default for."""


def checked_attributes(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as a declaration holds them.

    Raises:
        DeclarationError: One of them is unknown or has no such value.
    """
    known = ToolAttributes.__annotations__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            instead = f"Did you mean '{near[0]}'?" if near else f"The attributes are: {', '.join(known)}."
            raise refuse(function, f"@tool has no attribute '{name}'", instead)
    if "effect" not in given:
        raise refuse(function, "@tool needs an effect", f"Write @tool(effect=...) with one of: {choices(Effect)}.")
    checked = dict(given)
    checked["effect"] = _choice(function, "effect", given["effect"], Effect)
    checked["confirmation"] = _choice(function, "confirmation", given.get("confirmation", "none"), Confirmation)
    for name in ("idempotent", "parallel_safe", "register"):
        if not isinstance(given.get(name, False), bool):
            raise refuse(function, f"{name}={given[name]!r} is neither True nor False", "Write one of the two.")
    for name in ("name", "title", "description"):
        if not isinstance(given.get(name), str | None):
            raise refuse(function, f"{name}={given[name]!r} is not a text", "Write a string, or leave it out.")
    backend = given.get("backend")
    if backend not in (None, "trio", "asyncio"):
        raise refuse(function, f"backend={backend!r} is unknown", "Write one of: 'trio', 'asyncio'.")
    if backend is not None and not is_async(function):
        what = f"backend={backend!r} is for an 'async def'"
        raise refuse(function, what, "Leave it out: a plain function runs in a worker thread.")
    run_in = given.get("run_in")
    if run_in not in (None, "process"):
        raise refuse(function, f"run_in={run_in!r} is unknown", "Write 'process', or leave it out.")
    if run_in is not None:
        check_importable(function)
    reconcile = given.get("reconcile")
    if reconcile is not None:
        _check_reconcile(function, reconcile)
    wrong = wrong_limit(given)
    if wrong is not None:
        raise refuse(function, wrong, "Write one, or leave it out.")
    return checked


def wrong_limit(given: Mapping[str, Any]) -> str | None:
    """The first limit that is out of range, with the range; None if all are in range."""
    timeout = given.get("timeout")
    if timeout is not None and not (_is_number(timeout) and math.isfinite(timeout) and timeout > 0):
        return f"timeout={timeout!r} is not a positive number of seconds"
    for name, least in (("max_waiting", 0), ("max_output_bytes", 1)):
        value = given.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            return f"{name}={value!r} is not a whole number from {least}"
    return None


def _check_reconcile(function: Callable[..., Any], reconcile: Any) -> None:
    """Refuse what could not be called when the time has come: that would look as if it knew nothing."""
    instead = "Write an 'async def' that takes the context and the arguments, or leave it out."
    if not inspect.iscoroutinefunction(reconcile):
        raise refuse(function, f"reconcile is {described(reconcile)}, not an async function", instead)
    takes = ("self", "ctx", "arguments") if is_method(function) and is_method(reconcile) else ("ctx", "arguments")
    try:
        inspect.signature(reconcile).bind(*takes)
    except TypeError:
        what = f"reconcile is {described(reconcile)}, which cannot be called with ({', '.join(takes)})"
        raise refuse(function, what, instead) from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choice(
    function: Callable[..., Any], attribute: str, value: Any, options: type[Effect] | type[Confirmation]
) -> Any:
    try:
        return options(value)
    except ValueError:
        raise refuse(function, f"{attribute}={value!r} is unknown", f"Write one of: {choices(options)}.") from None


def choices(options: type[Effect] | type[Confirmation]) -> str:
    return ", ".join(f"'{option.value}'" for option in options)
