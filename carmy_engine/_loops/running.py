"""The event loop of the current thread, and the error for an interface that belongs to another one."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

import trio

from .._model.errors import WrongLoopError

host_caller: ContextVar[Any] = ContextVar("carmy_host_caller", default=None)
"""In a trio thread of an asyncio program: the `AsyncioCaller` of its loop, in which asyncio tools run. In an asyncio tool: that of its
loop. (Its module imports asyncio, which most processes do not need.)"""

_ADVICE = {
    "trio": "This code runs under trio: write {trio}.",
    "asyncio": "This code runs under asyncio: write {aio}.",
    None: "No event loop runs here: write {blocking}, or start one with trio.run(...) or asyncio.run(...).",
}


def running_loop() -> str | None:
    """``trio``, ``asyncio`` or None: the loop that the current thread runs at the moment."""
    if trio.lowlevel.in_trio_run():
        return "trio"
    asyncio = sys.modules.get("asyncio")  # a loop cannot run without it
    return "asyncio" if asyncio is not None and asyncio._get_running_loop() is not None else None  # noqa: SLF001 - documented


def wrong_loop(what: str, *, trio: str, aio: str, blocking: str) -> WrongLoopError:
    """The error for a call of `what` in the current loop; names the interface for this loop.

    Args:
        what: The subject of the message, with its verb, such as ``App.open needs trio``.
        trio: The code to write under trio.
        aio: The code to write under asyncio.
        blocking: The code to write without a loop.
    """
    return WrongLoopError(f"{what}. {_ADVICE[running_loop()].format(trio=trio, aio=aio, blocking=blocking)}")


def require_trio(what: str, opener: str) -> None:
    """Check that trio runs here.

    Args:
        what: The called function, such as ``open_http``.
        opener: Its name in `carmy_engine.aio` and `carmy_engine.blocking`, with its arguments.

    Raises:
        WrongLoopError: Another loop runs here, or none.
    """
    if not trio.lowlevel.in_trio_run():
        raise wrong_loop(
            f"{what} needs trio",
            trio=f"async with {what}(...)",
            aio=f"async with carmy_engine.aio.{opener}",
            blocking=f"with carmy_engine.blocking.{opener}",
        )
