"""The engine: an executor for a fixed set of tools, open for the length of a block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from .._auth.first_of import challenge_of
from .._config.settings import Settings
from .._execution.completion import MemorySink
from .._execution.event_stream import EventBuffer, StreamListener, open_stream
from .._execution.execution import Caller, ExecutionSummary
from .._execution.grace import GRACE_SECONDS, grace
from .._execution.listing import LIST_PERMISSION, ListedExecution, listing
from .._execution.refusals import Refusals
from .._model.cause import Cause
from .._model.client_features import ClientFeatures
from .._model.context import AgentContext
from .._model.errors import AgentError, ClosedError, DeclarationError
from .._model.events import ExecutionEvent
from .._model.host_objects import check_client, check_confirm, check_context
from .._model.protocols import (
    Authenticator,
    CheckpointStore,
    Confirm,
)
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.run import RunContext
from .._model.spec import Catalog
from .._model.suggestions import unknown_name_message
from .._telemetry.metrics import Metrics
from .._telemetry.prometheus import render
from .answering import Answering
from .bound_client import BoundClient
from .local_calls import LocalCalls
from .pipeline import Pipeline
from .reading import Readers, Reading

if TYPE_CHECKING:
    pass

T = TypeVar("T")

CLOSING_SECONDS = 2 * GRACE_SECONDS
"""Limit for executions that were cancelled at shutdown: their clean-up and their answers."""

_UNCHANGED = (None,) * 5
"""No change of a context."""

ReadyCheck = Callable[[], object | Awaitable[object]]
"""Called for readiness; raising, or returning False, means not ready."""


class EngineStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of an engine.

    Attributes:
        running: Executions between capacity and end.
        stuck_threads: Worker threads that outlived their call.
        stuck_tasks: Tasks of asyncio that outlived their call.
        sink_failures: Number of records that a sink failed to take.
        stalls: Number of times the event loop was blocked for too long.
    """

    running: int
    stuck_threads: int
    stuck_tasks: int
    sink_failures: int
    stalls: int


