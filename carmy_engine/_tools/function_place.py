"""Functions that run in worker processes: which ones can, and where a worker finds them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .._model.compiled_tool import FunctionPlace
from .._model.host_objects import is_async
from .signature import SignaturePlan, is_method, refuse

_SUBJECT = "run_in='process' is for a plain function of a module"


def check_importable(function: Callable[..., Any]) -> None:
    """Refuse a function that a worker process cannot import by its name.

    Raises:
        DeclarationError: It is async, a lambda, a method or defined in a function; or it has no file.
    """
    qualname = getattr(function, "__qualname__", "")
    if is_async(function):
        what = "this one is an 'async def'"
        instead = "Write 'def', or leave run_in out: an async tool is cancelled where it awaits."
    elif "<lambda>" in qualname:
        what = "a lambda has no name to import"
        instead = "Write it as a 'def' of the module."
    elif "<locals>" in qualname:
        what = "this one is defined inside a function, and its variables cannot be sent to another process"
        instead = "Move it to the module, and pass what it needs as arguments."
    elif is_method(function) or "." in qualname:
        what = "this one is in the body of a class, whose objects stay in this process"
        instead = "Move it to the module, and pass what it needs as arguments."
    elif _file_of(sys.modules.get(function.__module__)) is None:
        what = f"the module {function.__module__!r} has no file that a worker process could import"
        instead = "Put the tool into a file."
    else:
        return
    raise refuse(function, f"{_SUBJECT}: {what}", instead)


def check_plan(function: Callable[..., Any], plan: SignaturePlan) -> None:
    """Refuse parameters that cannot be sent to another process.

    Raises:
        DeclarationError: The function asks for state.
    """
    for name in plan.state:
        what = f"parameter '{name}' asks for State, an object of this process"
        raise refuse(
            function, f"{_SUBJECT}: {what}", "Make the object in the module of the tool: each worker has its own."
        )


def place_of_function(function: Callable[..., Any]) -> FunctionPlace:
    """The place of a function that `check_importable` accepts."""
    module = sys.modules[function.__module__]
    spec = module.__spec__
    return FunctionPlace(
        module=function.__module__,
        file=_file_of(module),
        package=getattr(module, "__package__", None) if spec is None else spec.parent,
        qualname=function.__qualname__,
    )


def _file_of(module: ModuleType | None) -> str | None:
    return getattr(module, "__file__", None)
