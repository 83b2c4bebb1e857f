"""The metrics of an engine in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .metrics import BOUNDS_SECONDS, METRICS, Kind, Metric, Metrics

_TYPES = {Kind.COUNTER: "counter", Kind.GAUGE: "gauge", Kind.SUM: "gauge", Kind.HISTOGRAM: "histogram"}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def name_of(metric: Metric) -> str:
    """The name in Prometheus, by the rules of OpenTelemetry's compatibility specification."""
    name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


def render(metrics: Metrics) -> str:
    """All metrics, each with its help and type."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metrics, metric))


def _lines(metrics: Metrics, metric: Metric) -> Iterator[str]:
    name = name_of(metric)
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {_TYPES[metric.kind]}"
    if metric.kind is not Kind.HISTOGRAM:
        for labels, value in metrics.values(metric):
            yield f"{name}{_labels(metric.labels, labels)} {value:.17g}"
        return
    for labels, histogram in list(metrics.histograms[metric].items()):
        counts = list(histogram.cumulative())
        for bound, count in zip([*map(str, BOUNDS_SECONDS), "+Inf"], counts, strict=True):
            yield f"{name}_bucket{_labels((*metric.labels, 'le'), (*labels, bound))} {count}"
        yield f"{name}_sum{_labels(metric.labels, labels)} {histogram.sum:.17g}"
        yield f"{name}_count{_labels(metric.labels, labels)} {counts[-1]}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"
