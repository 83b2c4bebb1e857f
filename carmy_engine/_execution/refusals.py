"""Records of requests that a transport refuses before they become executions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from .._model.context import AgentContext
from .._model.errors import AgentError
from .._model.rate_limited_log import BurstLimit, RateLimitedLogger
from .._model.record import ExecutionRecord
from .._model.result import ExecutionStatus
from .completion import Sinks
from .execution import new_execution_id

log = logging.getLogger("carmy.engine")

MAX_RECORDS = 60
"""Limit per error code, transport and interval. It allows a few megabytes a day, so refused requests can neither fill a disk nor
displace the records of executions."""


class Refusals:
    """Writes a record and a log line for each refusal, both limited in rate.

    Args:
        sinks: Receive the records.
        count: Called with the code and the transport of each refusal, those over the limit included.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        sinks: Sinks,
        count: Callable[[str, str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sinks = sinks
        self._count = count
        self._limit = BurstLimit[tuple[str, str]](MAX_RECORDS, clock=clock)
        self._log = RateLimitedLogger(log, clock=clock)

    def record(self, error: AgentError, context: AgentContext, peer: str | None) -> None:
        """Record a refused request.

        Args:
            error: The error sent to the caller. Only its code is recorded.
            context: The known part of the caller's context, and the transport.
            peer: The caller's address, for the log.
        """
        if self._count is not None:
            self._count(error.code, context.transport)
        self._log.info(
            "refused a request over %s from %s: %s", context.transport, peer or "an unnamed peer", error.code
        )
        is_admitted, past = self._limit.admit((context.transport, error.code))
        for (transport, code), omitted in past:
            log.warning("%d more refusals over %s with %s left no record", omitted, transport, code)
        if not is_admitted:
            return
        self._sinks.record(
            ExecutionRecord(
                execution_id=new_execution_id(),
                request_id=None,
                principal=context.principal,
                session=context.session,
                transport=context.transport,
                tool="",
                effect=None,
                status=ExecutionStatus.FAILED,
                error_code=error.code,
                cause=None,
                duration_ms=0.0,
                waited_ms=0.0,
                started_at=time.time(),
                replayed=False,
            )
        )
