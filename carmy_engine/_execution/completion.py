"""Last steps of every execution: the result, the record and its sinks, the history entry and the last event."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from .._model.error_boundary import is_ctrl_c, log_fault
from .._model.errors import AgentError
from .._model.host_objects import close_coroutine
from .._model.protocols import Sink
from .._model.record import ExecutionRecord
from .._model.result import ExecutionResult, ExecutionStatus, NextAction, Outcome, status_of
from .._model.run import CallIds
from .._model.spec import ToolSpec
from .execution import Execution, Inflight
from .invoke import Ending


class MemorySink:
    """Keeps the newest records in memory, and drops older ones.

    Args:
        limit: Number of records.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._records: deque[ExecutionRecord] = deque(maxlen=limit)

    def record(self, record: ExecutionRecord) -> None:
        """Keep one record."""
        self._records.append(record)

    def newest(self, limit: int | None = None) -> list[ExecutionRecord]:
        """The records, newest first."""
        return list(reversed(self._records))[:limit]


class Sinks:
    """All sinks of an engine, in the order in which they were added.

    Attributes:
        failures: How often a sink raised. The answer of an execution does not depend on its sinks.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks: list[tuple[Sink, Callable[[ExecutionRecord], object]]] = [(sink, sink.record) for sink in sinks]
        self.failures = 0

    def record(self, record: ExecutionRecord) -> None:
        """Pass a record to every sink."""
        for sink, take in self._sinks:
            try:
                answer = take(record)
            except BaseException as error:  # noqa: BLE001 - the boundary, without the price of a call
                self._fail(sink, record, error)
            else:
                if answer is not None:
                    self._fail(sink, record, _unawaited(answer))

    def _fail(self, sink: Sink, record: ExecutionRecord, error: BaseException | None) -> None:
        """Count and log a failure of a sink. The caller of a committed effect still gets its answer.

        Raises:
            KeyboardInterrupt: It is a Ctrl-C.
        """
        if error is None:
            return
        if is_ctrl_c(error):
            raise error
        self.failures += 1
        log_fault(f"the sink {type(sink).__name__}, given the record of {record.execution_id},", error)


def _unawaited(answer: object) -> TypeError | None:
    """Error of a sink that returned an awaitable and so took no record; None for any other answer."""
    if not inspect.isawaitable(answer):
        return None
    name = type(answer).__name__  # pyright: ignore[reportUnknownArgumentType]  # a class of which nothing is known
    close_coroutine(answer)
    return TypeError(f"record returned a {name}, which nothing awaits; it must be a plain function")


class Finisher:
    """Ends executions.

    Args:
        sinks: Receive the records.
        inflight: Keeps ended executions for lookups.
    """

    def __init__(self, sinks: Sinks, inflight: Inflight) -> None:
        self._sinks = sinks
        self._inflight = inflight

    def finish(self, execution: Execution, spec: ToolSpec | None, ending: Ending) -> ExecutionResult:
        """Finish an execution that ran or was refused."""
        error = ending.error
        result = ExecutionResult(
            execution_id=execution.id,
            data_json=ending.data_json,
            error=None if error is None else error.info,
            exception=ending.exception,
            duration_ms=execution.duration_ms,
            cacheable=error is None and spec is not None and _is_cacheable(spec),
            next_actions=()
            if error is None or spec is None
            else _next_actions(error, spec, confirmable=ending.confirmable),
        )
        execution.stops_waiting()
        self._record(execution, spec, result, ending)
        if ending.data_json is not None:
            execution.output_bytes = len(ending.data_json)
        if not execution.gone:
            # Without the exception: its traceback would keep the tool's frames alive.
            execution.result = result if result.exception is None else result.without_exception()
        self._inflight.remember(execution)
        self._tell(execution, result)
        execution.scope = execution.listener = execution.returned = execution.approval = (
            None  # the execution is kept, and these are large
        )
        return result

    def replay(self, execution: Execution, spec: ToolSpec, outcome: Outcome) -> ExecutionResult:
        """Finish an execution with a stored answer: the same body as the first time."""
        error = None if outcome.error is None else AgentError.of(outcome.error)
        result = ExecutionResult(
            execution_id=outcome.execution_id,
            data_json=outcome.data_json,
            error=outcome.error,
            replayed=True,
            cacheable=error is None and _is_cacheable(spec),
            next_actions=() if error is None else _next_actions(error, spec),
        )
        self._record(execution, spec, result, None)
        self._tell(execution, result)
        return result

    def _record(
        self, execution: Execution, spec: ToolSpec | None, result: ExecutionResult, ending: Ending | None
    ) -> None:
        context = execution.caller.context
        # Positional arguments: keywords would take 0.3 µs more, a twentieth of a call.
        record = ExecutionRecord(
            result.execution_id,
            execution.request_id,
            context.principal,
            context.session,
            context.transport,
            execution.tool,
            None if spec is None else spec.effect,
            ExecutionStatus.COMPLETED if result.error is None else status_of(result.error),
            None if result.error is None else result.error.code,
            None if ending is None else ending.cause,
            result.duration_ms,
            execution.waited * 1000,
            execution.started_at,
            result.replayed,
        )
        if execution.caller.in_run:
            # Separate, since most calls belong to no run, and the additional fields take three times as long.
            record = msgspec.structs.replace(
                record, **{name: getattr(context, name) for name in CallIds.__struct_fields__}
            )
        if execution.confirmed_by is not None:
            record = msgspec.structs.replace(record, confirmed_by=execution.confirmed_by)
        self._sinks.record(record)

    def _tell(self, execution: Execution, result: ExecutionResult) -> None:
        if execution.listener is not None:
            execution.listener.execution_completed(execution, result)


def _is_cacheable(spec: ToolSpec) -> bool:
    """True when the caller may reuse a successful result."""
    return spec.idempotent and spec.effect.is_safe


def _next_actions(error: AgentError, spec: ToolSpec, *, confirmable: bool = False) -> tuple[NextAction, ...]:
    """Suggested actions after an error: the same call, once it is confirmed or after a delay.

    Args:
        error: The error.
        spec: The spec of the tool.
        confirmable: The engine refused the call because it lacks a confirmation. A tool's own error with that code is no such case.
    """
    if confirmable:
        return (NextAction(tool=spec.name, reason="call again once a person has confirmed this call"),)
    if error.retryable:
        after = None if error.retry_after is None else round(error.retry_after * 1000)
        return (NextAction(tool=spec.name, reason="the same call may succeed later", after_ms=after),)
    return ()
