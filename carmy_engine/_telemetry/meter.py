"""Export of metrics to OpenTelemetry; needs the extra ``otel``.

Counters and gauges are observable instruments, which the SDK reads when it exports. Only histograms cost a call each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from opentelemetry import metrics as otel
from opentelemetry.metrics import CallbackOptions, Observation

from .._version import __version__
from .metrics import BOUNDS_SECONDS, METRICS, Kind, Metric, Metrics


class MeterExport:
    """The instruments of one application.

    Args:
        meter: Creates them; None for the meter ``carmy_engine`` of the global provider.
    """

    def __init__(self, meter: otel.Meter | None = None) -> None:
        meter = otel.get_meter("carmy_engine", __version__) if meter is None else meter
        self._live: list[Metrics] = []
        self._histograms: dict[Metric, otel.Histogram] = {}
        make: dict[Kind, Callable[..., Any]] = {
            Kind.COUNTER: meter.create_observable_counter,
            Kind.GAUGE: meter.create_observable_gauge,
            Kind.SUM: meter.create_observable_up_down_counter,
        }
        for metric in METRICS:
            if metric.kind is Kind.HISTOGRAM:
                self._histograms[metric] = meter.create_histogram(
                    metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=BOUNDS_SECONDS
                )
            else:
                callbacks = [partial(self._observe, metric)]
                make[metric.kind](metric.name, callbacks=callbacks, unit=metric.unit, description=metric.help)

    @contextmanager
    def exporting(self, metrics: Metrics) -> Iterator[None]:
        """Export the metrics of an engine for the length of a block."""
        metrics.on_seconds = self._add
        self._live.append(metrics)
        try:
            yield
        finally:
            self._live.remove(metrics)

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        merge: Callable[[float, float], float] = max if metric.kind is Kind.GAUGE else operator.add
        merged: dict[tuple[str, ...], float] = {}
        for metrics in self._live:
            for labels, value in metrics.values(metric):
                merged[labels] = value if labels not in merged else merge(merged[labels], value)
        return [Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in merged.items()]

    def _add(self, metric: Metric, labels: tuple[str, ...], seconds: float) -> None:
        self._histograms[metric].record(seconds, dict(zip(metric.labels, labels, strict=True)))
