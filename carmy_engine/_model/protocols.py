"""Protocols of the engine: the interfaces that hosts implement, and the executor that transports use.

Implementations need the methods; they need not inherit. The data of the store interface is exported here as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import trio

from .cause import Cause
from .checkpoint import Checkpoint
from .client_features import ClientFeatures
from .confirmation import ConfirmationEntry, ConfirmationState
from .context import AgentContext
from .events import ExecutionEvent
from .record import ExecutionRecord
from .request import ExecutionRequest
from .reservation import Identity, Reservation, ReservationState
from .resources import Change, Completion, PromptCatalog, ResourceCatalog
from .result import ExecutionResult, ExecutionStatus, Outcome
from .spec import Catalog, ToolSpec

__all__ = [
    "AuditStore",
    "Authenticator",
    "Challenge",
    "CheckableStore",
    "CheckpointStore",
    "ClientBinder",
    "Completer",
    "Confirm",
    "ConfirmationStore",
    "Credentials",
    "Executor",
    "FileStore",
    "IdempotencyStore",
    "Identity",
    "LeasedStore",
    "ListableStore",
    "Middleware",
    "Outcome",
    "PeerProcess",
    "Policy",
    "PreparableStore",
    "PromptReader",
    "RecordingStore",
    "Reservation",
    "ReservationState",
    "ResourceReader",
    "SearchableStore",
    "Sink",
    "StoreError",
    "StoreFull",
    "Tool",
    "ToolCall",
    "Watch",
    "Watchable",
]


@runtime_checkable
class Executor(Protocol):
    """An object that runs tools: the engine, a bound engine, the client of any transport.

    Trusted context is bound to the executor, never passed with a request.
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
        """Run one request and send its events through a bounded channel.

        Leaving the block before ``execution.completed`` cancels the execution.
        """
        ...

    async def catalog(self) -> Catalog:
        """The tools that the executor's caller may use."""
        ...


@runtime_checkable
class ResourceReader(Protocol):
    """An executor that has resources as well: the engine, a bound engine, and clients whose protocol has them."""

    async def resources(self) -> ResourceCatalog:
        """The resources and templates that the executor's caller may read."""
        ...

    def read_resource(self, uri: str, *, timeout_ms: float | None = None) -> Coroutine[Any, Any, ExecutionResult]:
        """Read a resource; raises as `Executor.execute` does. The data of the result is a `ReadResult`."""
        ...


@runtime_checkable
class PromptReader(Protocol):
    """An executor that has prompts as well."""

    async def prompts(self) -> PromptCatalog:
        """The prompts that the executor's caller may get."""
        ...

    def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout_ms: float | None = None
    ) -> Coroutine[Any, Any, ExecutionResult]:
        """Render a prompt; raises as `Executor.execute` does. The data of the result is a `PromptResult`."""
        ...


@runtime_checkable
class Completer(Protocol):
    """An executor that completes arguments of prompts and of templates of resources."""

    async def complete(
        self,
        kind: Literal["prompt", "resource"],
        name: str,
        argument: str,
        value: str,
        given: Mapping[str, str] | None = None,
    ) -> Completion:
        """The values of an argument that begin with `value`.

        Raises:
            AgentError: ``PROMPT_NOT_FOUND`` or ``RESOURCE_NOT_FOUND``; what the completion refuses with.
        """
        ...


@runtime_checkable
class ClientBinder(Protocol):
    """An executor whose tools can ask the client behind a call: the engine, a bound engine, and clients whose protocol has questions."""

    def bind(self, *, client: ClientFeatures) -> Executor:
        """The executor for a caller with a client."""
        ...


class Watch(Protocol):
    """Changes that have not been received yet, at most one of each list and each resource."""

    async def subscribe(self, uri: str) -> None:
        """Watch the content of a resource as well.

        Raises:
            AgentError: ``RESOURCE_NOT_FOUND``; ``OVERLOADED`` beyond the limit of subscriptions.
        """
        ...

    def unsubscribe(self, uri: str) -> None:
        """End a subscription; without one, it has no effect."""
        ...

    async def receive(self) -> Change:
        """Wait for a change."""
        ...

    def __aiter__(self) -> AsyncIterator[Change]:
        """All changes, without an end."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """An executor whose lists and resources can be watched."""

    def watch(self) -> AbstractContextManager[Watch]:
        """Watch, for the length of a block."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool with full control, instead of a decorated function.

    The engine checks the arguments against ``spec.input_schema`` and the output against ``spec.output_schema``.
    """

    @property
    def spec(self) -> ToolSpec:
        """The declared properties. The engine reads them when the tool is added and when the application opens."""
        ...

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002 - the contract's name
        """Run with the decoded arguments; return JSON-shaped data.

        Args:
            ctx: The context of this call.
            input: A dict; a value of the model, dataclass, TypedDict or msgspec Struct that the parameter is annotated with.
        """
        ...


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool, for middleware.

    Attributes:
        context: The context of the call, as the tool gets it.
        spec: The tool's properties.
        arguments: The validated arguments by parameter; read-only. State and context are not among them.
    """

    context: AgentContext
    spec: ToolSpec
    arguments: Mapping[str, Any]


