"""Inline calls: a call runs in the task that has read it.

A task for each call would be simpler but cost a quarter more: most calls end before a new task would run.
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
    """Run a coroutine to its end in this task, in a context of its own.

    After a coroutine that has waited, the caller must reach a checkpoint before any step that depends on its context variables.

    Args:
        call: The coroutine.
        context: The context to run it in; not shared.
        when_it_waits: Called before the coroutine's first wait, so that another task can take over this task's work.

    Returns:
        True if the coroutine has waited.
    """
    try:
        trap = context.run(call.send, None)
    except StopIteration:
        return False
    task = trio.lowlevel.current_task()
    own_context, task.context = task.context, context  # the context that trio resumes this task in
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
