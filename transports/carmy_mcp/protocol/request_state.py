"""The state of one request that the SDK does not carry."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import trio
from mcp.server.context import ServerRequestContext

from carmy_engine import AgentContext, BoundEngine, Cause, ExecutionRequest
from carmy_engine.codec import invalid_request

REQUEST_ID = "carmy/request_id"
"""In a call's ``_meta``: the idempotency identity."""

TIMEOUT_MS = "carmy/timeout_ms"
"""In a call's ``_meta``: most milliseconds to take."""

ON_RUNNING = "carmy/on_running"
"""In a call's ``_meta``: ``wait`` to wait for a running attempt with the same request_id."""

EXECUTION_META = "carmy/execution_meta"
"""In a call's ``_meta``: true asks for the execution's id and status on success as well."""


_NEVER = trio.Event()

Context: TypeAlias = ServerRequestContext[Any, Any]
"""The SDK's context of a request."""

Owner: TypeAlias = tuple[str | None, str | None]
"""Principal and session of a caller: whose a thing is that outlives its request."""


def owner_of(context: AgentContext) -> Owner:
    """Return the owner of what a caller leaves behind."""
    return context.principal, context.session


class Exchange:
    """One request, from its acceptance until it is answered or given up.

    Attributes:
        arguments: Of a call, as they were sent; None when there were none.
        input_closed: Set at the client's end of input: no answer to a question can arrive.
        scope: Round its execution, for `stop` and `take_back`: mostly a caller that cancels its request makes the SDK cancel its
            handler.
        executor: An executor for this request alone, so that its execution can be found; None before it is bound.
        message: What the tool reported last, if anybody may come to ask.
        outlives: Its execution goes on when it has been answered: it is a task by then.
        left: What it means when the task that handles it is cancelled.
        is_unanswered: Its client has cancelled it, or ended its session: nothing more is sent for it.
        on_arrival: Called when its handler begins.
        version: Of the protocol, if that has been agreed upon in it.
        wait_for_room: Waits while the peer does not take what is there already.
        wait_report: Waits until the last report is out. The next one has to follow.
    """

    __slots__ = (
        "arguments",
        "executor",
        "input_closed",
        "is_unanswered",
        "left",
        "message",
        "on_arrival",
        "outlives",
        "scope",
        "version",
        "wait_for_room",
        "wait_report",
    )

    def __init__(self, arguments: msgspec.Raw | None = None) -> None:
        self.arguments = arguments
        self.input_closed = _NEVER
        self.scope = trio.CancelScope()
        self.executor: BoundEngine | None = None
        self.message: str | None = None
        self.outlives = False
        self.left = Cause.CALLER
        self.is_unanswered = False
        self.on_arrival: Callable[[], object] = bool
        self.version: str | None = None
        self.wait_for_room: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint_if_cancelled
        self.wait_report: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def stop(self, cause: Cause) -> None:
        """End its execution for another reason than the caller's will, so that it is answered, if anybody still listens.

        One that outlives it goes on.
        """
        if not self.outlives:
            self.end(cause)

    def take_back(self) -> None:
        """Cancel it for its caller, where the SDK has no part in it."""
        self.is_unanswered = True
        self.left = Cause.CALLER
        self.scope.cancel()

    def why_left(self) -> Cause:
        """See `left`."""
        return self.left

    def end(self, cause: Cause) -> None:
        """End its execution, also if it has become a task."""
        executor = self.executor
        ids = () if executor is None else executor.running()  # one, as soon as the engine has admitted it
        if executor is None or not any(executor.cancel(id_, cause) for id_ in ids):
            self.scope.cancel()  # the engine has not admitted it yet: nothing has run, and nothing will


def request_of(tool: str, exchange: Exchange, meta: Mapping[str, Any]) -> ExecutionRequest:
    """The request in a call.

    Raises:
        AgentError: ``INVALID_REQUEST``: something of ours in ``_meta`` is not what it must be.
    """
    request_id, timeout_ms = meta.get(REQUEST_ID), meta.get(TIMEOUT_MS)
    if request_id is not None and not isinstance(request_id, str):
        raise invalid_request(f'_meta["{REQUEST_ID}"] must be a string')
    if timeout_ms is not None and (
        isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < math.inf
    ):
        raise invalid_request(f'_meta["{TIMEOUT_MS}"] must be a positive number of milliseconds')
    if not isinstance(meta.get(EXECUTION_META, False), bool):
        raise invalid_request(f'_meta["{EXECUTION_META}"] must be true or false')
    on_running = meta.get(ON_RUNNING, "refuse")
    if on_running not in ("refuse", "wait"):
        raise invalid_request(f'_meta["{ON_RUNNING}"] must be "refuse" or "wait"')
    return ExecutionRequest(
        tool=tool,
        arguments=exchange.arguments,
        request_id=request_id,
        timeout_ms=timeout_ms,
        on_running=on_running,
    )