class Middleware(Protocol):
    """A function around every call of a tool, inside its deadline and after the reservation of its ``request_id``."""

    def __call__(self, call: ToolCall, proceed: Callable[[], Awaitable[Any]], /) -> Awaitable[Any]:
        """Run the tool by ``await proceed()``, once or not at all; return the value of the call.

        ``proceed`` returns the value of the tool, or raises what it raises. A value of its own is checked like the tool's. It must
        let a cancel through.

        Raises:
            AgentError: The outcome of the call, in place of the tool's.
        """
        ...


class Policy(Protocol):
    """A rule that decides, before all other checks, whether a caller may call a tool.

    Its methods may be sync or async. A sync method must not block; an async one may take `_policy.POLICY_SECONDS`. Optional
    members besides `check`:

    - ``check_arguments(context, spec, arguments)``, like `check`, called after the arguments have passed validation. `arguments` is a
      read-only mapping of the names in the input schema to JSON values, defaults included.
    - ``is_listed(context, spec) -> bool``. False hides the tool from a caller: it is not listed, and a call is answered like
      one to an unknown tool. It must not spend a budget.
    - ``counts_calls = True``, if `check` spends a budget. `check` is then called for calls only, and hides no tool.
    """

    def check(self, context: AgentContext, spec: ToolSpec, /) -> Awaitable[None] | None:
        """Return None to allow, raise `AgentError` to refuse. Also called on replays.

        A listing calls it for every tool as well, and leaves out the refused tools.
        """
        ...


class Confirm(Protocol):
    """A function that asks a person to confirm one call. Bound to an executor by `BoundEngine.bind`."""

    def __call__(self, spec: ToolSpec, arguments: bytes, /) -> Awaitable[bool] | bool:
        """Return True to confirm this call alone; any other value is ``CONFIRMATION_REQUIRED``.

        Called last, after all other checks have passed. While it waits, the call holds neither a turn nor its ``request_id``,
        and its timeout has not started: the function needs its own time limit.

        Args:
            spec: The tool.
            arguments: A JSON object that fits the tool's input schema.
        """
        ...


class Sink(Protocol):
    """A receiver of the audit records of all executions and refusals."""

    def record(self, record: ExecutionRecord) -> None:
        """Receive one record. Called in the trio thread, before the answer is sent; must not block."""
        ...


class PeerProcess(NamedTuple):
    """The process at the other end of a socket with a file, as the kernel reports it at the time of connecting.

    Attributes:
        pid: Its number. Another process may have it by now.
        uid: Its user.
        gid: Its group.
    """

    pid: int
    uid: int
    gid: int


class Credentials(NamedTuple):
    """The credentials of a caller, the same for every transport.

    Attributes:
        transport: ``http``, ``websocket`` ...
        bearer: The token of an ``Authorization: Bearer`` header, if there was one.
        headers: All headers or their equivalent, lower-case names; the first value of each.
        peer: The caller's address, None where there is none.
        process: The caller's process, for a socket with a file on Linux; None elsewhere.
    """

    transport: str
    bearer: str | None
    headers: dict[str, str]
    peer: str | None
    process: PeerProcess | None = None


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """What callers without valid credentials receive. An authenticator may have one as its attribute ``challenge``.

    Attributes:
        action: What the caller can do, one sentence.
        issuers: The authorization servers whose access tokens are accepted, for clients of OAuth.
    """

    action: str = "Send a valid token in the header 'Authorization: Bearer TOKEN'."
    issuers: tuple[str, ...] = ()


class Authenticator(Protocol):
    """A sync or async function that converts credentials to a trusted context.

    Its attribute ``challenge``, a `Challenge`, is optional.
    """

    def __call__(self, credentials: Credentials, /) -> AgentContext | Awaitable[AgentContext | None] | None:
        """Return the caller's context, or None to refuse it (``UNAUTHENTICATED``)."""
        ...


class StoreFull(Exception):  # noqa: N818 - a signal between store and engine, like trio.WouldBlock
    """The store is full and has no entry that it may drop."""


