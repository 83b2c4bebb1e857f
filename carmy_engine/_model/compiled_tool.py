"""A compiled tool: the form of a declaration that calls run."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal

from .provision import ScopedState
from .settlement import Reconcile
from .spec import ToolSpec

Backend = Literal["trio", "asyncio"]
"""An async library."""


RunIn = Literal["process"]
"""Where a plain function runs, if not in a worker thread of the engine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlace:
    """Where a worker process finds a function.

    Attributes:
        module: The name of its module.
        file: The file of the module; None for a module without one.
        package: The package of the module, for its relative imports.
        qualname: Its name in the module, with dots.
    """

    module: str
    file: str | None
    package: str | None
    qualname: str


class TakesLong(Exception):  # noqa: N818 - control flow
    """A check of arguments or of an output must run in a worker thread.

    Attributes:
        check: Returns or raises what `CompiledTool.parse` or `CompiledTool.render` would. Takes the `Work` that bounds the
            check; setting its ``abandoned`` ends the check at the next step.
    """

    def __init__(self, check: Callable[[Any], Any]) -> None:
        super().__init__()
        self.check = check


CheckOutput = Callable[[TakesLong], Awaitable[bytes]]
"""Runs the check of a long output, in a thread."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTool:
    """One tool with its state resolved and its validators built.

    Attributes:
        spec: The declared properties.
        function: The callable; it takes keyword arguments only.
        is_async: False: `function` runs in a worker thread.
        backend: The library of an async `function`, ``trio`` or ``asyncio``; None for that of its application.
        context_parameter: The keyword that receives the `AgentContext`, None when the tool has none.
        parse: JSON bytes of the arguments (an object) → a fresh dict of keyword arguments, injected state included.
            Raises `AgentError` ``INVALID_ARGUMENTS``, or `TakesLong`. The bytes have passed `codec.check_json`.
        render: The return value → JSON bytes. Raises `AgentError` ``INVALID_OUTPUT`` or
            ``OUTPUT_TOO_LARGE``, or `TakesLong`.
        parameters: The keywords of the arguments, in the order of the function.
        input: The one keyword that gets the whole input; None when each argument has its own.
        promised: The rendered output → a value of the declared return type.
        reconcile: Returns the outcome of an interrupted attempt; None when the tool has no such function.
        runs: Runs a call, with the execution and the keyword arguments, and returns its ending, in place of `function`: in another
            executor, or in layers of state and middleware. None for the plain way.
        injected: The keywords that the caller never sends, but `context_parameter`.
        scoped: The state that each execution enters for this tool, in order of need.
        scoped_parameters: The keywords that get it, with its type.
        place: Where a worker process finds `function`, which runs there; `parse` then returns the JSON, as ``arguments``. None: here.
    """

    spec: ToolSpec
    function: Callable[..., Any]
    is_async: bool
    context_parameter: str | None
    parse: Callable[[bytes], dict[str, Any]]
    render: Callable[[Any], bytes]
    parameters: tuple[str, ...] = ()
    input: str | None = None
    promised: Callable[[Any], Any] | None = None
    reconcile: Reconcile | None = None
    runs: Callable[[Any, dict[str, Any]], Coroutine[Any, Any, Any]] | None = None
    injected: tuple[str, ...] = ()
    scoped: tuple[ScopedState, ...] = ()
    scoped_parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    backend: Backend | None = None
    place: FunctionPlace | None = None
