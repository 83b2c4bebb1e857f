"""Layers around a tool: middleware outermost, then the state of the execution, then the tool and its output.

The output is written while the state is still entered. So a failure to write it is the failure that a context manager sees, and an
object that loads parts of itself later, such as a row of a database, can still do it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from .._model.codec import decode
from .._model.compiled_tool import Backend, CheckOutput, CompiledTool, TakesLong
from .._model.errors import AgentError, DeclarationError
from .._model.protocols import Middleware, ToolCall
from .._model.provision import ScopedState
from .execution import Execution
from .grace import run_with_grace
from .invoke import Ending, Invoker
from .provided_state import enter, enter_in_thread
from .threads import Threads

if TYPE_CHECKING:
    from .._loops.asyncio_loop import AsyncioLoop

T = TypeVar("T")


class Layers:
    """The layers of one tool.

    Args:
        tool: The tool.
        middleware: Outermost first.
        invoker: Makes the ending of an output that cannot be written.
        threads: For plain tools and factories.
        check_output: Checks long outputs.
        loop: Runs what belongs to asyncio; None if nothing does.
        backend: The library of middleware and async state, and of the tool unless it has its own.
    """

    def __init__(
        self,
        tool: CompiledTool,
        middleware: Sequence[Middleware],
        invoker: Invoker,
        threads: Threads,
        check_output: CheckOutput,
        loop: AsyncioLoop | None,
        backend: Backend,
    ) -> None:
        self.loop = loop
        self.is_tool_asyncio = tool.is_async and (tool.backend or backend) == "asyncio"
        has_layers = bool(middleware or tool.scoped)
        self.is_asyncio = backend == "asyncio" if has_layers else self.is_tool_asyncio
        """The layers run in one task of asyncio; else in the task of trio that runs the call."""
        self.tool = tool
        self.middleware = middleware
        self.invoker = invoker
        self.threads = threads
        self.check_output = check_output
        # A plain tool shares its thread with the plain state that it needs: they see the same thread, and a thread that is
        # abandoned still uses its state.
        apart = 0
        if not tool.is_async:
            apart = len(tool.scoped)
            while apart and not tool.scoped[apart - 1].provision.is_async:
                apart -= 1
        self.in_task, self.in_thread = (
            (tool.scoped, ()) if tool.is_async else (tool.scoped[:apart], tool.scoped[apart:])
        )

    async def __call__(self, execution: Execution, arguments: dict[str, Any]) -> Ending:
        """Run one call. Exceptions of foreign code pass unchanged."""
        call = _LayeredCall(self, execution, arguments)
        if not self.is_asyncio:
            return await call.run()
        assert self.loop is not None
        _ = execution.cancellation  # made here: two threads could make two
        execution.thread = run = self.loop.prepare(self.tool.spec.name, call.run)
        ending: Ending = await run.wait()
        return ending


def with_layers(
    tools: Iterable[CompiledTool],
    middleware: Sequence[Middleware],
    invoker: Invoker,
    threads: Threads,
    check_output: CheckOutput,
    loop: AsyncioLoop | None,
    backend: Backend,
) -> Iterator[CompiledTool]:
    """The tools, with layers around those that have any. The others are unchanged, and pay nothing."""
    for tool in tools:
        is_asyncio = tool.is_async and tool.runs is None and (tool.backend or backend) == "asyncio"
        if middleware or tool.scoped or is_asyncio:
            layers = Layers(tool, middleware, invoker, threads, check_output, loop, backend)
            reconcile = tool.reconcile
            if is_asyncio and reconcile is not None:
                assert loop is not None
                reconcile = loop.adapt(f"reconcile of {tool.spec.name}", reconcile)
            yield dataclasses.replace(tool, runs=layers, reconcile=reconcile)
        else:
            yield tool


class _LayeredCall:
    """One call.

    Attributes:
        value: The value that the tool returned.
        ending: The ending of the tool itself; None as long as it has none.
    """

    def __init__(self, layers: Layers, execution: Execution, arguments: dict[str, Any]) -> None:
        self._layers = layers
        self._tool = layers.tool
        self._execution = execution
        self._arguments = arguments
        self._state: dict[Any, object] = {}
        self.value: Any = None
        self.ending: Ending | None = None

    async def run(self) -> Ending:
        """Run all layers."""
        try:
            value = await self._proceed()
        except AgentError as error:
            if self.ending is not None and self.ending.error is error:
                return self.ending
            raise
        if self.ending is None or value is not self.value:
            self.ending = await self._written(value)
        if self.ending.error is None and self._execution.returned is not None:
            self._execution.returned(value)
        return self.ending

    async def _proceed(self) -> Any:
        middleware = self._layers.middleware
        if not middleware:
            return await self._run_inner()
        call = ToolCall(
            context=self._execution.context(), spec=self._tool.spec, arguments=types.MappingProxyType(self._visible())
        )
        proceed: Callable[[], Awaitable[Any]] = self._run_inner
        for function in reversed(middleware):
            proceed = partial(function, call, _Once(proceed, self._tool.spec.name))
        return await proceed()

    def _visible(self) -> dict[str, Any]:
        """The arguments of the caller, without what the engine injects."""
        if self._tool.runs is not None:
            remote: dict[str, Any] = decode(self._arguments["arguments"])
            return remote
        hidden = {self._tool.context_parameter, *self._tool.injected}
        return {name: value for name, value in self._arguments.items() if name not in hidden}

    async def _run_inner(self) -> Any:
        """Run the tool in its state; return its value. `ending` holds its output or its error."""
        if self._tool.runs is not None:
            return await self._run_elsewhere(self._tool.runs)
        if not self._layers.in_task:
            return await self._run_tool()
        failure: BaseException | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    for scoped in self._layers.in_task:
                        made = enter(
                            scoped.provision, self._needs(scoped), stack, self._layers.threads.limiter, self._in_trio
                        )
                        self._state[scoped.provision.key] = await made
                    self._inject()
                    return await self._run_tool()
                except BaseException as error:
                    failure = error
                    raise
            # A context manager has swallowed the failure, and there is no value to return.
            assert failure is not None
            raise failure
        finally:
            del failure  # its traceback refers to this frame

    def _needs(self, scoped: ScopedState) -> dict[str, Any]:
        needs = {**scoped.fixed, **{name: self._state[key] for name, key in scoped.chained.items()}}
        if scoped.provision.context is not None:
            needs[scoped.provision.context] = self._execution.context()
        return needs

    def _inject(self) -> None:
        for name, key in self._tool.scoped_parameters.items():
            if key in self._state:
                self._arguments[name] = self._state[key]

    async def _run_tool(self) -> Any:
        tool, execution = self._tool, self._execution
        if tool.is_async:
            execution.mark_started()
            if self._layers.is_tool_asyncio == self._layers.is_asyncio:
                value = await tool.function(**self._arguments)
            elif self._layers.is_asyncio:
                value = await self._in_trio(self._run_in_task)
            else:
                assert self._layers.loop is not None
                _ = execution.cancellation  # made here: two threads could make two
                execution.thread = run = self._layers.loop.prepare(tool.spec.name, tool.function, **self._arguments)
                value = await run.wait()
            self.ending = await self._written(value)
            if self.ending.error is not None:
                raise self.ending.error
        else:
            value = await self._in_trio(self._run_thread)
        self.value = value
        return value

    async def _in_trio(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run a function of trio: in this task, or for a task of asyncio in one of the trio thread."""
        if not self._layers.is_asyncio:
            return await function(*args)
        assert self._layers.loop is not None
        return await self._layers.loop.caller.run(function, *args)

    async def _run_in_task(self) -> Any:
        """Run a tool of trio for layers of asyncio."""
        with trio.CancelScope() as scope:
            return await run_with_grace(self._tool.function(**self._arguments), scope, _nothing)

    async def _run_thread(self) -> Any:
        """Run a plain tool."""
        threads, execution = self._layers.threads, self._execution
        execution.thread = thread = threads.prepare(self._run_in_thread, execution.stops_waiting)
        if threads.busy:
            execution.mark_waiting()
        return await threads.run(thread)

    def _run_in_thread(self) -> Any:
        """Enter the state, run the tool, write its output and leave the state. Called in a worker thread."""
        failure: BaseException | None = None
        try:
            with contextlib.ExitStack() as stack:
                try:
                    for scoped in self._layers.in_thread:
                        made = enter_in_thread(scoped.provision, self._needs(scoped), stack)
                        self._state[scoped.provision.key] = made
                    self._inject()
                    self._check_abandoned()
                    self._execution.mark_started()
                    value = self._tool.function(**self._arguments)
                    self.ending = self._written_in_thread(value)
                    if self.ending.error is not None:
                        raise self.ending.error
                    self._check_abandoned()
                    return value
                except BaseException as error:
                    failure = error
                    raise
            assert failure is not None
            raise failure
        finally:
            del failure  # its traceback refers to this frame

    def _check_abandoned(self) -> None:
        """Raise if the caller does not wait for the thread any more, so that a context manager undoes what the tool did.

        Raises:
            AgentError: ``CANCELLED``.
        """
        thread = self._execution.thread
        if thread is not None and thread.abandoned:
            raise AgentError.standard("CANCELLED", "the execution was cancelled while its thread ran")

    async def _run_elsewhere(self, runs: Callable[[Execution, dict[str, Any]], Coroutine[Any, Any, Ending]]) -> Any:
        self.ending = await self._in_trio(runs, self._execution, self._arguments)
        if self.ending.error is not None:
            raise self.ending.error
        self.value = decode(self.ending.data_json or b"null")
        return self.value

    async def _written(self, value: Any) -> Ending:
        try:
            return Ending(self._tool.render(value))
        except TakesLong as taken:
            long = taken.with_traceback(None)
        except BaseException as error:  # noqa: BLE001 - the boundary round serialisers and properties
            return self._layers.invoker.unfit(self._tool, self._execution, error)
        try:
            return Ending(await self._in_trio(self._check, long))
        except Exception as error:  # noqa: BLE001 - as above; a cancel passes
            return self._layers.invoker.unfit(self._tool, self._execution, error)

    async def _check(self, long: TakesLong) -> bytes:
        return await self._layers.check_output(long)

    def _written_in_thread(self, value: Any) -> Ending:
        try:
            return Ending(self._tool.render(value))
        except TakesLong as taken:
            long = taken.with_traceback(None)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._layers.invoker.unfit(self._tool, self._execution, error)
        try:
            return Ending(trio.from_thread.run(self._layers.check_output, long))
        except Exception as error:  # noqa: BLE001 - as above
            return self._layers.invoker.unfit(self._tool, self._execution, error)


def _nothing() -> None:
    pass


class _Once:
    """The rest of the layers, for one middleware: it may run once."""

    def __init__(self, proceed: Callable[[], Awaitable[Any]], name: str) -> None:
        self._proceed: Callable[[], Awaitable[Any]] | None = proceed
        self._name = name

    async def __call__(self) -> Any:
        """Run the tool; return its value, or raise what it raises.

        Raises:
            DeclarationError: It has run already: a second run could repeat an effect.
        """
        proceed, self._proceed = self._proceed, None
        if proceed is None:
            raise DeclarationError(
                f"middleware has called proceed() twice for {self._name}; a caller repeats a call, with a request_id"
            )
        return await proceed()
