"""Calls of a store of checkpoints: foreign code, within a time limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from .._model.error_boundary import Fault, as_agent_error, await_foreign, call_foreign
from .._model.errors import AgentError
from .._model.protocols import StoreError, StoreFull

SAVE_SECONDS = 10.0
"""Time limit for one operation of a checkpoint store: far more than a busy disk needs."""


async def store_call(function: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any) -> Any:
    """The value of a method of a store, or the `AgentError` in place of it."""
    try:
        with trio.fail_after(SAVE_SECONDS):
            return await await_foreign(call_foreign(function, *args, **kwargs))
    except trio.TooSlowError:
        return AgentError.standard("STORE_ERROR", f"the checkpoint store took over {SAVE_SECONDS:g} s")
    except Fault as fault:
        if isinstance(fault.origin, StoreFull):
            return AgentError.standard("STORE_ERROR", "the checkpoint store is full")
        reason = f" ({fault.origin.reason})" if isinstance(fault.origin, StoreError) else ""
        found, _ = as_agent_error(fault, "the checkpoint store", expose=False)
        return AgentError.standard("STORE_ERROR", f"the checkpoint store failed{reason}", details=found.details)
    except AgentError as error:
        return error


async def store_value(function: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any) -> Any:
    """The value of a method of a store.

    Raises:
        AgentError: ``STORE_ERROR``.
    """
    found = await store_call(function, *args, **kwargs)
    if isinstance(found, AgentError):
        raise found
    return found
