"""One request of a client, while it is handled."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import msgspec
import trio

from carmy_engine import AgentContext, BoundEngine, Cause
from carmy_engine.abc import Watch
from carmy_engine.transport import LazyDeadlineScope

from ..protocol.messages import Id, Request
from ..protocol.params import Client

Owner: TypeAlias = tuple[str | None, str | None]
"""Principal and session of a caller: the owner of a thing that outlives its request."""


def owner_of(context: AgentContext) -> Owner:
    """Return the owner of what a caller leaves behind."""
    return context.principal, context.session


NEVER = trio.Event()
"""An event that is never set."""


class SessionState:
    """What a client has set for its session.

    Attributes:
        log_level: The least severe level of log messages that it takes.
        watch: The changes that it is notified of.
    """

    def __init__(self, watch: Watch) -> None:
        self.log_level: str | None = "info"
        self.watch = watch


class Peer(Protocol):
    """The way back to the client of one request, besides its answer.

    Attributes:
        input_closed: Set at the client's end of input: no answer to a question can arrive.
    """

    input_closed: trio.Event

    @property
    def can_ask(self) -> bool:
        """True if the client answers requests of the server."""
        ...

    @property
    def session(self) -> SessionState | None:
        """The session of the request; None where each request stands alone."""
        ...

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification. Waits while the client does not read."""
        ...

    def notify_soon(self, method: str, params: Any) -> None:
        """Send a notification without waiting. The caller bounds their number."""
        ...

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """Send a request, and return the result. If cancelled, the request is withdrawn.

        Raises:
            JsonRpcError: The client answered with an error, or cannot answer.
        """
        ...

    async def wait_for_room(self) -> None:
        """Wait while the client does not take what is there already. Results are large."""
        ...


class Exchange:
    """One request, from its acceptance until it is answered or given up.

    Args:
        request: The request.
        client: The client.
        caller: The engine for its caller.
        peer: The way back to the client.

    Attributes:
        executor: An executor for this request alone, so that its execution can be found.
        block: The scope of the execution.
        message: The last report of the tool, for the state of a task.
        outlives: The execution continues after the answer: it is a task.
        left: The cause when `block` or a scope around it is cancelled.
        lacks: The permission that the caller would have needed, if the call was refused for that.
        is_unanswered: The client has cancelled it, or ended its session: nothing more is sent for it.
    """

    __slots__ = (
        "block",
        "client",
        "executor",
        "is_unanswered",
        "lacks",
        "left",
        "message",
        "outlives",
        "peer",
        "request",
    )

    def __init__(self, request: Request, client: Client, caller: BoundEngine, peer: Peer) -> None:
        self.request = request
        self.client = client
        self.executor = caller.bind(gone=self.why_left)
        self.peer = peer
        self.block = LazyDeadlineScope()
        self.message: str | None = None
        self.outlives = False
        self.lacks: str | None = None
        self.left = Cause.DISCONNECT
        self.is_unanswered = False

    @property
    def id(self) -> Id:
        """The id of the request."""
        return self.request.id

    def why_left(self) -> Cause:
        """See `left`."""
        return self.left

    def take_back(self) -> None:
        """Cancel it for its client, which wants no answer. A task continues."""
        if not self.outlives:
            self.is_unanswered = True
            self.left = Cause.CALLER
            self.block.scope.cancel()

    def leave(self) -> None:
        """Cancel it because its client has gone. A task continues."""
        self.is_unanswered = True
        if not self.outlives:
            self.end(Cause.DISCONNECT)

    def end(self, cause: Cause) -> None:
        """End the execution, also that of a task."""
        executor = self.executor
        if not any(executor.cancel(id_, cause) for id_ in executor.running()):
            self.block.scope.cancel()  # the engine has not admitted it: nothing has run, and nothing will
