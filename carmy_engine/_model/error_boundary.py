"""The error boundary around foreign code: tools, validators, serialisers, policies, authenticators, sinks, stores.

Foreign code may raise any exception. The boundary raises one of these:

- `AgentError`: a declared outcome.
- `Fault`: anything else, with the exception in ``origin``.
- ``trio.Cancelled``, alone or in groups: only if the scope around the boundary is cancelled.
- ``KeyboardInterrupt``: only if a Ctrl-C raised it. The innermost frame of its traceback is then one of trio's, whose
  signal handler raises it; a ``raise`` statement of a tool leaves a frame of the tool.
- ``GeneratorExit``: only if the engine's coroutine is being closed. It then arrives at a ``yield`` of the boundary, not from a call.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import secrets
import ssl
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, NoReturn, ParamSpec, TypeGuard, TypeVar, cast

import msgspec
import trio

from .error_info import MAX_DETAILS_BYTES, ErrorInfo
from .errors import AgentError
from .task_cancel import is_task_cancelled
from .text import bounded_text
from .traceback_log import Log, write_traceback
from .wrong_library import advice_for

log = logging.getLogger("carmy.engine")

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

_exceptions_of: Callable[[BaseExceptionGroup[BaseException]], tuple[BaseException, ...]]
_exceptions_of = BaseExceptionGroup.__dict__["exceptions"].__get__  # a subclass may have a property in its place
_traceback_of: Callable[[BaseException], types.TracebackType | None]
_traceback_of = BaseException.__dict__["__traceback__"].__get__


class Fault(Exception):  # noqa: N818 - wraps an error of foreign code
    """An undeclared exception of foreign code.

    Attributes:
        origin: The exception.
    """

    def __init__(self, origin: BaseException) -> None:
        super().__init__(type(origin).__name__)
        self.origin = origin


def _is_a(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """``isinstance`` by the real class: reading ``__class__`` may run code of the exception."""
    return issubclass(type(error), kind)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    pending, seen = [error], set[int]()
    while pending:
        each = pending.pop()
        if _is_a(each, BaseExceptionGroup):
            if id(each) not in seen:  # one group may be in others many times, and these in others again
                seen.add(id(each))
                pending.extend(reversed(_exceptions_of(each)))
        else:
            yield each


def flatten_exceptions(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside nested groups, without the cancelled ones (trio wraps every nursery's error in a group)."""
    return (leaf for leaf in _leaves(error) if not _is_a(leaf, trio.Cancelled))


def is_cancel(error: BaseException) -> bool:
    """True for ``trio.Cancelled``, and for a group of nothing else. It may belong to any scope."""
    return not any(True for _ in flatten_exceptions(error))


def is_ctrl_c(error: BaseException) -> bool:
    """True if trio's signal handler raised the exception, or one inside a group."""
    return any(_is_a(leaf, KeyboardInterrupt) and _is_raised_by_trio(leaf) for leaf in flatten_exceptions(error))


