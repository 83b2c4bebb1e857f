"""The seams of the engine: what it asks of others, and what it offers to transports.

Implementations need not inherit from these; having the methods is enough. What a store is handed, and hands back, is here as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import trio

from .cause import Cause
from .context import AgentContext
from .events import ExecutionEvent
from .execution_result import ExecutionResult
from .record import ExecutionRecord
from .request import ExecutionRequest
from .reservation import Identity, Reservation, ReservationState
from .result import ExecutionStatus, Outcome
from .spec import Catalog, ToolSpec

__all__ = [
    "AuditStore",
    "Authenticator",
    "CheckableStore",
    "Confirm",
    "Credentials",
    "Executor",
    "FileStore",
    "IdempotencyStore",
    "Identity",
    "ListableStore",
    "Outcome",
    "Policy",
    "PreparableStore",
    "RecordingStore",
    "Reservation",
    "ReservationState",
    "SearchableStore",
    "Sink",
    "StoreError",
    "StoreFull",
    "Tool",
]


@runtime_checkable
class Executor(Protocol):
    """Something that runs tools: the engine, a bound engine, the client of any transport.

    Trusted context is bound to an executor and never passed with a request.
    """

    def execute(self, request: ExecutionRequest) -> Coroutine[Any, Any, ExecutionResult]:
        """Run one request to its end (an ``async def``, or a function that returns a coroutine).

        Returns a result for every outcome a tool can have.

        Raises:
            trio.Cancelled: The caller's own scope was cancelled. The execution is cancelled with it.
            ClosedError: The executor was used after its end.
            OutcomeUnknownError: Clients only: the connection broke after the call may have started.
        """
        ...

    def stream(self, request: ExecutionRequest) -> AbstractAsyncContextManager[trio.abc.ReceiveChannel[ExecutionEvent]]:
        """Run one request and give its events through a bounded channel.

        Leaving the block before ``execution.completed`` cancels the execution.
        """
        ...

    async def catalog(self) -> Catalog:
        """The tools this executor's caller may use."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool with full control, instead of a decorated function.

    The engine checks the arguments against ``spec.input_schema`` and the output against ``spec.output_schema``.
    """

    @property
    def spec(self) -> ToolSpec:
        """The declared properties. Read when the tool is added and when the application opens."""
        ...

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002 - the contract's name
        """Run with the decoded arguments; return JSON-shaped data.

        Args:
            ctx: The context of this call.
            input: A dict; a value of the model, dataclass, TypedDict or msgspec Struct that the parameter is annotated with.
        """
        ...


class Policy(Protocol):
    """Decides, before anything else, whether a caller may call a tool.

    Its methods may be sync or async. A sync one must not block; an async one may take `_policy.POLICY_SECONDS`. Besides `check`, a
    policy may have:

    - ``check_arguments(context, spec, arguments)``, like `check`, asked once the arguments are known to fit the schema. `arguments` is a
      read-only mapping of the names in the input schema to JSON values, defaults included.
    - ``is_listed(context, spec) -> bool``. False hides the tool from a caller: it is not listed, and a call to it is answered as
      one to an unknown tool. It must not spend any budget.
    - ``counts_calls = True``, if `check` spends a budget. `check` is then asked about calls only, and hides no tool.
    """

    def check(self, context: AgentContext, spec: ToolSpec, /) -> Awaitable[None] | None:
        """Return None to allow, raise `AgentError` to refuse. Also runs on replays.

        It is asked about every tool when tools are listed, too: what it refuses is not listed.
        """
        ...


class Confirm(Protocol):
    """Asks a person whether one call may go on that needs a confirmation. Bound to an executor by `BoundEngine.bind`."""

    def __call__(self, spec: ToolSpec, arguments: bytes, /) -> Awaitable[bool] | bool:
        """Return True for a yes, which counts for this call alone; anything else is ``CONFIRMATION_REQUIRED``.

        Asked last: everything else that could refuse the call has let it pass. It holds nothing while it waits, neither a
        turn nor its ``request_id``, and its timeout has not begun; so the waiting needs a limit of its own.

        Args:
            spec: The tool.
            arguments: A JSON object that fits the tool's input schema.
        """
        ...


class Sink(Protocol):
    """Receives the audit record of every execution and every refusal."""

    def record(self, record: ExecutionRecord) -> None:
        """Take one record. Called in the trio thread, before the caller gets its answer; must not block."""
        ...


class Credentials(NamedTuple):
    """What a caller presented, whatever the transport.

    Attributes:
        transport: ``http``, ``websocket`` ...
        bearer: The token of an ``Authorization: Bearer`` header, if there was one.
        headers: All headers or their equivalent, lower-case names; the first value of each.
        peer: The caller's address, None where there is none.
    """

    transport: str
    bearer: str | None
    headers: dict[str, str]
    peer: str | None


class Authenticator(Protocol):
    """Turns credentials into trusted context. May be a plain or an async function."""

    def __call__(self, credentials: Credentials, /) -> AgentContext | Awaitable[AgentContext | None] | None:
        """Return the caller's context, or None to refuse it (``UNAUTHENTICATED``)."""
        ...


