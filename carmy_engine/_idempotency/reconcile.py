"""Ask a tool what became of an interrupted attempt: under a deadline, and whatever its function does."""

from __future__ import annotations

import msgspec

from .._model.compiled_tool import CheckOutput, CompiledTool, TakesLong
from .._model.context import SILENT, AgentContext
from .._model.error_boundary import Fault, ask_foreign, call_foreign, json_safe, log_fault
from .._model.errors import AgentError
from .._model.reservation import Reservation
from .._model.result import Outcome
from .._model.settlement import Completed, Failed, NotStarted, Unknown

RECONCILE_SECONDS = 10.0
"""For one answer. The call's own deadline counts as well."""


async def ask(
    tool: CompiledTool, context: AgentContext, arguments: bytes, entry: Reservation, check_output: CheckOutput
) -> Outcome | bool:
    """What became of it.

    Args:
        tool: Its tool, which has a ``reconcile`` function.
        context: The retry's.
        arguments: The retry's, as JSON; the attempt had the same.
        entry: The interrupted attempt.
        check_output: Checks a long value.

    Returns:
        The outcome to be recorded; True when it has not happened; False when nobody can say. A function that fails, takes
        too long, or answers what it may not, cannot say.

    Raises:
        trio.Cancelled: The caller, or its deadline.
    """
    assert tool.reconcile is not None
    about = msgspec.structs.replace(context, execution_id=entry.execution_id, progress=SILENT)
    try:
        settlement: object = await ask_foreign(RECONCILE_SECONDS, tool.reconcile, about, msgspec.json.decode(arguments))
        return await _outcome(tool, settlement, entry, check_output)
    except (AgentError, Fault) as error:
        log_fault(f"reconcile of {entry.tool}, asked about {entry.execution_id},", error)
    return False


async def _outcome(
    tool: CompiledTool, settlement: object, entry: Reservation, check_output: CheckOutput
) -> Outcome | bool:
    """What a settlement means.

    Raises:
        AgentError: The value does not fit the tool's output.
        Fault: It is no settlement.
    """
    match settlement:
        case Completed(value):
            data = call_foreign(_rendered, tool, value)
            if isinstance(data, TakesLong):
                data = await check_output(data)
            return Outcome(execution_id=entry.execution_id, data_json=data)
        case Failed(AgentError() as error):
            return Outcome(execution_id=entry.execution_id, error=json_safe(error).info)
        case NotStarted():
            return True
        case Unknown():
            return False
        case _:
            raise Fault(
                TypeError(
                    f"reconcile answered with {type(settlement).__name__}; it may be Completed(value), Failed(AgentError(...)),"
                    " NotStarted() or Unknown()"
                )
            )


def _rendered(tool: CompiledTool, value: object) -> bytes | TakesLong:
    try:
        return tool.render(value)
    except TakesLong as long:
        return long
