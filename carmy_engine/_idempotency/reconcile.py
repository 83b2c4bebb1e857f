"""Calls of ``reconcile`` functions, with a time limit and inside the error boundary."""

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
"""Time limit of one ``reconcile`` call. The deadline of the execution applies as well."""


async def ask(
    tool: CompiledTool, context: AgentContext, arguments: bytes, entry: Reservation, check_output: CheckOutput
) -> Outcome | bool:
    """The outcome of an interrupted attempt.

    Args:
        tool: The tool of the attempt, which has a ``reconcile`` function.
        context: The context of the retry.
        arguments: The arguments of the retry, as JSON; the attempt had the same.
        entry: The interrupted attempt.
        check_output: Checks a long output.

    Returns:
        The outcome to record; True if the attempt had no effect; False if the outcome is unknown. It is unknown if the
        function fails, takes too long, or returns an invalid value.

    Raises:
        trio.Cancelled: The caller was cancelled, or its deadline passed.
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
    """The outcome for a settlement, as `ask` returns it.

    Raises:
        AgentError: The value does not fit the tool's output.
        Fault: The value is not a settlement.
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