class StoreFull(Exception):  # noqa: N818 - a signal between store and engine, like trio.WouldBlock
    """The store has no room and holds nothing that it may drop."""


class StoreError(Exception):
    """A store could not do what it was asked, and can say why in a word. Its text is for the log alone.

    Attributes:
        reason: The word: callers are told in ``details.reason``.
    """

    reason: str


class IdempotencyStore(Protocol):
    """Stores the state and the outcome of every ``request_id``.

    The conformance suite is `carmy_engine.testing.check_store`. Any exception of a method other than `StoreFull` becomes
    ``STORE_ERROR``. Every method is atomic under cancellation: it happens completely or not at all.

    Optional capabilities are protocols of their own: `PreparableStore`, `CheckableStore`, `ListableStore`, `SearchableStore`,
    `RecordingStore`, `AuditStore` and `FileStore`. A store has those whose members it has. Two more are promises of a class, which a
    subclass must repeat:

    - ``never_waits = True``: no method waits. The engine then records the end of an execution without a shield against cancellation.
    - ``takes_back = True``: a cancelled `reserve` leaves no entry behind. A caller whose deadline has passed then does not wait for
      its withdrawal.

    A full store may drop completed entries whose `Reservation.repeatable` is true, and no others.
    """

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        """Insert a running entry unless its identity is taken; atomic across everything that shares the store.

        Returns:
            None when the entry was inserted, otherwise the entry that was there, unchanged.

        Raises:
            StoreFull: No room. An existing entry is returned even when the store is full.
        """
        ...

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        """Record the outcome durably. False when `execution_id` does not hold the entry (nothing is changed)."""
        ...

    async def release(self, identity: Identity, execution_id: str) -> bool:
        """Free the identity. False when `execution_id` does not hold it in state running or interrupted."""
        ...

    async def interrupt(self, identity: Identity, execution_id: str, cause: Cause | None, finished_at: float) -> bool:
        """Mark a running entry as interrupted. False when `execution_id` does not hold a running entry."""
        ...

    async def get(self, identity: Identity) -> Reservation | None:
        """The entry, or None."""
        ...

    async def aclose(self) -> None:
        """Release what the store holds. Idempotent."""
        ...


@runtime_checkable
class PreparableStore(IdempotencyStore, Protocol):
    """A store with work to do before the first call."""

    async def prepare(self) -> None:
        """Open the store. The engine calls it when it opens; an exception keeps the engine from starting."""
        ...


@runtime_checkable
class CheckableStore(IdempotencyStore, Protocol):
    """A store that the commands ``check`` and ``serve`` can check."""

    async def check(self) -> None:
        """Check that the store can be used; change nothing.

        Raises:
            ConfigurationError: It cannot.
        """
        ...


@runtime_checkable
class ListableStore(IdempotencyStore, Protocol):
    """A store that lists its entries, for ``engine.executions()``."""

    async def entries(
        self, *, state: ReservationState | None = None, tool: str | None = None, limit: int = 100
    ) -> list[Reservation]:
        """The entries that began last, newest first.

        Args:
            state: Only entries in this state; None for running and interrupted ones.
            tool: Only entries of this tool.
            limit: The most entries to return.
        """
        ...


@runtime_checkable
class SearchableStore(ListableStore, Protocol):
    """A store that finds the entry of one execution, for ``carmy executions``."""

    async def find_execution(self, execution_id: str) -> Reservation | None:
        """The entry that an execution holds, or None."""
        ...


@runtime_checkable
class RecordingStore(IdempotencyStore, Protocol):
    """A store that keeps audit records as well. An engine with this store adds `sink` to its sinks."""

    @property
    def sink(self) -> Sink | None:
        """The receiver of the records."""
        ...


@runtime_checkable
class AuditStore(RecordingStore, Protocol):
    """A store that returns its audit records, for ``carmy audit``."""

    async def records(
        self,
        *,
        tool: str | None = None,
        status: ExecutionStatus | None = None,
        principal: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
    ) -> list[ExecutionRecord]:
        """The audit records of the executions that ended last, newest first.

        Args:
            tool: Only records of this tool.
            status: Only records with this status.
            principal: Only records of this principal.
            since: Only calls that arrived at this time or later, in Unix seconds.
            until: Only calls that arrived before this time.
            limit: The most records to return.
        """
        ...


@runtime_checkable
class FileStore(IdempotencyStore, Protocol):
    """A store in a file. Commands that read it refuse a path without a file, instead of creating an empty store."""

    @property
    def path(self) -> Path:
        """The file."""
        ...