class StoreError(Exception):
    """An operation of a store failed for a known reason. Only the log receives its text.

    Attributes:
        reason: The reason in one word; callers receive it in ``details.reason``.
    """

    reason: str


class IdempotencyStore(Protocol):
    """Stores the state and the outcome of every ``request_id``.

    The conformance suite is `carmy_engine.testing.check_store`. Any exception of a method other than `StoreFull` becomes
    ``STORE_ERROR``. Every method is atomic under cancellation: it takes effect completely or not at all.

    Optional capabilities are protocols of their own: `PreparableStore`, `CheckableStore`, `ListableStore`, `SearchableStore`,
    `RecordingStore`, `AuditStore`, `CheckpointStore`, `ConfirmationStore`, `LeasedStore` and `FileStore`. A store has those whose members it
    has. Two more are promises of a class, which a
    subclass must repeat:

    - ``never_waits = True``: no method waits. The engine then records the end of an execution without a shield against cancellation.
    - ``takes_back = True``: a cancelled `reserve` leaves no entry behind. After a deadline the engine then need not wait for its
      withdrawal.

    A full store may drop completed entries whose `Reservation.repeatable` is true, and no others.
    """

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        """Insert a running entry unless its identity is taken; atomic across everything that shares the store.

        Returns:
            None when the entry was inserted, otherwise the existing entry, unchanged.

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
        """Release the store's resources. Idempotent."""
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
class CheckpointStore(Protocol):
    """A store of the checkpoints of graphs: a store of its own, or a capability of an `IdempotencyStore`.

    The conformance suite is `carmy_engine.testing.check_checkpoints`. Every method is atomic under cancellation. A store bounds the
    checkpoints that it keeps of a thread, by dropping the oldest; it never drops the newest one of a thread that has not ended.
    """

    async def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Insert a checkpoint durably.

        Returns:
            False if its thread has a checkpoint of this number or a later one: another process continues the thread. Nothing is changed.
        """
        ...

    async def latest_checkpoint(self, graph: str, thread_id: str) -> Checkpoint | None:
        """The checkpoint of a thread with the highest number; None if it has none."""
        ...

    async def checkpoints(self, graph: str, thread_id: str, *, limit: int = 100) -> list[Checkpoint]:
        """The newest checkpoints of a thread, newest first."""
        ...


@runtime_checkable
class ConfirmationStore(Protocol):
    """A store of confirmations: a store of its own, or a capability of an `IdempotencyStore`.

    Every method is atomic under cancellation, and across everything that shares the store. An entry past its ``expires_at`` counts
    as absent. A store bounds the pending entries of one owner, by dropping the oldest of them; it never drops an answered one.
    """

    async def add_confirmation(self, entry: ConfirmationEntry) -> ConfirmationEntry | None:
        """Insert a pending entry, unless its owner has a live one with its fingerprint; ``entry.asked_at`` is the current time.

        Returns:
            None when the entry was inserted, otherwise the existing entry, unchanged.

        Raises:
            StoreFull: No room.
        """
        ...

    async def replace_confirmation(self, entry: ConfirmationEntry, expected: ConfirmationState, *, now: float) -> bool:
        """Replace the entry of this id. False, and no change, unless there is one in the expected state. Unix seconds."""
        ...

    async def find_confirmations(self, owner: str, fingerprint: bytes, *, now: float) -> list[ConfirmationEntry]:
        """The entries of an owner with this fingerprint, newest first: at most one live, and used ones."""
        ...

    async def get_confirmation(self, confirmation_id: str, *, now: float) -> ConfirmationEntry | None:
        """The entry of this id, or None."""
        ...

    async def confirmations(self, *, now: float, limit: int = 100) -> list[ConfirmationEntry]:
        """The live entries that were asked last, newest first."""
        ...


@runtime_checkable
class LeasedStore(IdempotencyStore, Protocol):
    """A store whose running entries are held under a lease, so that other machines can take over from a process that has died.

    A lease has an id that is never used twice, a fencing token. Once another process has interrupted the entries of an expired lease,
    `complete`, `release` and `interrupt` of the late owner return False.
    """

    def watch_lease(self, lost: Callable[[frozenset[str]], None]) -> None:
        """Call `lost`, in any thread, with the executions whose entries this process no longer holds. The engine cancels them."""
        ...


@runtime_checkable
class FileStore(IdempotencyStore, Protocol):
    """A store in a file. Commands that read it refuse a path without a file, instead of creating an empty store."""

    @property
    def path(self) -> Path:
        """The file."""
        ...
