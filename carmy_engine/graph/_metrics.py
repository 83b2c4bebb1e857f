"""Metrics of runs and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from .._telemetry.metrics import GRAPH_NODE_DURATION, GRAPH_NODES, GRAPH_RUN_DURATION, GRAPH_RUNS, Metrics
from ._observers import Ended, ObservedRun


class GraphMetrics:
    """An observer that counts and times runs, and attempts at nodes.

    Args:
        metrics: Those of the engine.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @contextmanager
    def run(self, run: ObservedRun, /) -> Iterator[Ended]:
        """See `Observer.run`."""
        metrics = self._metrics
        began = trio.current_time()

        def ended(status: str, code: str | None) -> None:
            metrics.count(GRAPH_RUNS, run.graph, status, code or "")
            metrics.add_seconds(GRAPH_RUN_DURATION, trio.current_time() - began, run.graph)

        metrics.graph_runs += 1
        try:
            yield ended
        finally:
            metrics.graph_runs -= 1

    @contextmanager
    def node(self, run: ObservedRun, node: str, attempt: int, /) -> Iterator[Ended]:
        """See `Observer.node`."""
        metrics = self._metrics
        began = trio.current_time()

        def ended(status: str, code: str | None) -> None:
            metrics.count(GRAPH_NODES, run.graph, node, status, code or "")
            metrics.add_seconds(GRAPH_NODE_DURATION, trio.current_time() - began, run.graph, node)

        yield ended
