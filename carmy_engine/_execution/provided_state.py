"""Provided state: entered in order of need, left in reverse."""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from .._model.error_boundary import (
    Fault,
    await_foreign,
    flatten_exceptions,
    is_ctrl_c,
    log_fault,
    raise_own,
    raise_single,
    text_of,
)
from .._model.errors import AgentError, StartupError
from .._model.provision import Provision, is_async_manager, is_manager, type_name
from .grace import GRACE_SECONDS

if TYPE_CHECKING:
    from .._loops.asyncio_loop import AsyncioLoop

T = TypeVar("T")


class _ThreadEntry:
    """A plain factory and the entry of its context manager, in a worker thread.

    A cancel abandons the thread, which then leaves by itself what it enters later.
    """

    def __init__(self, make: Callable[[], Any], provision: Provision) -> None:
        self._make = make
        self._provision = provision
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._made: tuple[Any, Any] | None = None
        self.manager: Any = None

    async def run(self, limiter: trio.CapacityLimiter | None) -> Any:
        """Return the value, and set `manager` if one was entered for it."""
        try:
            value, self.manager = await _run_in_worker(self._enter, limiter)
        except trio.Cancelled:
            with self._lock:
                self._is_abandoned = True
                if self._made is None:
                    raise
            value, self.manager = self._made
        return value

    def _enter(self) -> tuple[Any, Any]:
        made = self._make()
        enters = self._provision.enters and is_manager(made) and not is_async_manager(made)
        manager = made if enters else None
        entered = (made if manager is None else manager.__enter__(), manager)
        with self._lock:
            if not self._is_abandoned:
                self._made = entered
                return entered
        if manager is not None:
            error = trio.TooSlowError("the call that needs this state has ended")
            manager.__exit__(type(error), error, None)
        return entered


class InTrio(Protocol):
    """Runs a function of trio, for the task that state is entered in."""

    def __call__(self, function: Callable[..., Coroutine[Any, Any, T]], /, *args: Any) -> Awaitable[T]:
        """Run it and return its value."""
        ...


async def _in_this_task(function: Callable[..., Coroutine[Any, Any, T]], /, *args: Any) -> T:
    return await function(*args)


async def enter(
    provision: Provision,
    arguments: Mapping[str, Any],
    stack: contextlib.AsyncExitStack,
    limiter: trio.CapacityLimiter | None = None,
    in_trio: InTrio = _in_this_task,
) -> Any:
    """Make the value of a provision. Exceptions of the factory pass unchanged.

    Args:
        provision: The provision.
        arguments: Of its factory.
        stack: Leaves the value, if it is a context manager.
        limiter: Of the worker threads for plain factories and the two ends of plain context managers; None for trio's.
        in_trio: Runs what needs trio, if the current task is one of asyncio.
    """
    make = partial(provision.factory, **arguments)
    if not provision.is_async:
        made, is_entered = await _enter_in_worker(_ThreadEntry(make, provision), stack, limiter, in_trio)
        if is_entered:
            return made
    else:
        made = make()
    if inspect.iscoroutine(made):
        made = await made
    if provision.enters and is_async_manager(made):
        return await stack.enter_async_context(made)
    if provision.enters and is_manager(made):
        made, _ = await _enter_in_worker(_ThreadEntry(partial(_give, made), provision), stack, limiter, in_trio)
        return made
    return await made if inspect.isawaitable(made) else made


async def _enter_in_worker(
    entry: _ThreadEntry, stack: contextlib.AsyncExitStack, limiter: trio.CapacityLimiter | None, in_trio: InTrio
) -> tuple[Any, bool]:
    """The value of an entry, and whether it was entered as a context manager, which the stack then leaves."""

    async def leave(*error: Any) -> bool | None:
        if entry.manager is None:
            return None
        return await in_trio(_run_in_worker, partial(entry.manager.__exit__, *error), limiter)

    # First: a task of asyncio that is cancelled meanwhile does not receive what was entered.
    stack.push_async_exit(leave)
    value = await in_trio(entry.run, limiter)
    return value, entry.manager is not None


async def _run_in_worker(function: Callable[[], T], limiter: trio.CapacityLimiter | None) -> T:
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)


def _give(value: T) -> T:
    return value


def enter_in_thread(provision: Provision, arguments: Mapping[str, Any], stack: contextlib.ExitStack) -> Any:
    """`enter` for a plain factory, in the worker thread of the tool.

    Raises:
        TypeError: The factory returns something that only an event loop can enter.
    """
    made: Any = provision.factory(**arguments)
    if inspect.isawaitable(made) or (provision.enters and is_async_manager(made)):
        if inspect.iscoroutine(made):
            made.close()
        raise TypeError(
            f"{provision.place} returns a {type_name(type(made))}, which is async: declare it with 'async def', or annotate it so"
        )
    return stack.enter_context(made) if provision.enters and is_manager(made) else made


