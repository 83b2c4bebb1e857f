"""Runs a call in the task that has read it.

A task of its own for each call would be simpler, and cost a fourth more: most calls end before they would have had their turn.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any

import trio


@types.coroutine
def run_inline(
    call: Coroutine[Any, Any, None], context: Context, when_it_waits: Callable[[], None]
) -> Generator[Any, Any, bool]:
    """Run a coroutine to its end in this task, as if it had one of its own.

    If it waits, the caller must wait for something once afterwards, before it does anything that depends on its context.

    Args:
        call: What to run.
        context: In which to run it; nobody else's.
        when_it_waits: Called as soon as it waits for anything, for the first time: others have to do meanwhile what this task does
            otherwise.

    Returns:
        Whether it has waited.
    """
    try:
        trap = context.run(call.send, None)
    except StopIteration:
        return False
    task = trio.lowlevel.current_task()
    own_context, task.context = task.context, context  # in which trio takes the next steps
    try:
        when_it_waits()
        while True:
            try:
                outcome = yield trap
            except BaseException as error:  # noqa: BLE001 - as `yield from` does it
                trap = call.throw(error)
            else:
                trap = call.send(outcome)
    except StopIteration:
        return True
    finally:
        call.close()
        task.context = own_context
