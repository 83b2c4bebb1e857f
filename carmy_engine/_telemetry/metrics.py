"""Metrics of one engine: counters and histograms that records fill, and gauges that are read at an export.

`METRICS` is the one table of names. `prometheus` and `meter` export what `Metrics` has.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .._model.record import ExecutionRecord

MAX_SERIES = 2000
"""Label sets of one counter. Tools choose the codes of their errors; further label sets are counted with the code ``other``."""

BOUNDS_SECONDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of histograms: from a store in memory to the default deadline."""


class Kind(enum.Enum):
    """What the value of a metric does."""

    COUNTER = "counter"
    """It only grows."""
    GAUGE = "gauge"
    """It is a state."""
    SUM = "sum"
    """It is a state that is added over processes."""
    HISTOGRAM = "histogram"
    """It is a distribution of seconds."""


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: In OpenTelemetry; `prometheus.name_of` derives the other.
        kind: What its value does.
        help: One sentence.
        labels: The names of its labels.
        unit: ``s`` for seconds, empty for a number.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""


EXECUTIONS = Metric(
    "carmy.executions", Kind.COUNTER, "Executions that have ended.", ("tool", "status", "code", "transport")
)
DURATION = Metric(
    "carmy.execution.duration", Kind.HISTOGRAM, "Time from the reservation to the end.", ("tool",), unit="s"
)
RUNNING = Metric("carmy.executions.running", Kind.SUM, "Executions that run, those that wait included.")
WAITING = Metric(
    "carmy.executions.waiting", Kind.SUM, "Executions that wait for a turn, a thread or another execution."
)
REPLAYS = Metric("carmy.replays", Kind.COUNTER, "Answers that were stored ones.")
UNCERTAIN = Metric("carmy.uncertain", Kind.COUNTER, "Answers EXECUTION_UNCERTAIN, and writes that were left in doubt.")
REFUSALS = Metric(
    "carmy.refusals", Kind.COUNTER, "Requests that were refused before they were executions.", ("code", "transport")
)
STUCK = Metric("carmy.threads.stuck", Kind.SUM, "Worker threads that have outlived their call.")
LAG = Metric("carmy.loop.lag", Kind.GAUGE, "Time in which the event loop answered the watchdog last.", unit="s")
STALLS = Metric("carmy.loop.stalls", Kind.COUNTER, "Times in which a task held the event loop for more than a second.")
STORE = Metric("carmy.store.duration", Kind.HISTOGRAM, "Time of an operation of the store.", ("operation",), unit="s")
SINK_FAILURES = Metric("carmy.sink.failures", Kind.COUNTER, "Records that a sink failed to take.")
CONNECTIONS = Metric("carmy.connections", Kind.SUM, "Open connections.", ("transport",))
GRAPH_RUNS = Metric(
    "carmy.graph.runs", Kind.COUNTER, "Runs of graphs that have ended or stopped.", ("graph", "status", "code")
)
GRAPH_RUN_DURATION = Metric(
    "carmy.graph.run.duration",
    Kind.HISTOGRAM,
    "Time from the start of a run, or its resumption, to its end or stop.",
    ("graph",),
    unit="s",
)
GRAPH_RUNS_RUNNING = Metric("carmy.graph.runs.running", Kind.SUM, "Runs of graphs that go on.")
GRAPH_NODES = Metric(
    "carmy.graph.nodes", Kind.COUNTER, "Attempts at nodes that have ended.", ("graph", "node", "status", "code")
)
GRAPH_NODE_DURATION = Metric(
    "carmy.graph.node.duration", Kind.HISTOGRAM, "Time of an attempt at a node.", ("graph", "node"), unit="s"
)

