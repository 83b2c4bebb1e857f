"""One task that serves all connections on which nothing has begun: a request that waits for nothing costs no switch of tasks.

It leads as long as nobody makes it wait. When a call does, another task takes the lead, and this one stays with the call until its
end. So a task is begun only for each call that takes longer, and such a call is cancelled like any other task.

What it leads is a round: all the connections that are ready are served, and then all their answers are sent.
"""

from __future__ import annotations

import contextvars
import select
import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple, Protocol

import trio

MAX_AT_ONCE = 64
"""Connections that are served before other tasks have their turn."""

MAX_HELD_BYTES = 16 * 1024
"""Of an answer that waits for the end of its round. Larger ones leave at once."""


class Parked(Protocol):
    """A connection that is served here."""

    def ready(self) -> Coroutine[Any, Any, None] | None:
        """Something has come, or the end. Returns what is to be done, which raises nothing but cancellation and the like."""
        ...

    def waits(self, scope: trio.CancelScope) -> None:
        """What is to be done has to wait; cancel the scope to stop it."""
        ...

    def send_held(self, data: bytes) -> None:
        """Send what was given to `Pump.hold`. Must not raise."""
        ...


class Waiting(NamedTuple):
    """A call that has to wait: what is left of it, its context variables, and what it told trio."""

    call: Coroutine[Any, Any, None]
    context: contextvars.Context
    trap: Any


class Pump:
    """Serves the parked connections. Wherever there is no epoll there is none."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._parked: dict[int, Parked] = {}
        self._nursery: trio.Nursery | None = None
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

        To be called by a call that has not waited. A client that sleeps is woken by what is sent to it, which costs us as much as the rest of sending. One program that
        holds many connections, as proxies and gateways do, is woken once for all the answers of a round.
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
            while True:
                await trio.lowlevel.wait_readable(self._poll)
                waiting = self._serve_round(scope)
                if waiting is not None:
                    self._nursery.start_soon(self._lead)  # which finds the other ones that are ready
                    await _go_on(waiting)
                    return

    def _serve_round(self, scope: trio.CancelScope) -> Waiting | None:
        """Serve those that are ready, up to the first call that has to wait."""
        try:
            for descriptor, _ in self._poll.poll(0, MAX_AT_ONCE):
                parked = self._parked.get(descriptor)
                call = None if parked is None else parked.ready()
                if parked is None or call is None:
                    continue
                context = contextvars.copy_context()  # what one call sets there is none of another's business
                try:
                    trap = context.run(call.send, None)
                except StopIteration:
                    continue
                parked.waits(scope)
                return Waiting(call, context, trap)
            return None
        finally:
            for parked, data in self._held:
                parked.send_held(data)
            self._held.clear()


@types.coroutine
def _go_on(waiting: Waiting) -> Generator[Any, Any, None]:
    """Run the rest of a call."""
    call, context, trap = waiting
    try:
        while True:
            message = yield trap
            trap = context.run(call.send, message)
    except StopIteration:
        return
    finally:
        call.close()