def _is_raised_by_trio(error: BaseException) -> bool:
    trace = _traceback_of(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("trio.")


def raise_own(error: BaseException) -> None:
    """Raise `error` again if a boundary must not catch it; return if it is a failure of the called code.

    Raised are: the cancel of a scope around the caller, a Ctrl-C delivered by trio, and the ``GeneratorExit`` of a
    discarded coroutine. Call it in the task and the block that `error` has reached.

    Args:
        error: Any exception; for a group its leaves count.

    Raises:
        BaseException: `error` itself.
    """
    if not _is_a(error, Exception) and any(map(_is_own, _leaves(error))):
        raise error


def contain(error: BaseException, log: Log, what: str, *args: object) -> None:
    """Log the failures in `error` once; raise the part of it that is not a failure. Other tasks continue.

    Args:
        error: Any exception.
        log: Receives a line and the traceback of the failures.
        what: The line, such as ``a connection failed``, as a format string.
        *args: Its arguments.

    Raises:
        BaseException: As `raise_own`, without the failures in the group.
    """
    if _is_a(error, Exception) or not any(map(_is_own, _leaves(error))):
        log_traceback(log, error, what, *args)
        return
    if _is_a(error, BaseExceptionGroup):
        own, failures = error.split(_is_own)
        if failures is not None:
            log_traceback(log, failures, what, *args)
            assert own is not None
            raise own from None
    raise error


def _is_own(error: BaseException) -> bool:
    """True for a leaf that is not a failure of the called code."""
    if _is_a(error, trio.Cancelled):
        return is_task_cancelled()
    if _is_a(error, KeyboardInterrupt):
        return _is_raised_by_trio(error)
    return _is_a(error, GeneratorExit) and not _is_in_task()


def _is_in_task() -> bool:
    """False when the loop has ended and the interpreter discards its coroutines."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def declared_error(error: BaseException) -> AgentError | None:
    """The `AgentError` raised by foreign code: `error` itself, or the first leaf of a group of nothing else."""
    leaves = list(flatten_exceptions(error))
    if leaves and all(_is_a(leaf, AgentError) and isinstance(vars(leaf).get("info"), ErrorInfo) for leaf in leaves):
        return cast(AgentError, leaves[0])
    return None


def raise_foreign(error: BaseException, *, awaits: bool = False) -> NoReturn:
    """Raise the exception that leaves the boundary for one of foreign code; see the module.

    Use it in the handler directly around a call, ``except BaseException as error: raise_foreign(error)``. For a coroutine
    use `await_foreign`, which recognises the ``GeneratorExit`` that closes the engine's own.

    Args:
        error: The exception.
        awaits: True if the code may wait in the scope of this task. If False, a ``Cancelled`` is a `Fault`.

    Raises:
        AgentError: A declared outcome.
        Fault: Anything else.
        trio.Cancelled: The scope of this task is cancelled.
        KeyboardInterrupt: A Ctrl-C.
    """
    if _is_a(error, Fault) or is_ctrl_c(error) or (awaits and is_cancel(error) and is_task_cancelled()):
        raise error
    declared = declared_error(error)
    if declared is None:
        raise Fault(error) from error
    if declared is error:
        raise error
    raise_single(cast("BaseExceptionGroup[BaseException]", error), declared)


def call_foreign(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a foreign function; see `raise_foreign` for the exceptions."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - the boundary
        raise_foreign(error)


@types.coroutine
def await_foreign(awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await a foreign awaitable; see `raise_foreign` for the exceptions.

    Closing the engine's coroutine closes the foreign one; its exceptions are then logged, not raised.
    """
    is_coroutine = isinstance(awaitable, types.CoroutineType)
    coro = cast("Coroutine[Any, Any, T]", awaitable) if is_coroutine else _await(awaitable)
    is_closing = False
    try:
        trap = coro.send(None)
        while True:
            try:
                message = yield trap
            except GeneratorExit:
                is_closing = True
                close(coro)
                raise
            except BaseException as refusal:  # noqa: BLE001 - trio's answer to an unknown trap
                trap = coro.throw(refusal)
            else:
                trap = coro.send(message)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except BaseException as error:
        if is_closing:
            raise
        raise_foreign(error, awaits=True)


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def close(coro: Coroutine[Any, Any, Any]) -> None:
    """Close a foreign coroutine and log what it raises."""
    try:
        call_foreign(coro.close)
    except (AgentError, Fault) as error:
        log_fault("closing a coroutine", error)


async def ask_foreign(limit: float, function: Callable[..., Any], /, *args: Any) -> Any:
    """Call a foreign function, sync or async, and return its value; see `raise_foreign` for the exceptions.

    Args:
        limit: Seconds that an async function may take.
        function: The function; a sync one blocks the loop while it runs.
        *args: Its arguments.
    """
    answer = call_foreign(function, *args)
    return await await_within(limit, answer) if inspect.isawaitable(answer) else answer


async def await_within(limit: float, awaitable: Awaitable[T]) -> T:
    """`await_foreign` in its own scope, which repairs trio's scope tree if foreign code leaves scopes open.

    Args:
        limit: Seconds; after these, a `Fault` of `trio.TooSlowError` is raised.
        awaitable: The foreign awaitable.
    """
    try:
        with trio.CancelScope(relative_deadline=limit):
            return await await_foreign(awaitable)
    except RuntimeError as error:
        if isinstance(error.__context__, GeneratorExit):
            raise  # the engine's coroutine is being closed
        raise Fault(error) from None
    raise Fault(trio.TooSlowError(f"no answer within {limit:g} s"))


def text_of(error: BaseException) -> str:
    """The text of an exception, bounded; its class where ``__str__`` fails."""
    try:
        return bounded_text(call_foreign(str, error))
    except (AgentError, Fault):
        return f"<{type(error).__name__} without a text>"


def reason_of(error: Exception) -> str:
    """The reason of a failure, for a message: the system's text if an ``OSError`` is the cause, else the exception's."""
    cause: BaseException | None = error
    while cause is not None:
        for leaf in flatten_exceptions(cause):
            if isinstance(leaf, ssl.SSLError):
                return _reason_of_tls(leaf)  # its number is OpenSSL's, not an errno
            if isinstance(leaf, UnicodeError) and not isinstance(leaf, UnicodeDecodeError):
                return "the host is not a name that can be looked up"
            if isinstance(leaf, OSError) and leaf.errno is not None:
                # A negative number is an error of name resolution, not an errno.
                return os.strerror(leaf.errno) if leaf.errno > 0 else str(leaf.strerror)
        inner = cause.args[0] if cause.args else None  # one library stores its cause only there
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return str(error) or type(error).__name__


def _reason_of_tls(error: ssl.SSLError) -> str:
    """The text of OpenSSL, without the module and the source line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the certificate is not valid: {error.verify_message}"
    text = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$", "", error.strerror or str(error))
    return f"TLS: {text}"


def raise_single(group: BaseExceptionGroup[BaseException], single: BaseException | None = None) -> NoReturn:
    """Raise the only exception in a group, with its own context; raise the group if it holds several or none.

    Args:
        group: The exception of a nursery.
        single: The exception in the group to raise.
    """
    if single is None:
        found = list(flatten_exceptions(group))
        if len(found) != 1:
            raise group
        (single,) = found
    context = single.__context__
    try:
        raise single
    finally:
        single.__context__ = context  # restored: the group adds no information


def log_fault(what: str, error: BaseException | None) -> str:
    """Log a fault of foreign code with its traceback, and return the error id in the log.

    Args:
        what: The failed part, such as ``the tool search``.
        error: Its exception, or the `Fault` of it; None if it raised nothing.
    """
    error_id = secrets.token_hex(8)
    error = error.origin if error is not None and _is_a(error, Fault) else error
    advice = "" if error is None else "".join({_advice(leaf) for leaf in flatten_exceptions(error)})
    log_traceback(log, error, "%s failed (error_id %s)%s", what, error_id, advice)
    return error_id


def _advice(error: BaseException) -> str:
    return advice_for(error, text_of(error)) if type(error) in (RuntimeError, TypeError, AttributeError) else ""


def log_traceback(log: Log, error: BaseException | None, what: str, *args: object) -> None:
    """Log an exception of foreign code with its traceback, after the message `what` % `args`.

    Formatting a traceback runs code of the exception's class, which may fail too.
    """
    try:
        call_foreign(write_traceback, log, error, what, *args)
    except (AgentError, Fault):
        log.error(f"{what}, with %s, which cannot be shown", *args, type(error).__name__)  # noqa: G004 - a format string


def as_agent_error(error: BaseException, what: str, *, expose: bool) -> tuple[AgentError, BaseException]:
    """Convert an exception of foreign code to an error for the caller.

    An `AgentError`, alone or as the only kind inside groups, passes unchanged. Any other becomes ``TOOL_PANIC``: its text may
    hold secrets, so the caller gets an id and the log gets the text.

    Args:
        error: The exception, or the `Fault` of it.
        what: Its source, for message and log, such as ``the tool search``.
        expose: For development: add type and message of every leaf.

    Returns:
        The error, and the single exception (or the group) behind it.
    """
    error = error.origin if _is_a(error, Fault) else error
    declared = declared_error(error)
    if declared is not None:
        return declared, declared
    found = list(flatten_exceptions(error)) or [error]
    origin = found[0] if len(found) == 1 else error
    error_id = log_fault(what, error)
    details: dict[str, object] = {"error_id": error_id}
    if expose:
        details["exceptions"] = [{"type": type(leaf).__name__, "message": text_of(leaf)} for leaf in found]
    return (
        AgentError.standard(
            "TOOL_PANIC",
            f"{what} failed unexpectedly",
            suggested_action=f"Look for error_id {error_id} in the server's log.",
            details=details,
        ),
        origin,
    )


def json_safe(error: AgentError) -> AgentError:
    """The same error as plain data. Details without a JSON form, or over the size limit, are logged and left out."""
    info: ErrorInfo = vars(error)["info"]
    if type(error) is not AgentError:
        error = AgentError.of(info)  # a subclass may override anything
    if info.details is None:
        return error
    try:
        # Objects in the details may run code in their properties.
        size = len(call_foreign(msgspec.json.encode, info))
    except (AgentError, Fault) as fault:
        log_fault(f"writing the details of an AgentError {info.code} as JSON", fault)
    else:
        if size <= MAX_DETAILS_BYTES:
            return error
        log.error("the details of an AgentError %s take %d bytes and are left out", info.code, size)
    return AgentError.of(msgspec.structs.replace(info, details=None))
