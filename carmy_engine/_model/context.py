"""The trusted context of a call, and what a running tool can ask of its execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import msgspec
import trio

from .cause import Cause
from .errors import AgentError
from .frozen import NOTHING, FrozenDict, freeze
from .run import RunContext


class Cancellation:
    """Whether, and why, the execution has been asked to stop.

    An ``async`` tool is cancelled through trio and rarely needs this. A plain function runs in a thread that nothing
    can interrupt: it should call `check` between steps.
    """

    __slots__ = ("_cause", "_event")

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._event: trio.Event | None = None

    @property
    def cause(self) -> Cause | None:
        """Why it was cancelled; None as long as it was not."""
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
        """Wait until the execution is asked to stop; return why. Trio only."""
        if self.cause is None:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        assert self.cause is not None
        return self.cause

    def _set(self, cause: Cause) -> None:
        """For the engine, in the trio thread: record the first cause and wake whoever waits."""
        if self._cause is None:
            self._cause = cause
            if self._event is not None:
                self._event.set()


class Progress:
    """What a tool tells the caller while it runs. This one tells nobody: calls without a listener get it."""

    __slots__ = ()

    @property
    def is_listening(self) -> bool:
        """False when reports go nowhere, so that a tool can skip preparing them."""
        return False

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the work has come. Never blocks; safe in any thread.

        A reader that lags behind gets only the newest report.

        Args:
            progress: A finite number; the amount done.
            total: The amount that there is to do, if known.
            message: A short text; an empty one counts as none.
        """

    async def partial(self, value: Any) -> None:
        """Send a part of the result, JSON-shaped. Waits for a slow reader, within the deadline; none is ever lost."""

    def partial_from_thread(self, value: Any) -> None:
        """`partial` for plain functions, which run in a worker thread."""


SILENT = Progress()
"""The progress of a call that nobody listens to."""


def _is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


class AgentContext(msgspec.Struct, kw_only=True, frozen=True):
    """Who calls and under which authority; for a running tool, also its execution.

    Hosts and authenticators build it with the first group of fields. The engine fills in the others. A request can
    never set any of it. What the application shares belongs in `State`, not in here.

    Attributes:
        principal: The authenticated caller.
        session: The caller's session.
        permissions: Strings granted by the host, such as ``confirm:delete_customer`` or ``tool:search``.
        metadata: Host-defined values. A read-only copy, all the way down; it compares and serialises like the original.
        transport: How the call arrived.
        thread_id: From the caller's run, when given (`RunContext`); so are the next four, and `services`.
        run_id: The caller's run.
        node_path: Where in the run.
        attempt: Which attempt of the node.
        caller_id: Which agent or node calls.
        call_id: The model's own id of the call. A running tool finds the execution's id here when there is none.
        services: Objects of the caller's run, in a read-only mapping.
        execution_id: This execution.
        request_id: The caller's idempotency identity.
        cancellation: Whether the execution has been asked to stop.
        progress: The channel to a listening caller.
        deadline: The absolute time, on `clock`, at which the execution times out.
        clock: The engine's clock; callable in any thread.
    """

    principal: str | None = None
    session: str | None = None
    permissions: Set[str] = frozenset()  # any set is taken; what is kept is a `frozenset`
    metadata: Mapping[str, Any] = NOTHING
    transport: str = "in_process"
    thread_id: str | None = None
    run_id: str | None = None
    node_path: str | None = None
    attempt: int | None = None
    caller_id: str | None = None
    call_id: str | None = None
    services: Mapping[Any, Any] = NOTHING
    execution_id: str = ""
    request_id: str | None = None
    cancellation: Cancellation = msgspec.field(default_factory=Cancellation)
    progress: Progress = SILENT
    deadline: float = float("inf")
    clock: Callable[[], float] = trio.current_time

    def __post_init__(self) -> None:
        # What stores, records and policies rely on. Hosts have numbers for their users, and would find out much later.
        if not _is_name(self.principal) or not _is_name(self.session):
            raise TypeError("principal and session must be strings, or None")
        permissions: Iterable[str] = self.permissions
        if isinstance(permissions, str):
            raise TypeError("permissions must be a set of strings, not one string")
        if type(permissions) is not frozenset:
            msgspec.structs.force_setattr(self, "permissions", frozenset(permissions))
        # Once, where the host makes it: a call only looks at the type.
        if type(self.metadata) is not FrozenDict:
            metadata = freeze(self.metadata)
            if type(metadata) is not FrozenDict:
                raise TypeError(f"metadata must be a mapping, not a {type(self.metadata).__name__}")
            msgspec.structs.force_setattr(self, "metadata", metadata)
        if type(self.services) is not FrozenDict:
            msgspec.structs.force_setattr(self, "services", FrozenDict(self.services))

    def within(self, run: RunContext) -> AgentContext:
        """The same caller, in a run: its ids and services take the place of others, its metadata is added."""
        return msgspec.structs.replace(
            self,
            thread_id=run.thread_id,
            run_id=run.run_id,
            node_path=run.node_path,
            attempt=run.attempt,
            caller_id=run.caller_id,
            services=run.services,
            metadata={**self.metadata, **run.metadata} if run.metadata else self.metadata,
        )

    def remaining(self) -> float:
        """Seconds until the deadline, never negative; infinite without one. Safe in a tool's worker thread."""
        return max(0.0, self.deadline - self.clock()) if self.deadline != float("inf") else self.deadline

    def allows(self, permission: str) -> bool:
        """True when the host granted this permission."""
        return permission in self.permissions
