"""The trusted context of a call, and a running tool's access to its execution."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

import msgspec
import trio

from .cause import Cause
from .client_features import LEVELS, NO_CLIENT, LogLevel, Root, Sample, SampleRequest, ToolClient, log, messages_of
from .content import Content
from .errors import AgentError
from .frozen import NOTHING, FrozenDict, freeze
from .resources import Message
from .run import CallIds, RunContext
from .text import bounded_text

T = TypeVar("T")


class Cancellation:
    """The cancellation state of an execution.

    An ``async`` tool is cancelled through trio and rarely needs this. A plain function runs in a thread, which cannot be
    interrupted: it should call `check` between steps.
    """

    __slots__ = ("_cause", "_event", "_waiters")

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._event: trio.Event | None = None
        self._waiters: list[Callable[[], object]] | None = None
        """Wake tasks of asyncio."""

    @property
    def cause(self) -> Cause | None:
        """The cause of the cancellation; None while the execution is not cancelled."""
        return self._cause

    @property
    def cancelled(self) -> bool:
        """True from the moment the execution is asked to stop. Safe to read from any thread."""
        return self.cause is not None

    def check(self) -> None:
        """Raise `AgentError` ``CANCELLED`` if the execution has been asked to stop. Safe in any thread."""
        if self.cause is not None:
            raise AgentError.standard("CANCELLED", f"the execution was cancelled ({self.cause.value})")

    async def wait(self) -> Cause:
        """Wait until the execution is asked to stop; return why. In a task of trio or asyncio."""
        if self.cause is None and not trio.lowlevel.in_trio_task():
            await self._wait_in_asyncio()
        elif self.cause is None:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        assert self.cause is not None
        return self.cause

    async def _wait_in_asyncio(self) -> None:
        import asyncio  # noqa: PLC0415 - tools of asyncio have imported it

        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(woken.set)

        if self._waiters is None:
            self._waiters = []
        self._waiters.append(wake)
        if self.cause is None:  # once more: the engine reads the list after it has set the cause
            await woken.wait()

    def _set(self, cause: Cause) -> None:
        """Record the first cause and wake the waiting tasks. The engine calls it, in the trio thread."""
        if self._cause is None:
            self._cause = cause
            if self._event is not None:
                self._event.set()
            for wake in self._waiters or ():
                wake()


class Progress:
    """The channel from a running tool to its caller. This base class discards everything; calls without a listener get it."""

    __slots__ = ()

    @property
    def is_listening(self) -> bool:
        """False when reports are discarded, so that a tool can skip preparing them."""
        return False

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the work. Never blocks; safe in any thread.

        A reader that lags behind gets only the newest report.

        Args:
            progress: A finite number; the amount done.
            total: The total amount, if known.
            message: A short text; an empty one counts as none.
        """

    async def partial(self, value: Any) -> None:
        """Send a part of the result, JSON-shaped. Waits for a slow reader, within the deadline; none is ever lost."""

    def partial_from_thread(self, value: Any) -> None:
        """`partial` for plain functions, which run in a worker thread."""

    def log(self, level: LogLevel, message: str) -> bool:
        """Send a log message as an event. Never blocks; safe in any thread. False if no one listens."""
        return False


SILENT = Progress()
"""The progress of a call without a listener."""


def _is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


