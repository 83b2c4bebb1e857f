"""The seams of the engine: what it asks of others, and what it offers to transports.

Implementations need not inherit from these; having the methods is enough. What a store is handed, and hands back, is here as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import trio

from .cause import Cause
from .context import AgentContext
from .events import ExecutionEvent
from .execution_result import ExecutionResult
from .record import ExecutionRecord
from .request import ExecutionRequest
from .reservation import Identity, Reservation, ReservationState
from .result import Outcome
from .spec import Catalog, ToolSpec

__all__ = [
    "Authenticator",
    "Confirm",
    "Credentials",
    "Executor",
    "IdempotencyStore",
    "Identity",
    "Outcome",
    "Policy",
    "Reservation",
    "ReservationState",
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
    """Remembers what became of every ``request_id``.

    The published contract suite is `carmy_engine.testing.check_store`. Any exception of a method other than
    `StoreFull` becomes ``STORE_ERROR``. Every method is atomic under cancellation: it happened or it did not.

    A class whose methods never wait may set ``never_waits = True`` (a subclass has to say so again): recording the end of
    an execution is then spared the shield that protects it from the caller's cancel.

    A class whose `reserve` has inserted nothing, or takes it back by itself, whenever it is cancelled may set
    ``takes_back = True`` (likewise): a caller whose deadline has passed then need not wait until that is done.

    A store that is full may drop completed entries whose `Reservation.repeatable` is true, and no others.

    A store that keeps audit records as well may have them in an attribute ``sink`` (a `Sink`), which the engine then uses.

    A store that can tell what is running or in doubt in it may have an
    ``async def entries(self, *, state: ReservationState | None, limit: int) -> list[Reservation]``, newest first: those
    who look after an engine are then shown it.

    A store that has something to do before the first call may have an ``async def prepare(self)``; what that raises keeps
    the engine from starting. It may also have an ``async def check(self)`` that changes nothing and raises a
    `ConfigurationError` where it cannot be used: the commands ``check`` and ``serve`` report that with all other problems.
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
