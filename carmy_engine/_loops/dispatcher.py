"""Calls of other threads, run by tasks of a trio run.

The leader/followers pattern: one task, the leader, runs the calls of the queue in rounds until one has to wait. It then stays with that
call; if another call comes meanwhile, another task leads. So calls that come one by one cost no task, and the calls of a round cost one
wake-up of trio and one of the other thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from .._model.error_boundary import is_cancel
from .._model.errors import ClosedError
from .wake_up import WakeUp

MAX_ROUND_SECONDS = 0.01
"""After which a round ends, with calls left for the next one. Exceeded by one call at most."""

MAX_PARKED = 64
"""Tasks that wait to lead again; each takes a few kilobytes."""


class RunSoon(Protocol):
    """Calls a function in the trio thread, unless that has ended."""

    def __call__(self, function: Callable[..., object], /, *args: Any) -> None:
        """See `TrioThread.run_soon`."""
        ...


class Delivery(Protocol):
    """News for the host."""

    def resolve(self) -> None:
        """Wake the caller. Called in the thread that `TrioThread.deliver` decides on; must not raise."""
        ...


class Call:
    """One call for the trio thread.

    Attributes:
        value: Its return value.
        error: Its exception; None if it returned.
        is_left: Its caller takes no answer. Set in the thread of the host.
        scope: Cancels it; None until it has to wait.
    """

    __slots__ = ("args", "context", "error", "function", "is_left", "scope", "value")

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.context = contextvars.copy_context()
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_left = False
        self.scope: trio.CancelScope | None = None

    def begin(self) -> tuple[Coroutine[Any, Any, Any], Any]:
        """Run it up to its first wait; return the coroutine and what it waits for."""
        coro = self.function(*self.args)
        return coro, coro.send(None)

    def result(self) -> Any:
        """The return value.

        Raises:
            BaseException: What the call raised.
        """
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            self.error = None  # its traceback refers to this frame

    def resolve(self) -> None:
        """Wake the caller. Must not raise."""
        raise NotImplementedError


class BlockedCall(NamedTuple):
    """A call that has to wait: its suspended coroutine, and the value that it yielded to trio."""

    call: Call
    coro: Coroutine[Any, Any, Any]
    trap: Any


class Dispatcher:
    """Runs calls of other threads in tasks of a trio run.

    Args:
        what: The noun for the subject of the calls in messages, such as ``the engine 'shop'``.
        deliver: Called in the trio thread with calls that have ended; resolves them.
    """

    def __init__(self, what: str, deliver: Callable[[Sequence[Delivery]], None]) -> None:
        self.what = what
        self._deliver = deliver
        self._queue: deque[Call] = deque()
        self._finished: list[Call] = []
        self._parked: list[trio.lowlevel.Task] = []
        """Followers that have ended a call and can lead again: a new task costs five times as much as waking one."""
        self._closed: str | None = None
        """Why it takes no more calls."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery
        self._wake_up = WakeUp(self._lead_if_needed)

    # --- in any thread

    def submit(self, call: Call) -> None:
        """Queue a call. It begins after `wake`.

        Raises:
            ClosedError: The dispatcher has ended.
        """
        self._queue.append(call)
        if self._closed is not None:  # checked last: `end` has set it before it empties the queue
            with contextlib.suppress(ValueError):
                self._queue.remove(call)
                raise ClosedError(self._closed)

    def wake(self) -> None:
        """Make the thread run the queued calls."""
        self._wake_up.send()

    def leave(self, call: Call) -> None:
        """Cancel a call. Its end is still delivered."""
        call.is_left = True
        self.run_soon(_cancel, call)

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the trio thread, unless that has ended."""
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function, *args)

    def refuse(self, why: str) -> None:
        """Refuse calls from now on."""
        self._closed = why

    # --- in the trio thread

    def start(self, nursery: trio.Nursery) -> None:
        """Run calls until the nursery is cancelled; `end` follows."""
        self._token = trio.lowlevel.current_trio_token()
        self._nursery = nursery
        self._wake_up.start()
        nursery.start_soon(self._lead)

    def end(self) -> None:
        """Refuse the calls that have not begun, and later ones."""
        self._closed = f"{self.what} was used after its block had ended"
        self._wake_up.close()
        ended: list[Call] = []
        with contextlib.suppress(IndexError):
            while True:
                call = self._queue.popleft()
                call.error = ClosedError(self._closed)
                ended.append(call)
        if ended:
            self._deliver(ended)

    async def _lead(self) -> None:
        while True:
            await self._lead_once()
            if self._wake_up.is_attended:  # by another leader
                if len(self._parked) >= MAX_PARKED:
                    return
                await self._park()
            else:
                self._wake_up.attend()

    async def _lead_once(self) -> None:
        """Run calls up to the first that has to wait, and then that one to its end."""
        with trio.CancelScope() as scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            while (blocked := self._run_round(scope)) is None:
                await self._wake_up.wait(self._queue.__len__)
            self._wake_up.leave()
            self._lead_if_needed()
            call = blocked.call
            try:
                call.value = await _resume(call.context, blocked)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the host
                call.error = error
                if is_cancel(error) and not call.is_left:
                    call.error = ClosedError(f"{self.what} was closed while a call ran")
            finally:
                self._deliver([call])

    def _lead_if_needed(self) -> None:
        """Let a task lead if there are calls and none does."""
        if self._wake_up.is_attended or not self._queue:
            return
        if self._parked:
            trio.lowlevel.reschedule(self._parked.pop())
        else:
            try:
                self._nursery.start_soon(self._lead)
            except RuntimeError:  # the nursery is closed, and `end` answers the calls
                return
        self._wake_up.attend()

    async def _park(self) -> None:
        """Wait to become the leader."""
        task = trio.lowlevel.current_task()

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._parked.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._parked.append(task)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _run_round(self, scope: trio.CancelScope) -> BlockedCall | None:
        """Run the queued calls, up to the first that has to wait."""
        end = time.perf_counter() + MAX_ROUND_SECONDS
        queue = self._queue
        try:
            while queue:
                call = queue.popleft()
                if (blocked := self._begin(call, scope)) is not None:
                    return blocked
                if time.perf_counter() >= end:
                    break
            return None
        finally:
            if self._finished:
                finished, self._finished = self._finished, []
                self._deliver(finished)

    def _begin(self, call: Call, scope: trio.CancelScope) -> BlockedCall | None:
        if not call.is_left:
            try:
                coro, trap = call.context.run(call.begin)
            except StopIteration as stop:
                call.value = stop.value
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the host
                call.error = error
            else:
                call.scope = scope
                return BlockedCall(call, coro, trap)
        self._finished.append(call)
        return None


@types.coroutine
def _resume(context: contextvars.Context, blocked: BlockedCall) -> Generator[Any, Any, Any]:
    """Run the rest of a call in its context."""
    _, coro, trap = blocked
    try:
        while True:
            message = yield trap
            trap = context.run(coro.send, message)
    except StopIteration as stop:
        return stop.value
    finally:
        coro.close()


def _cancel(call: Call) -> None:
    if call.scope is not None:
        call.scope.cancel()
