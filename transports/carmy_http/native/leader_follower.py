"""The leader/followers pattern (Schmidt et al., POSA 2): one task serves all idle connections, without a task switch per request.

The leader runs calls until one has to wait. It then promotes a follower, a new task, to leader, and stays with that call until its
end. So only a call that waits costs a task, and is cancelled like any other task.

The leader works in rounds: it serves all connections that are readable, and then sends all their answers. A round ends early with a
call that has to wait, or after `MAX_ROUND_SECONDS`. The next round continues with the rest, so no connection is served twice before
another one that was readable at the same time.
"""

from __future__ import annotations

import contextvars
import select
import time
import types
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple, Protocol

import trio

from carmy_engine.transport import RateLimitedLogger, contain

MAX_AT_ONCE = 64
"""Connections that are served before the scheduler runs other tasks."""

MAX_ROUND_SECONDS = 0.01
"""After which a round ends, with connections left for the next one. Exceeded by one call at most."""

MAX_DEFERRED_BYTES = 16 * 1024
"""Of an answer whose sending is deferred to the end of its round. Larger ones are sent at once."""


class IdleConnection(Protocol):
    """A connection that waits for a request, as the dispatcher sees it."""

    def on_readable(self) -> Coroutine[Any, Any, None] | None:
        """Read. Returns the call to run, if a complete request has arrived."""
        ...

    def on_failure(self) -> None:
        """End the connection: `on_readable`, or its call, raised an exception, which has been logged. Must not raise."""
        ...

    def on_blocked(self, scope: trio.CancelScope) -> None:
        """Store the scope that cancels the call, which has to wait."""
        ...

    def send_deferred(self, data: bytes) -> None:
        """Send an answer that `Dispatcher.defer_send` took. Must not raise."""
        ...


class BlockedCall(NamedTuple):
    """A call that has to wait.

    Attributes:
        connection: Its connection.
        call: The suspended coroutine.
        context: Its context variables.
        trap: The value that it yielded to trio.
    """

    connection: IdleConnection
    call: Coroutine[Any, Any, None]
    context: contextvars.Context
    trap: Any


class Dispatcher:
    """Serves the idle connections. Needs epoll, so it exists on Linux only.

    Args:
        log: For connections that fail.
        max_round_seconds: After which a round ends.
    """

    def __init__(self, log: RateLimitedLogger, max_round_seconds: float = MAX_ROUND_SECONDS) -> None:
        self._max_round_seconds = max_round_seconds
        self._log = log
        self._poll = select.epoll()
        self._connections: dict[int, IdleConnection] = {}
        self._nursery: trio.Nursery | None = None
        self._ready: deque[tuple[int, int]] = deque()
        """Readable and not served yet. A descriptor may have been closed or reused since; reading then finds nothing."""
        self._deferred: list[tuple[IdleConnection, bytes]] = []

    def add(self, descriptor: int, connection: IdleConnection) -> None:
        """Serve a connection from now on. Has no effect if it is served already.

        Raises:
            OSError: The kernel watches as many descriptors as it may.
        """
        if descriptor not in self._connections:
            self._poll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
            self._connections[descriptor] = connection

    def remove(self, descriptor: int) -> None:
        """Stop serving a connection. Has no effect if it is not served."""
        if self._connections.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def defer_send(self, connection: IdleConnection, data: bytes) -> bool:
        """Send an answer at the end of the round, before any other task runs. Returns False, without effect, if it is too long.

        Only a call that has not waited may use it. Sending wakes a sleeping client, which costs this process as much as the rest
        of sending. A program that holds many connections, such as a proxy, is woken once for all the answers of a round.
        """
        if len(data) > MAX_DEFERRED_BYTES:
            return False
        self._deferred.append((connection, data))
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._lead)
                task_status.started()
        finally:
            self._connections.clear()  # `remove` has no effect for connections that end together with the dispatcher
            self._poll.close()

    async def _lead(self) -> None:
        assert self._nursery is not None
        with trio.CancelScope() as scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            while (blocked := self._serve_round(scope)) is None:
                await trio.lowlevel.wait_readable(self._poll)
            self._nursery.start_soon(self._lead)  # the new leader continues with the rest
            try:
                await _resume(blocked)
            except BaseException as error:  # noqa: BLE001 - the boundary of one connection: others have the same nursery
                contain(error, self._log, "a connection failed")
                blocked.connection.on_failure()

    def _serve_round(self, scope: trio.CancelScope) -> BlockedCall | None:
        """Serve the readable connections, up to the first call that has to wait."""
        end = time.perf_counter() + self._max_round_seconds
        try:
            if not self._ready:
                self._ready.extend(self._poll.poll(0, MAX_AT_ONCE))
            while self._ready:
                connection = self._connections.get(self._ready.popleft()[0])
                if connection is not None and (blocked := _begin(connection, self._log)) is not None:
                    connection.on_blocked(scope)
                    return blocked
                if time.perf_counter() >= end:
                    break
            return None
        finally:
            for connection, data in self._deferred:
                connection.send_deferred(data)
            self._deferred.clear()


def _begin(connection: IdleConnection, log: RateLimitedLogger) -> BlockedCall | None:
    """Serve a connection up to the point where its call waits; None if there is no call, or it does not wait."""
    try:
        call = connection.on_readable()
        if call is None:
            return None
        context = contextvars.copy_context()  # context variables of one call must not leak into another
        return BlockedCall(connection, call, context, context.run(call.send, None))
    except StopIteration:
        return None
    except BaseException as error:  # noqa: BLE001 - the boundary of one connection: the leader serves all the others
        contain(error, log, "a connection failed")
        connection.on_failure()
        return None


@types.coroutine
def _resume(blocked: BlockedCall) -> Generator[Any, Any, None]:
    """Run the rest of a call."""
    _, call, context, trap = blocked
    try:
        while True:
            message = yield trap
            trap = context.run(call.send, message)
    except StopIteration:
        return
    finally:
        call.close()
