"""The opening of an engine: its parts, put together for the length of a block."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import trio

from .._auth.first_of import FirstOf
from .._config.settings import Settings
from .._execution.asyncio_tools import open_loop_if_needed, watch_loop
from .._execution.completion import Finisher, MemorySink, Sinks
from .._execution.execution import Inflight
from .._execution.grace import grace
from .._execution.invoke import Invoker
from .._execution.layers import with_layers
from .._execution.refusals import Refusals
from .._execution.threads import Threads
from .._execution.tool_table import Registry
from .._execution.trio_internals import install_nursery_guards
from .._execution.watchdog import Watchdog
from .._idempotency.joins import Joins
from .._idempotency.reservations import STORE_SECONDS, Reservations
from .._model.compiled_tool import Backend, CompiledTool
from .._model.error_boundary import raise_single
from .._model.host_objects import is_async
from .._model.protocols import (
    Authenticator,
    CheckpointStore,
    ConfirmationStore,
    IdempotencyStore,
    LeasedStore,
    Middleware,
    Policy,
    PreparableStore,
    RecordingStore,
    Sink,
)
from .._telemetry.access_log import AccessLog
from .._telemetry.metrics import LAG, RUNNING, SINK_FAILURES, STALLS, STUCK, WAITING, Metrics
from .._tools.resources import CompiledPrompt, CompiledResource
from .._workers.pool import with_workers
from ..stores import memory
from .confirmations import Confirmations
from .engine import BoundEngine, Engine, EngineStatistics, ReadyCheck
from .leases import cancel_with_lease
from .long_checks import LongChecks
from .pipeline import Pipeline
from .reading import Reading

if TYPE_CHECKING:
    from .._loops.asyncio_loop import AsyncioLoop

F = TypeVar("F")


@runtime_checkable
class EngineTool(Protocol):
    """A tool made by hand that calls other tools, such as a graph. `open_engine` binds it to the engine that it belongs to."""

    def bound(self, engine: Callable[[], BoundEngine], /) -> Callable[..., Any]:
        """Return the function to call in place of ``execute``; it may call `engine` while it runs."""
        ...


def _with_engine(tools: Iterable[CompiledTool], engine: Callable[[], BoundEngine]) -> Iterator[CompiledTool]:
    for tool in tools:
        made = getattr(tool.function, "__self__", None)
        yield dataclasses.replace(tool, function=made.bound(engine)) if isinstance(made, EngineTool) else tool


@asynccontextmanager
async def open_engine(
    tools: Iterable[CompiledTool],
    *,
    settings: Settings | None = None,
    policies: Sequence[Policy] = (),
    sinks: Sequence[Sink] = (),
    store: IdempotencyStore | None = None,
    authenticator: Authenticator | None = None,
    ready_checks: Mapping[str, ReadyCheck] | None = None,
    withheld: Iterable[str] = (),
    make_pipeline: Callable[..., Pipeline] = Pipeline,
    middleware: Sequence[Middleware] = (),
    resources: Iterable[CompiledResource] = (),
    prompts: Iterable[CompiledPrompt] = (),
    metrics: Metrics | None = None,
    backend: Backend = "trio",
    loop: AsyncioLoop | None = None,
) -> AsyncIterator[Engine]:
    """Run an engine for the length of a block.

    Leaving the block cancels running executions (cause ``shutdown``), waits for them briefly, and closes the store.

    Args:
        tools: Compiled tools; `carmy_engine.App` makes them from declarations.
        settings: Defaults where None.
        policies: Checked in this order, after the confirmation policy.
        sinks: Receive every record, after the engine's own memory sink.
        store: A `MemoryStore` where None. Closed with the engine.
        authenticator: For transports.
        ready_checks: For transports.
        withheld: Names that get ``TOOL_NOT_PERMITTED`` instead of ``TOOL_NOT_FOUND``, unless there is such a tool.
        make_pipeline: Creates the pipeline; a subclass can wrap every execution, for example in a span.
        middleware: Functions around every call of a tool, outermost first.
        resources: Compiled resources, in the order in which addresses are compared.
        prompts: Compiled prompts.
        metrics: Filled for the length of the block; None for none.
        backend: The library of async tools without one of their own, and of async middleware, authenticator and ready checks.
        loop: Runs what belongs to asyncio; None: one is opened if anything does.

    Raises:
        StartupError: Two tools, resources or prompts have the same name.
    """
    settings = settings or Settings()
    limits = settings.limits
    threads = Threads(limits.max_threads)
    long_checks = LongChecks()
    invoker = Invoker(threads, long_checks.check_output, expose_errors=settings.expose_errors)
    opened: list[Engine] = []
    tools = [*_with_engine(tools, lambda: opened[0])]
    needed = open_loop_if_needed(tools, backend, limits.max_threads)
    async with (
        needed if loop is None else contextlib.nullcontext(loop) as loop,
        with_workers(tools, settings) as tools,
    ):

        def adapt(name: str, function: F) -> F:
            """The function, run in the loop if it is one of asyncio."""
            if loop is None or backend != "asyncio" or not is_async(function):
                return function
            return cast(F, loop.adapt(name, cast("Callable[..., Awaitable[Any]]", function)))

        def layered(tools: Iterable[CompiledTool]) -> Iterable[CompiledTool]:
            return with_layers(tools, middleware, invoker, threads, long_checks.check_output, loop, backend)

        registry = Registry(layered(tools), settings.timeout_secs, policies, withheld)
        store = memory.from_settings(settings.store) if store is None else store
        audit = MemorySink(limits.max_audit_records)
        inflight = Inflight(
            settings.max_executions, limits.max_recent, limits.max_recent_bytes, limits.per_principal_executions
        )
        install_nursery_guards()
        kept = store.sink if isinstance(store, RecordingStore) else None
        access = AccessLog() if settings.log.access else None
        own_sinks: tuple[Sink | None, ...] = (audit, kept, metrics, access)
        all_sinks = Sinks([*(sink for sink in own_sinks if sink is not None), *sinks])
        try:
            if isinstance(store, LeasedStore):
                cancel_with_lease(store, inflight)
            if isinstance(store, PreparableStore):
                await store.prepare()
            async with trio.open_nursery() as background:
                with Watchdog() as watchdog, watch_loop(loop) as loop_watchdog:
                    pipeline = make_pipeline(
                        registry=registry,
                        inflight=inflight,
                        reservations=Reservations(
                            store, all_sinks, Joins(inflight.runs), long_checks.check_output, metrics
                        ),
                        invoker=invoker,
                        finisher=Finisher(all_sinks, inflight),
                        long_checks=long_checks,
                        confirmations=Confirmations(
                            store if isinstance(store, ConfirmationStore) else memory.MemoryConfirmations(),
                            settings.confirmation_timeout_secs,
                        ),
                        background=background,
                        now=trio.lowlevel.current_clock().current_time,
                    )
                    if metrics is not None:
                        metrics.gauges |= {
                            RUNNING: lambda: len(inflight),
                            WAITING: lambda: sum(execution.is_waiting for execution in inflight.running()),
                            STUCK: lambda: threads.stuck,
                            LAG: lambda: watchdog.lag,
                            STALLS: lambda: watchdog.stalls + loop_watchdog.stalls,
                            SINK_FAILURES: lambda: all_sinks.failures,
                        }
                    engine = Engine(
                        pipeline,
                        settings,
                        authenticator=authenticator.adapted(partial(adapt, "authenticator"))
                        if isinstance(authenticator, FirstOf)
                        else adapt("authenticator", authenticator),
                        ready_checks={name: adapt(name, check) for name, check in (ready_checks or {}).items()},
                        audit=audit,
                        reading=Reading(pipeline, resources, prompts, settings.timeout_secs, policies, layered),
                        refusals=Refusals(all_sinks, None if metrics is None else metrics.count_refusal),
                        metrics=metrics,
                        checkpoints=store if isinstance(store, CheckpointStore) else None,
                        statistics=lambda: EngineStatistics(
                            running=len(inflight),
                            stuck_threads=threads.stuck,
                            sink_failures=all_sinks.failures,
                            stuck_tasks=0 if loop is None else loop.stuck,
                            stalls=watchdog.stalls + loop_watchdog.stalls,
                        ),
                    )
                    opened.append(engine)
                    try:
                        yield engine
                    finally:
                        await engine.shut_down(0)
                        engine._closed = True  # noqa: SLF001 - the block owns the engine
                        background.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)
        finally:
            with grace(STORE_SECONDS):  # the store may still have outcomes to write
                await store.aclose()