class AgentContext(CallIds, kw_only=True, frozen=True, repr_omit_defaults=True):
    """The caller and its authority; for a running tool, also its execution.

    Hosts and authenticators build it with the first group of fields. The engine sets the others. A request can
    never set any of them. Objects of the whole application belong in `State`.

    Attributes:
        principal: The authenticated caller.
        session: The caller's session.
        permissions: Strings granted by the host, such as ``confirm:delete_customer`` or ``tool:search``.
        metadata: Host-defined values. A deep read-only copy, which compares and serialises like the original.
        transport: The transport of the call.
        traceparent: The span of a caller, as in the header of that name (W3C Trace Context): the parent of the execution's span.
        thread_id: From the caller's run, when given (`RunContext`); so are the next four, and `services`.
        run_id: The caller's run.
        node_path: The position in the run.
        attempt: The number of the attempt at the node.
        caller_id: The calling agent or node.
        call_id: The model's own id of the call. A running tool finds the execution's id here when there is none.
        services: Objects of the caller's run, in a read-only mapping.
        execution_id: This execution.
        request_id: The caller's idempotency identity.
        cancellation: Whether the execution has been asked to stop.
        progress: The channel to a listening caller.
        client: The client of the call, behind the methods `ask`, `log`, `sample` and `roots`.
        deadline: The absolute time, on `clock`, at which the execution times out.
        clock: The engine's clock; callable in any thread.
    """

    principal: str | None = None
    session: str | None = None
    permissions: Set[str] = frozenset()  # any set is accepted and stored as a `frozenset`
    metadata: Mapping[str, Any] = NOTHING
    transport: str = "in_process"
    traceparent: str | None = None
    services: Mapping[Any, Any] = NOTHING
    execution_id: str = ""
    request_id: str | None = None
    cancellation: Cancellation = msgspec.field(default_factory=Cancellation)
    progress: Progress = SILENT
    client: ToolClient = NO_CLIENT
    deadline: float = float("inf")
    clock: Callable[[], float] = trio.current_time

    def __post_init__(self) -> None:
        # Stores, records and policies rely on strings. A host with numeric user ids would otherwise fail much later.
        if not _is_name(self.principal) or not _is_name(self.session):
            raise TypeError("principal and session must be strings, or None")
        permissions: Iterable[str] = self.permissions
        if isinstance(permissions, str):
            raise TypeError("permissions must be a set of strings, not one string")
        if type(permissions) is not frozenset:
            msgspec.structs.force_setattr(self, "permissions", frozenset(permissions))
        # Frozen once, when the host creates it: a call checks the type only.
        if type(self.metadata) is not FrozenDict:
            metadata = freeze(self.metadata)
            if type(metadata) is not FrozenDict:
                raise TypeError(f"metadata must be a mapping, not a {type(self.metadata).__name__}")
            msgspec.structs.force_setattr(self, "metadata", metadata)
        if type(self.services) is not FrozenDict:
            msgspec.structs.force_setattr(self, "services", FrozenDict(self.services))

    def within(self, run: RunContext) -> AgentContext:
        """The same caller in a run. The run's ids and services replace the current ones; its metadata is added."""
        fields = msgspec.structs.asdict(run)
        fields["metadata"] = {**self.metadata, **run.metadata} if run.metadata else self.metadata
        return msgspec.structs.replace(self, **fields)

    def remaining(self) -> float:
        """Seconds until the deadline, never negative; infinite without one. Safe in a tool's worker thread."""
        return max(0.0, self.deadline - self.clock()) if self.deadline != float("inf") else self.deadline

    def allows(self, permission: str) -> bool:
        """True when the host granted this permission."""
        return permission in self.permissions

    @property
    def can_ask(self) -> bool:
        """True when `ask` can reach a person."""
        return self.client.can_ask

    @property
    def can_sample(self) -> bool:
        """True when `sample` can reach a model."""
        return self.client.can_sample

    @property
    def has_roots(self) -> bool:
        """True when `roots` can be used."""
        return self.client.has_roots

    async def ask(self, model: type[T], message: str) -> T:
        """Ask the person behind the client; wait within the deadline. Returns the checked answer.

        ::

            shipping = await ctx.ask(Shipping, "Where shall it go?")

        Args:
            model: A flat model, dataclass, TypedDict or msgspec Struct of texts, numbers, booleans and choices.
            message: The question.

        Raises:
            AgentError: ``CLIENT_UNAVAILABLE`` where `can_ask` is false; ``ANSWER_DECLINED``; ``INVALID_ANSWER``.
            DeclarationError: Clients cannot ask for such a model.
        """
        return await self.client.ask(model, message)

    async def sample(
        self,
        messages: str | Message | Content | Sequence[str | Message | Content],
        *,
        system: str | None = None,
        max_tokens: int = 1000,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        models: Sequence[str] = (),
    ) -> Sample:
        """Ask the client's model for a message; wait within the deadline.

        Args:
            messages: A text, or the messages so far.
            system: The system prompt.
            max_tokens: The most that the model may write.
            temperature: The randomness of its choice.
            stop: Texts at which it stops.
            models: Names of models, the preferred first; the client may choose another one.

        Raises:
            AgentError: ``CLIENT_UNAVAILABLE`` where `can_sample` is false; what the client refuses with.
        """
        request = SampleRequest(
            messages=messages_of(messages),
            system=system,
            max_tokens=max_tokens,
            temperature=temperature,
            stop=tuple(stop),
            models=tuple(models),
        )
        return await self.client.sample(request)

    async def roots(self) -> tuple[Root, ...]:
        """The directories that the client works in.

        Raises:
            AgentError: ``CLIENT_UNAVAILABLE`` where `has_roots` is false.
        """
        return await self.client.roots()

    def log(self, level: LogLevel, message: str) -> None:
        """Log a message for the caller: to its client, else as an event of its stream, else to the logger ``carmy.tools``.

        Never blocks; safe in any thread. At most `MAX_LOGS` messages of one call are sent in a second; a longer text is cut.

        Args:
            level: ``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``.
            message: The text.

        Raises:
            ValueError: There is no such level.
        """
        if level not in LEVELS:
            raise ValueError(f"there is no level {level!r}; there are {', '.join(LEVELS)}")
        text = bounded_text(message)
        if not (self.client.log(level, text) or self.progress.log(level, text)):
            log.log(LEVELS[level], "%s: %s", self.execution_id, text)