METRICS: tuple[Metric, ...] = (
    EXECUTIONS, DURATION, RUNNING, WAITING, REPLAYS, UNCERTAIN, REFUSALS, STUCK, LAG, STALLS, STORE, SINK_FAILURES, CONNECTIONS,
    GRAPH_RUNS, GRAPH_RUN_DURATION, GRAPH_RUNS_RUNNING, GRAPH_NODES, GRAPH_NODE_DURATION,
)  # fmt: skip


class Histogram:
    """A distribution of seconds in the buckets of `BOUNDS_SECONDS`.

    Attributes:
        counts: The values in each bucket; the last one has no upper bound.
        sum: Of all values.
    """

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> Iterator[int]:
        """The values up to each bound, and all of them."""
        return itertools.accumulate(self.counts)


class Metrics:
    """The metrics of one engine. It is a sink of records.

    Attributes:
        gauges: Functions that return the value of a metric without labels.
        connections: For each transport, a function that returns the number of its connections.
        histograms: Of each histogram, by its labels.
        on_seconds: Called with a histogram, its labels and a value, for an exporter that needs each value.
        graph_runs: Runs of graphs that go on.
    """

    def __init__(self) -> None:
        self.gauges: dict[Metric, Callable[[], float]] = {GRAPH_RUNS_RUNNING: lambda: self.graph_runs}
        self.connections: dict[str, Callable[[], int]] = {}
        self.histograms: dict[Metric, dict[tuple[str, ...], Histogram]] = {
            metric: {} for metric in METRICS if metric.kind is Kind.HISTOGRAM
        }
        self.on_seconds: Callable[[Metric, tuple[str, ...], float], object] | None = None
        self.graph_runs = 0
        self._counters: dict[Metric, Counter[tuple[str, ...]]] = {
            metric: Counter() for metric in METRICS if metric.kind is Kind.COUNTER and "code" in metric.labels
        }
        self._replays = 0
        self._uncertain = 0

    def record(self, record: ExecutionRecord) -> None:
        """See `carmy_engine.abc.Sink`."""
        if record.settled is not None or not record.tool:
            return  # a settlement is no execution, and refusals are counted by `count_refusal`, which has no limit
        tool = "" if record.effect is None else record.tool  # the name of an unknown tool is a caller's text
        code = record.error_code or ""
        self.count(EXECUTIONS, tool, record.status.value, code, record.transport)
        if record.replayed:
            self._replays += 1
        elif record.duration_ms:
            self.add_seconds(DURATION, record.duration_ms / 1000, tool)
        if code == "EXECUTION_UNCERTAIN":
            self._uncertain += 1

    def count_refusal(self, code: str, transport: str) -> None:
        """Count a request that was refused before it was an execution."""
        self.count(REFUSALS, code, transport)

    def count_doubt(self) -> None:
        """Count a write that was left in doubt."""
        self._uncertain += 1

    def count(self, metric: Metric, *labels: str) -> None:
        """Add one to a counter that has a label ``code``."""
        counter = self._counters[metric]
        if len(counter) >= MAX_SERIES and labels not in counter:
            at = metric.labels.index("code")
            labels = (*labels[:at], "other", *labels[at + 1 :])
        counter[labels] += 1

    def add_seconds(self, metric: Metric, seconds: float, *labels: str) -> None:
        """Add a value to a histogram."""
        histograms = self.histograms[metric]
        histogram = histograms.get(labels)
        if histogram is None:
            histogram = histograms[labels] = Histogram()
        histogram.add(seconds)
        if self.on_seconds is not None:
            self.on_seconds(metric, labels, seconds)

    def values(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """The labels and the value of each series of a metric that is no histogram."""
        if metric in self._counters:
            yield from list(self._counters[metric].items())  # a copy: an exporter may read in a thread of its own
        elif metric is REPLAYS:
            yield (), self._replays
        elif metric is UNCERTAIN:
            yield (), self._uncertain
        elif metric is CONNECTIONS:
            yield from [((transport,), count()) for transport, count in list(self.connections.items())]
        elif metric in self.gauges:
            yield (), self.gauges[metric]()
