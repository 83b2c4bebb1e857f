"""An engine in a trio thread, as asyncio tasks use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from .._engine.engine import BoundEngine as TrioBoundEngine
from .._execution.listing import ListedExecution
from .._execution.model_calls import ModelCall, ModelResult
from .._loops.asyncio_caller import AsyncioCaller
from .._model import protocols
from .._model.cause import Cause
from .._model.confirmation import ConfirmationEntry
from .._model.context import AgentContext
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.spec import Catalog
from ..providers import Format, Provider
from .asyncio_host import EventStream
from .engine_view import Bound, BoundView, EngineView, cancel, make_provider, stop

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=protocols.Executor)


class Executor(Generic[T]):
    """An executor of the trio thread: the client of a transport, or an engine. For the tasks of one asyncio loop."""

    def __init__(self, host: AsyncioCaller, inner: T) -> None:
        self._host = host
        self._inner = inner

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request to its end; return a result for every outcome of a tool.

        Cancelling the task cancels the execution, with cause ``caller``, and waits for its clean-up.

        Raises:
            ClosedError: The executor was used after its block had ended.
            OutcomeUnknownError: Clients only: the connection broke after the call may have started.
            WrongLoopError: It belongs to another loop.
        """
        return await self._host.run(self._inner.execute, request)

    def stream(self, request: ExecutionRequest) -> EventStream:
        """Run one request and give its events.

        ::

            async with engine.stream(request) as events:
                async for event in events: ...

        Leaving the block before ``execution.completed`` cancels the execution.
        """
        return EventStream(self._host, self._inner, request)

    async def catalog(self) -> Catalog:
        """The tools that the caller may use."""
        return await self._host.run(self._inner.catalog)


class BoundEngine(BoundView, Executor[TrioBoundEngine]):
    """An executor with a caller's trusted context, made by `bind` and `subset`."""

    _inner: TrioBoundEngine

    # The first matching overload counts, as in `LocalCalls.call`.
    @overload
    async def call(self, tool: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def call(self, tool: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(
        self, tool: Callable[Concatenate[AgentContext, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    async def call(self, tool: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a tool like a function, through all steps of the pipeline.

        See ``call`` of the engine under trio. Cancelling the task cancels the execution, with cause ``caller``, and waits for its clean-up.

        Raises:
            AgentError: What the execution ended with.
            DeclarationError: It is not a tool, or the engine has another one of this name.
            TypeError: More positional arguments than the tool has, or one given twice.
        """
        inner = self._inner
        return await self._host.run(lambda: inner.call(tool, *args, **kwargs))

    async def run_calls(self, calls: Iterable[ModelCall]) -> list[ModelResult]:
        """Run the calls of one model turn concurrently; return one result for each, in their order."""
        return await self._host.run(self._inner.run_calls, [*calls])

    async def provider(self, format: Format) -> Provider:  # noqa: A002 - the usual name
        """The tools that this caller may use, in one provider's format.

        Raises:
            DeclarationError: There is no such format; or a policy has to wait for its answer, which this cannot.
        """
        return await self._host.run(make_provider, self._inner, format)

    def bind(self, **bound: Unpack[Bound]) -> BoundEngine:
        """Return an executor with the given context; see `carmy_engine.BoundEngine.bind`."""
        return BoundEngine(self._host, self._inner.bind(**bound))

    def subset(self, *names: str) -> BoundEngine:
        """An executor with some of this one's tools; it can only narrow.

        Raises:
            DeclarationError: A name that this executor does not have.
        """
        return BoundEngine(self._host, self._inner.subset(*names))

    async def cancel(self, execution_id: str, cause: Cause = Cause.CALLER) -> bool:
        """Cancel a running execution of the same principal. False, and no effect, for any other id."""
        return await self._host.run(cancel, self._inner, execution_id, cause)

    async def confirmations(self) -> list[ConfirmationEntry]:
        """List the open confirmations of all callers; see `carmy_engine.BoundEngine.confirmations`.

        Raises:
            AgentError: ``FORBIDDEN``, without the permission ``confirmations:answer``; ``STORE_ERROR``.
        """
        return await self._host.run(self._inner.confirmations)

    async def answer_confirmation(self, confirmation_id: str, *, approve: bool) -> ConfirmationEntry:
        """Approve or deny a call; see `carmy_engine.BoundEngine.answer_confirmation`.

        Raises:
            AgentError: ``FORBIDDEN``, ``CONFIRMATION_NOT_FOUND``, ``CONFIRMATION_DENIED``, ``STORE_ERROR``.
        """
        return await self._host.run(partial(self._inner.answer_confirmation, confirmation_id, approve=approve))

    async def executions(self) -> list[ListedExecution]:
        """List the executions of all callers; see `carmy_engine.BoundEngine.executions`.

        Raises:
            AgentError: ``FORBIDDEN``, without the permission ``executions:list``; ``STORE_ERROR``.
        """
        return await self._host.run(self._inner.executions)


class Engine(EngineView, BoundEngine):
    """Runs tools. Made by `carmy_engine.aio.open_app`. Unbound, its calls are anonymous."""

    async def wait_idle(self) -> None:
        """Wait until no execution runs."""
        await self._host.run(self._engine.wait_idle)

    async def stop(self) -> None:
        """Begin to shut down: new calls get ``SHUTTING_DOWN``, and running ones continue."""
        await self._host.run(stop, self._engine)

    async def shut_down(self, drain_timeout: float | None = None) -> None:
        """Stop; give running executions time; cancel the rest with cause ``shutdown``; wait for their answers.

        Args:
            drain_timeout: Seconds that running executions may continue; None for the setting.
        """
        await self._host.run(self._engine.shut_down, drain_timeout)