class _Holder:
    """A provision of the application in a task of its own, which the scopes and nurseries of the value belong to.

    Attributes:
        scope: Cancel it to cut the leaving off.
        leave: Set to leave the value.
        left: Set once it is left.
    """

    def __init__(self, provision: Provision, loop: AsyncioLoop | None) -> None:
        self.provision = provision
        self._loop = loop if provision.is_async else None
        self.scope = trio.CancelScope()
        self.leave = trio.Event()
        self.left = trio.Event()

    async def run(self, arguments: Mapping[str, Any], *, task_status: trio.TaskStatus[Any]) -> None:
        """Enter, report the value, and leave after `leave`. Failures after the start are logged."""
        is_held = False
        try:
            with self.scope:

                def entered(value: Any) -> None:
                    nonlocal is_held
                    is_held = self.scope.shield = True
                    task_status.started(value)

                await self._hold(arguments, entered)
        except BaseException as error:
            if not is_held:
                raise
            raise_own(error)
            log_fault(f"the state {type_name(self.provision.key)} from {self.provision.place}", error)
        finally:
            self.left.set()

    async def _hold(self, arguments: Mapping[str, Any], entered: Callable[[Any], None]) -> None:
        if self._loop is not None:
            opened = _opened(self.provision, arguments, self._loop.caller.run)
            await self._loop.hold(f"state {type_name(self.provision.key)}", opened, entered, self.leave)
            return
        async with contextlib.AsyncExitStack() as stack:
            entered(await await_foreign(enter(self.provision, arguments, stack)))
            await self.leave.wait()

    async def end(self, limit: float) -> None:
        """Leave the value within `limit` seconds, and within the grace after these."""
        self.leave.set()
        with trio.move_on_after(limit):
            await self.left.wait()
            return
        self.scope.cancel()
        log_fault(
            f"leaving the state {type_name(self.provision.key)} from {self.provision.place}",
            trio.TooSlowError(f"not left within {limit:g} s"),
        )
        with trio.move_on_after(GRACE_SECONDS):
            await self.left.wait()


@contextlib.asynccontextmanager
async def _opened(provision: Provision, arguments: Mapping[str, Any], in_trio: InTrio) -> AsyncIterator[Any]:
    """The value of a provision, for the length of a block in a task of asyncio."""
    async with contextlib.AsyncExitStack() as stack:
        yield await enter(provision, arguments, stack, in_trio=in_trio)


@contextlib.asynccontextmanager
async def open_state(
    provisions: Sequence[Provision],
    values: Mapping[Any, object],
    *,
    startup_timeout: float,
    shutdown_timeout: float,
    loop: AsyncioLoop | None = None,
) -> AsyncIterator[dict[Any, object]]:
    """Enter the state of an application, and yield all state by type. Leaving the block leaves it in reverse order.

    Args:
        provisions: Of the application, in order of need.
        values: State that is ready.
        startup_timeout: Seconds that each may take to be entered.
        shutdown_timeout: Seconds that each may take to be left.
        loop: Runs async factories; None for the trio run.

    Raises:
        StartupError: ``STATE_FAILED``; what had been entered is left.
    """
    state = dict(values)
    holders: list[_Holder] = []
    try:
        async with trio.open_nursery() as nursery:
            try:
                for provision in provisions:
                    holder = _Holder(provision, loop)
                    arguments = {name: state[key] for name, key in provision.needs.items()}
                    what = f"the state {type_name(provision.key)} from {provision.place}"
                    with failing_start(what, startup_timeout):
                        state[provision.key] = await nursery.start(partial(holder.run, arguments))
                    holders.append(holder)
                yield state
            finally:
                with trio.CancelScope(shield=True):
                    for holder in reversed(holders):
                        await holder.end(shutdown_timeout)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)


@contextlib.contextmanager
def failing_start(what: str, limit: float) -> Iterator[None]:
    """Limit a step of the start; turn its failure into `StartupError`.

    Args:
        what: The step, for the message.
        limit: Seconds.

    Raises:
        StartupError: ``STATE_FAILED``, with the reason; the traceback is logged.
    """
    scope = trio.CancelScope(relative_deadline=limit)
    try:
        with scope:
            yield
    except BaseException as error:
        if is_ctrl_c(error) or isinstance(error, trio.Cancelled | GeneratorExit):
            raise
        origin = error.origin if isinstance(error, Fault) else error
        log_fault(what, origin)
        leaf = next(flatten_exceptions(origin), origin)
        reason = leaf.message if isinstance(leaf, AgentError) else f"{type(leaf).__name__}: {text_of(leaf)}"
        raise StartupError([AgentError.standard("STATE_FAILED", f"{what} failed: {reason}")]) from None
    if scope.cancelled_caught:
        raise StartupError(
            [AgentError.standard("STATE_FAILED", f"{what} was not ready within {limit:g} s (startup_timeout_secs)")]
        )


async def run_hook(
    hook: Provision, state: Mapping[Any, object], limit: float = math.inf, loop: AsyncioLoop | None = None
) -> None:
    """Call a function of the application's start or end with the state that it needs; in `loop` if it is async.

    Raises:
        Fault: It failed, or took longer than `limit` seconds.
        AgentError: What it raised.
    """
    arguments = {name: state[key] for name, key in hook.needs.items()}
    with trio.move_on_after(limit) as scope:
        async with contextlib.AsyncExitStack() as stack:
            made = enter if loop is None or not hook.is_async else loop.adapt(hook.place, enter)
            await await_foreign(made(hook, arguments, stack))
    if scope.cancelled_caught:
        raise Fault(trio.TooSlowError(f"not finished within {limit:g} s"))