class BoundEngine(LocalCalls, Readers, Answering):
    """An executor with a caller's trusted context, made by `Engine.bind` and `subset`. Cheap; share or rebuild it."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self._engine = engine
        self._caller = caller

    @property
    def context(self) -> AgentContext:
        """The trusted context of every call."""
        return self._caller.context

    @property
    def engine(self) -> Engine:
        """The engine behind this executor."""
        return self._engine

    def _opened(self) -> Pipeline:
        return self._engine._open_pipeline()  # noqa: SLF001 - one noun, two classes

    def _reading(self) -> Reading:
        self._opened()
        return self._engine._tables  # noqa: SLF001 - one noun, two classes

    def execute(self, request: ExecutionRequest) -> Coroutine[Any, Any, ExecutionResult]:
        """Run one request to its end; see `carmy_engine.abc.Executor.execute`."""
        return self._opened().run(request, self._caller)

    def stream(self, request: ExecutionRequest) -> AbstractAsyncContextManager[trio.abc.ReceiveChannel[ExecutionEvent]]:
        """Run one request and give its events; see `carmy_engine.abc.Executor.stream`."""
        pipeline = self._opened()
        return open_stream(
            lambda listener: pipeline.run(request, self._caller, listener), self._engine.settings.limits.max_event_bytes
        )

    def execute_into(self, events: EventBuffer, request: ExecutionRequest) -> Coroutine[Any, Any, ExecutionResult]:
        """Run one request and add its events to a buffer. For transports that serve many readers in one task."""
        return self._opened().run(request, self._caller, StreamListener(events))

    async def catalog(self) -> Catalog:
        """Catalog of the tools that this caller may use. The same rule decides which calls are allowed.

        A tool whose policy fails is omitted, and the failure is logged.
        """
        pipeline = self._opened()
        registry = pipeline.registry
        return registry.catalog(await registry.visible_to(self._caller.context, self._caller.only))

    def bind(
        self,
        *,
        principal: str | None = None,
        session: str | None = None,
        permissions: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: AgentContext | None = None,
        transport: str | None = None,
        gone: Cause | Callable[[], Cause] | None = None,
        run: RunContext | None = None,
        confirm: Confirm | None = None,
        client: ClientFeatures | None = None,
    ) -> BoundEngine:
        """Return an executor with the given context. Omitted values do not change.

        Args:
            principal: The authenticated caller.
            session: The caller's session.
            permissions: Permissions that the host grants; they replace the bound ones.
            metadata: Host-defined values; they replace the bound ones.
            context: A complete context, for example from an authenticator.
            transport: Name of the transport.
            gone: The cause when the scope around `execute` is cancelled, or a sync function that returns it; servers pass
                ``Cause.DISCONNECT``.
            run: The run of the calls: its ids, and metadata that is added to the bound metadata.
            confirm: Asks a person to confirm each call that only lacks a confirmation.
            client: The client behind the calls, which tools can ask; see `ClientFeatures`.

        Raises:
            DeclarationError: `confirm` cannot be called with a spec and arguments, `context` is no `AgentContext`, or `client` lacks
                methods.
            TypeError: A part of the context has the wrong type.
        """
        base = self._caller.context
        if confirm is not None:
            check_confirm(confirm, "this executor")
        if client is not None:
            check_client(client, "this executor")
        if context is not None:
            check_context(context, "this executor")
            transport = base.transport if transport is None else transport
            base = context
        # Servers bind for each call, and change nothing of the context.
        if (principal, session, permissions, metadata, transport) != _UNCHANGED:
            changes = {
                "principal": principal,
                "session": session,
                "permissions": None if permissions is None else _permissions(permissions),
                "metadata": metadata,
                "transport": transport,
            }
            given = {name: value for name, value in changes.items() if value is not None}
            base = msgspec.structs.replace(base, **given)
        if run is not None:
            base = base.within(run)
        return BoundEngine(
            self._engine,
            Caller(
                context=base,
                gone=self._caller.gone if gone is None else gone,
                only=self._caller.only,
                confirm=self._caller.confirm if confirm is None else confirm,
                client=self._caller.client if client is None else BoundClient(client),
            ),
        )

    def subset(self, *names: str) -> BoundEngine:
        """An executor with some of this one's tools; it can only narrow.

        Resources and prompts are named with ``resource:`` and ``prompt:`` before their names.

        Raises:
            DeclarationError: A name that this executor does not have.
        """
        known = frozenset[str]().union(*(table.names for table in self._reading().registries.values()))
        allowed = known if self._caller.only is None else self._caller.only
        unknown = sorted(set(names) - set(allowed))
        if unknown:
            raise DeclarationError(
                f"subset: there is no tool {', '.join(unknown)} here; there are {', '.join(sorted(allowed))}"
            )
        return BoundEngine(self._engine, msgspec.structs.replace(self._caller, only=frozenset(names)))

    def cancel(self, execution_id: str, cause: Cause = Cause.CALLER) -> bool:
        """Cancel a running execution of the same principal. False, and no effect, for any other id."""
        return self._engine._pipeline.inflight.cancel(execution_id, cause, self._owner)  # noqa: SLF001

    def running(self) -> tuple[str, ...]:
        """Ids of the running executions that were started through this object.

        Executions of other executors are not included, even for the same principal. A transport that binds one executor for
        each call can so find the execution of that call.
        """
        return self._engine._pipeline.inflight.running_for(self._caller)  # noqa: SLF001

    def record_refusal(self, error: AgentError, peer: str | None = None) -> None:
        """Record a request of this caller that never became an execution. For transports; limited in rate.

        Args:
            error: The error sent to the caller. Only its code is recorded.
            peer: The caller's address, for the log.
        """
        self._engine._refusals.record(error, self._caller.context, peer)  # noqa: SLF001

    def read_message(self, read: Callable[[Callable[[], None]], T]) -> Coroutine[Any, Any, T]:
        """Read a message of more than `carmy_engine.codec.LONG_MESSAGE_BYTES` in a worker thread. For transports.

        If cancelled, the thread ends at the next piece.

        Args:
            read: Is called with a function to call after each piece. What it raises is raised here.
        """
        return self._opened().long_checks.read_message(read)

    def lookup(self, execution_id: str) -> ExecutionSummary | None:
        """A running or recently ended execution of the same principal; None for any other id."""
        return self._engine._pipeline.inflight.lookup(execution_id, self._owner)  # noqa: SLF001

    async def executions(self) -> list[ListedExecution]:
        """List the executions of all callers: running, recently ended, and interrupted ones in the store.

        Newest first, at most 200 of each state (`_execution.listing.MAX_LISTED`).

        Raises:
            AgentError: ``FORBIDDEN``, without the permission ``executions:list``; ``STORE_ERROR``.
        """
        pipeline = self._opened()
        if self._owner is not None and LIST_PERMISSION not in self._owner.permissions:
            raise AgentError.standard(
                "FORBIDDEN", f"to list the executions of others takes the permission {LIST_PERMISSION}"
            )
        entries = await pipeline.reservations.unsettled()
        inflight = pipeline.inflight
        return listing(inflight.running(), inflight.recent(), entries)

    @property
    def _owner(self) -> AgentContext | None:
        return self._caller.context


class Engine(BoundEngine):
    """Runs tools. Made by `open_engine` or ``App.open``; used inside that block only.

    Unbound, its calls are anonymous (no principal, no permissions), and it can list and cancel every execution.

    Attributes:
        name: The server's name in discovery documents.
        settings: Its settings.
        authenticator: Turns credentials into context, for transports.
        challenge: What callers without valid credentials receive.
        ready_checks: By name, for readiness.
        audit: The newest records.
        metrics: Its metrics; None if they are off. See `prometheus`.
        checkpoints: Its store, if that keeps the checkpoints of graphs too; else None.
        spans: Makes spans around calls of tools; None if there are none (`App.spans`).
        stopping: Set when shutdown begins: transports close their listeners, new calls get ``SHUTTING_DOWN``.
        stopped: Set when every execution has ended: transports finish their writes and return.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        *,
        authenticator: Authenticator | None,
        ready_checks: Mapping[str, ReadyCheck],
        audit: MemorySink,
        refusals: Refusals,
        reading: Reading,
        metrics: Metrics | None,
        checkpoints: CheckpointStore | None,
        statistics: Callable[[], EngineStatistics],
    ) -> None:
        super().__init__(self, Caller(context=AgentContext()))
        self._pipeline = pipeline
        self._refusals = refusals
        self._tables = reading
        self.metrics = metrics
        self.checkpoints = checkpoints
        self.spans = pipeline.spans
        self._statistics = statistics
        self._closed = False
        self.name = settings.name
        self.settings = settings
        self.authenticator = authenticator
        self.challenge = challenge_of(authenticator)
        self.ready_checks = dict(ready_checks)
        self.audit = audit
        self.stopping = trio.Event()
        self.stopped = trio.Event()

    @property
    def _owner(self) -> AgentContext | None:
        return None

    def _open_pipeline(self) -> Pipeline:
        if self._closed:
            raise ClosedError(f"the engine {self.name!r} was used after its block had ended")
        return self._pipeline

    def statistics(self) -> EngineStatistics:
        """A snapshot."""
        return self._statistics()

    def enable(self, name: str) -> bool:
        """Enable a tool, a resource (``resource:NAME``) or a prompt (``prompt:NAME``) again. False if it is enabled.

        Raises:
            DeclarationError: There is none of this name.
        """
        return self._switch(name, on=True)

    def disable(self, name: str) -> bool:
        """Disable a tool, a resource (``resource:NAME``) or a prompt (``prompt:NAME``). False if it is disabled.

        It is then neither listed nor found, for any caller; running calls go on. Watchers learn that the list has changed.

        Raises:
            DeclarationError: There is none of this name.
        """
        return self._switch(name, on=False)

    def _switch(self, name: str, *, on: bool) -> bool:
        try:
            return self._tables.switch(name, on=on)
        except KeyError:
            known = sorted(frozenset[str]().union(*(table.names for table in self._tables.registries.values())))
            raise DeclarationError(unknown_name_message(f"the name {name!r}", name, known, "names")) from None

    def notify_resource(self, uri: str) -> None:
        """Announce to subscribers that the content of a resource has changed. Safe in any thread; never blocks."""
        self._tables.changes.publish_resource(uri)

    def prometheus(self) -> str:
        """Return the metrics in Prometheus' text format, for a handler of ``/metrics``; empty if they are off."""
        return "" if self.metrics is None else render(self.metrics)

    async def wait_idle(self) -> None:
        """Wait until no execution runs."""
        await self._pipeline.inflight.wait_idle()

    def stop(self) -> None:
        """Begin to shut down: new calls get ``SHUTTING_DOWN``, and running ones continue."""
        self._pipeline.inflight.closing = True
        self.stopping.set()

    async def shut_down(self, drain_timeout: float | None = None) -> None:
        """Stop; give running executions time; cancel the rest with cause ``shutdown``; wait for their answers.

        If cancelled, executions that still run are cancelled all the same, and waited for as briefly.

        Args:
            drain_timeout: Seconds that running executions may continue; None for the setting.
        """
        self.stop()
        limit = self.settings.drain_timeout_secs if drain_timeout is None else drain_timeout
        try:
            with trio.move_on_after(limit):
                await self.wait_idle()
        finally:
            for execution in self._pipeline.inflight.running():
                execution.cancel(Cause.SHUTDOWN)
            with grace(CLOSING_SECONDS):
                await self.wait_idle()
            self.stopped.set()


def _permissions(permissions: Iterable[str]) -> frozenset[str]:
    if isinstance(permissions, str):
        raise TypeError("permissions must be a set of strings, not one string")
    return frozenset(permissions)
