"""One task that serves all connections on which nothing has begun: a request that waits for nothing costs no switch of tasks.

It leads as long as nobody makes it wait. When a call does, another task takes the lead, and this one stays with the call until its
end. So a task is begun only for each call that takes longer, and such a call is cancelled like any other task.

What it leads is a round: all the connections that are ready are served, and then all their answers are sent. A round ends early with
a call that has to wait, or when it has taken long; the next one goes on with the rest, so that nobody is served twice before them.
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
"""Connections that are served before other tasks have their turn."""

MAX_ROUND_SECONDS = 0.01
"""After which a round ends, whoever is still to be served. Exceeded by one call at most."""

MAX_HELD_BYTES = 16 * 1024
"""Of an answer that waits for the end of its round. Larger ones leave at once."""


class Parked(Protocol):
    """A connection that is served here."""

    def ready(self) -> Coroutine[Any, Any, None] | None:
        """Something has come, or the end. Returns what is to be done."""
        ...

    def fail(self) -> None:
        """End the connection: `ready`, or what it returned, has raised, which has been logged. Must not raise."""
        ...

    def waits(self, scope: trio.CancelScope) -> None:
        """What is to be done has to wait; cancel the scope to stop it."""
        ...

    def send_held(self, data: bytes) -> None:
        """Send what was given to `Pump.hold`. Must not raise."""
        ...


class Waiting(NamedTuple):
    """A call that has to wait: its connection, what is left of it, its context variables, and what it told trio."""

    parked: Parked
    call: Coroutine[Any, Any, None]
    context: contextvars.Context
    trap: Any


class Pump:
    """Serves the parked connections. Wherever there is no epoll there is none.

    Args:
        log: For connections that fail.
    """

    def __init__(self, log: RateLimitedLogger) -> None:
        self._log = log
        self._poll = select.epoll()
        self._parked: dict[int, Parked] = {}
        self._nursery: trio.Nursery | None = None
        self._ready: deque[tuple[int, int]] = deque()
        """Not served yet. Whoever has gone since, or come instead, has nothing to say when asked."""
        self._held: list[tuple[Parked, bytes]] = []

    def park(self, descriptor: int, parked: Parked) -> None:
        """Serve it from now on; nothing if that is done already.

        Raises:
            OSError: The kernel watches as many descriptors as it may.
        """
        if descriptor not in self._parked:
            self._poll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
            self._parked[descriptor] = parked

    def release(self, descriptor: int) -> None:
        """Look at it no longer; nothing if nobody does."""
        if self._parked.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def hold(self, parked: Parked, data: bytes) -> bool:
        """Have an answer sent at the end of the round, before any task runs again. False, and nothing is done, if it is too long.

        To be called by a call that has not waited. A client that sleeps is woken by what is sent to it, which costs us as much
        as the rest of sending. One program that holds many connections, as proxies and gateways do, is woken once for all the
        answers of a round.
        """
        if len(data) > MAX_HELD_BYTES:
            return False
        self._held.append((parked, data))
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve, until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._lead)
                task_status.started()
        finally:
            self._parked.clear()  # connections that end together with this one have nothing to release
            self._poll.close()

    async def _lead(self) -> None:
        assert self._nursery is not None
        with trio.CancelScope() as scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            while (waiting := self._serve_round(scope)) is None:
                await trio.lowlevel.wait_readable(self._poll)
            self._nursery.start_soon(self._lead)  # which goes on with the rest
            try:
                await _go_on(waiting)
            except BaseException as error:  # noqa: BLE001 - the boundary round a connection: others have the same nursery
                contain(error, self._log, "a connection failed")
                waiting.parked.fail()

    def _serve_round(self, scope: trio.CancelScope) -> Waiting | None:
        """Serve those that are ready, up to the first call that has to wait."""
        end = time.perf_counter() + MAX_ROUND_SECONDS
        try:
            if not self._ready:
                self._ready.extend(self._poll.poll(0, MAX_AT_ONCE))
            while self._ready:
                parked = self._parked.get(self._ready.popleft()[0])
                if parked is not None and (waiting := _begin(parked, self._log)) is not None:
                    parked.waits(scope)
                    return waiting
                if time.perf_counter() >= end:
                    break
            return None
        finally:
            for parked, data in self._held:
                parked.send_held(data)
            self._held.clear()


def _begin(parked: Parked, log: RateLimitedLogger) -> Waiting | None:
    """Serve a connection up to where its call waits; None if there is no call, or it does not wait."""
    try:
        call = parked.ready()
        if call is None:
            return None
        context = contextvars.copy_context()  # what one call sets there is none of another's business
        return Waiting(parked, call, context, context.run(call.send, None))
    except StopIteration:
        return None
    except BaseException as error:  # noqa: BLE001 - the boundary round a connection: the leader serves all the others
        contain(error, log, "a connection failed")
        parked.fail()
        return None


@types.coroutine
def _go_on(waiting: Waiting) -> Generator[Any, Any, None]:
    """Run the rest of a call."""
    _, call, context, trap = waiting
    try:
        while True:
            message = yield trap
            trap = context.run(call.send, message)
    except StopIteration:
        return
    finally:
        call.close()
