"""Spans of runs and nodes: the parents of the spans of tools."""

from __future__ import annotations

from contextlib import AbstractContextManager

from .._engine.pipeline import SpanFactory
from ._observers import Ended, ObservedRun

_OPERATION = "invoke_workflow"


class GraphSpans:
    """An observer that makes a span for each run, and below it one for each attempt at a node.

    States, questions, answers and messages are not in them.

    Args:
        spans: Those of the engine.
    """

    def __init__(self, spans: SpanFactory) -> None:
        self._spans = spans

    def run(self, run: ObservedRun, /) -> AbstractContextManager[Ended]:
        """See `Observer.run`."""
        attributes: dict[str, str | int | bool] = {
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.agent.name": run.graph,
            "gen_ai.conversation.id": run.thread_id,
            "carmy.run_id": run.run_id,
            "carmy.resumed": run.is_resumed,
        }
        return self._spans.open_span(f"{_OPERATION} {run.graph}", attributes, run.context)

    def node(self, run: ObservedRun, node: str, attempt: int, /) -> AbstractContextManager[Ended]:
        """See `Observer.node`."""
        attributes: dict[str, str | int | bool] = {
            "gen_ai.agent.name": run.graph,
            "gen_ai.conversation.id": run.thread_id,
            "carmy.run_id": run.run_id,
            "carmy.node_path": node,
            "carmy.attempt": attempt,
        }
        return self._spans.open_span(f"node {node}", attributes, None)
