"""The end of a connection, a call or a task that another one's failure must not reach: what its boundary lets through.

A ``trio.Cancelled`` is a cancel of ours only while a scope round the boundary is cancelled. Any other one was made inside, by
a tool that has kept it (``outcome.acapture``) or that broke a rule of trio's, and is a failure like any other exception.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import cast

import trio

_TRIO = frozenset({"trio._core._ki", "trio._core._run"})
"""The modules that raise ``KeyboardInterrupt`` for a Ctrl-C."""


def raise_own(error: BaseException) -> None:
    """Raise `error` again if it holds what no boundary may keep; return if it is the failure of what was called.

    Raised are: the cancel of a scope round the caller, a Ctrl-C that trio has delivered, and the ``GeneratorExit`` of a
    coroutine that is thrown away. To be called in the task and the block that `error` has reached.

    Args:
        error: Any exception; for a group its leaves count.

    Raises:
        BaseException: `error` itself.
    """
    if not isinstance(error, Exception) and _holds_own(error):
        raise error


def contain(
    error: BaseException, log: logging.Logger | logging.LoggerAdapter[logging.Logger], what: str, *args: object
) -> None:
    """Log `error` once and return, so that what runs beside its origin goes on; raise the part of it that is no failure.

    Args:
        error: Any exception.
        log: Gets a line and the traceback of the failures in it.
        what: The line, such as ``a connection failed``, as a format string.
        *args: What is put into it.

    Raises:
        BaseException: What `raise_own` raises, without the failures beside it.
    """
    if isinstance(error, Exception) or not _holds_own(error):
        log.error(what, *args, exc_info=error)
        return
    if isinstance(error, BaseExceptionGroup):
        own, failures = cast("BaseExceptionGroup[BaseException]", error).split(_is_own)
        if failures is not None:
            log.error(what, *args, exc_info=failures)
            assert own is not None
            raise own from None
    raise error


def _holds_own(error: BaseException) -> bool:
    return any(map(_is_own, _leaves(error)))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _is_own(error: BaseException) -> bool:
    """True for a leaf that is no failure of what was called."""
    if isinstance(error, trio.Cancelled):
        return trio.current_effective_deadline() == -math.inf
    if isinstance(error, KeyboardInterrupt):
        return _is_delivered(error)
    return isinstance(error, GeneratorExit) and not _is_in_task()


def _is_delivered(error: KeyboardInterrupt) -> bool:
    """True for a Ctrl-C: trio has raised it, and no code that was called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") in _TRIO


def _is_in_task() -> bool:
    """False when the loop has ended, and the interpreter throws its coroutines away."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
