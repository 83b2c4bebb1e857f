"""OpenTelemetry spans, one for each execution, and those of graphs; needs the extra ``otel``.

Names and attributes follow the conventions for tools that models call (``execute_tool``, ``gen_ai.*``). All other
attributes start with ``carmy.``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .._execution.execution import Caller, Listener
from .._model.context import AgentContext
from .._model.errors import AgentError
from .._model.record import ExecutionRecord
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._version import __version__
from .pipeline import Pipeline

_OPERATION = "execute_tool"

_ATTRIBUTES = {
    "execution_id": "carmy.execution_id",
    "transport": "carmy.transport",
    "status": "carmy.status",
    "error_code": "error.type",
    "cause": "carmy.cause",
    "replayed": "carmy.replayed",
    "waited_ms": "carmy.waited_ms",
    "thread_id": "gen_ai.conversation.id",
    "run_id": "carmy.run_id",
    "node_path": "carmy.node_path",
    "attempt": "carmy.attempt",
    "caller_id": "carmy.caller_id",
    "call_id": "gen_ai.tool.call.id",
}
"""Span attributes by record field. A record has no arguments, outputs and messages. The caller's identity is left out, since spans
reach more systems than records."""

_open: ContextVar[Span | None] = ContextVar("carmy_open_span", default=None)
"""The span of the execution in this task, until its record arrives. OpenTelemetry's current span is not used: a tool may
have replaced it."""


class Spans:
    """Factory of spans: `pipeline` opens one around each execution, and `record` adds the outcome.

    Args:
        tracer: Creates the spans; None for the tracer of the global provider.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = trace.get_tracer("carmy_engine", __version__) if tracer is None else tracer

    def pipeline(self, **parts: Any) -> Pipeline:
        """Create a `Pipeline` in which every run has a span."""
        made = _SpannedPipeline(self._tracer, **parts)
        made.spans = self
        return made

    @contextmanager
    def open_span(
        self, name: str, attributes: Mapping[str, str | int | bool], context: AgentContext | None
    ) -> Iterator[Callable[[str, str | None], object]]:
        """See `SpanFactory`."""
        parent = None if context is None else _parent_of(context)
        span = self._tracer.start_span(name, parent, SpanKind.INTERNAL, attributes)

        def ended(status: str, code: str | None) -> None:
            span.set_attribute("carmy.status", status)
            if code is not None:
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR, code))

        token = attach(trace.set_span_in_context(span))
        try:
            yield ended
        finally:
            detach(token)
            span.end()

    def record(self, record: ExecutionRecord) -> None:
        """Set the outcome of an execution on its open span. See `carmy_engine.abc.Sink`."""
        span = _open.get()
        if span is None or record.settled is not None:
            return  # the record of another engine's execution, or of an earlier attempt that was settled on the way
        _open.set(None)
        if not span.is_recording():
            return
        for field, attribute in _ATTRIBUTES.items():
            value = getattr(record, field)
            if value is not None:
                span.set_attribute(attribute, value.value if isinstance(value, enum.Enum) else value)
        if record.error_code is not None:
            span.set_status(Status(StatusCode.ERROR, record.error_code))


_PROPAGATOR = TraceContextTextMapPropagator()


def _parent_of(context: AgentContext) -> Context | None:
    """The context with the caller's span; None for the current one."""
    traceparent = context.traceparent
    return None if traceparent is None else _PROPAGATOR.extract({"traceparent": traceparent})


class _SpannedPipeline(Pipeline):
    """Runs each request within a span, which is the current one wherever the tool runs."""

    def __init__(self, tracer: trace.Tracer, **parts: Any) -> None:
        super().__init__(**parts)
        self._tracer = tracer

    async def run(
        self,
        request: ExecutionRequest,
        caller: Caller,
        listener: Listener | None = None,
        returned: Callable[[Any], None] | None = None,
        unreadable: AgentError | None = None,
    ) -> ExecutionResult:
        """See `Pipeline.run`."""
        found = self.registry.get(request.tool)
        name = _OPERATION
        attributes: dict[str, str] = {"gen_ai.operation.name": _OPERATION}
        if found is not None:  # an unknown name is untrusted text of any length
            name = f"{_OPERATION} {request.tool}"
            attributes |= {
                "gen_ai.tool.name": request.tool,
                "gen_ai.tool.type": "function",
                "carmy.effect": found.spec.effect.value,
            }
        span = self._tracer.start_span(name, _parent_of(caller.context), SpanKind.INTERNAL, attributes)
        if not span.get_span_context().is_valid:  # of a tracer that does nothing
            return await super().run(request, caller, listener, returned, unreadable)
        outer, token = _open.get(), attach(trace.set_span_in_context(span))
        _open.set(span)
        try:
            return await super().run(request, caller, listener, returned, unreadable)
        except BaseException as error:
            # Without the exception: its message may contain arguments and outputs, and a cancel is one.
            if _open.get() is span:  # it left without a record
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            _open.set(outer)
            detach(token)
            span.end()
