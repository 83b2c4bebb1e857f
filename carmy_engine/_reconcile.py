"""Ask a tool what became of an interrupted attempt: under a deadline, and whatever its function does."""

from __future__ import annotations

import logging

import msgspec
import trio

from ._compiled import CompiledTool
from ._context import SILENT, AgentContext
from ._model.reservation import Reservation
from ._model.result import Outcome
from ._settlement import Completed, Failed, NotStarted, Reconcile, Unknown
from .errors import AgentError

log = logging.getLogger("carmy.engine")

RECONCILE_SECONDS = 10.0
"""For one answer. The call's own deadline counts as well."""


async def ask(tool: CompiledTool, context: AgentContext, arguments: bytes, entry: Reservation) -> Outcome | bool:
    """What became of it.

    Args:
        tool: Its tool, which has a ``reconcile`` function.
        context: The retry's.
        arguments: The retry's, as JSON; the attempt had the same.
        entry: The interrupted attempt.

    Returns:
        The outcome to be recorded; True when it has not happened; False when nobody can say. A function that fails, takes
        too long, or answers what it may not, cannot say.

    Raises:
        trio.Cancelled: The caller, or its deadline.
    """
    assert tool.reconcile is not None
    about = msgspec.structs.replace(context, execution_id=entry.execution_id, progress=SILENT)
    try:
        with trio.move_on_after(RECONCILE_SECONDS):
            return await _answer(tool, tool.reconcile, about, arguments, entry)
        log.error("reconcile of %s took over %g s for %s", entry.tool, RECONCILE_SECONDS, entry.execution_id)
    except Exception:  # a guard round the application's function
        log.exception("reconcile of %s failed for %s", entry.tool, entry.execution_id)
    return False


async def _answer(
    tool: CompiledTool, reconcile: Reconcile, context: AgentContext, arguments: bytes, entry: Reservation
) -> Outcome | bool:
    settlement: object = await reconcile(context, msgspec.json.decode(arguments))
    match settlement:
        case Completed(value):
            return Outcome(execution_id=entry.execution_id, data_json=tool.render(value))
        case Failed(AgentError() as error):
            return Outcome(execution_id=entry.execution_id, error=error.info)
        case NotStarted():
            return True
        case Unknown():
            return False
        case _:
            raise TypeError(
                f"reconcile answered with {type(settlement).__name__}; it may be Completed(value), Failed(AgentError(...)), NotStarted()"
                " or Unknown()"
            )
