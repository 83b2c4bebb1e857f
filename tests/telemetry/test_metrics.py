"""Metrics: one table, served to Prometheus as text and exported to OpenTelemetry."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from carmy_engine import (
    AgentError,
    App,
    Cause,
    DeclarationError,
    Engine,
    ExecutionRequest,
    MetricsSettings,
    Settings,
    StoreSettings,
)
from carmy_engine._telemetry.metrics import BOUNDS_SECONDS, MAX_SERIES, METRICS, Kind, Metrics
from carmy_engine._telemetry.prometheus import name_of

DOCUMENTS = Path(__file__).parents[2] / "docs"
ON = Settings(metrics=MetricsSettings(address="127.0.0.1:0"))

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(engine: Engine) -> Series:
    """The samples of the text, read by Prometheus' own parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(engine.prometheus())
        for sample in family.samples
    }


def make(settings: Settings | None = ON) -> tuple[App, trio.Event]:
    app, go_on = App("shop", settings=settings), trio.Event()

    @app.tool(effect="write", parallel_safe=True)
    async def order(sku: str) -> str:
        """Order."""
        if sku == "none":
            raise AgentError("OUT_OF_STOCK", "none", "conflict")
        await trio.lowlevel.checkpoint()
        return sku

    @app.tool(effect="write")
    async def wait() -> None:
        """Wait for a turn, and then for the event."""
        await go_on.wait()

    return app, go_on


def call(tool: str, request_id: str | None = None, **arguments: Any) -> ExecutionRequest:
    return ExecutionRequest(tool=tool, arguments=arguments, request_id=request_id)


async def use(engine: Engine) -> None:
    """A success, two replays, a failure, an unknown tool and a refusal."""
    for _ in range(3):
        await engine.execute(call("order", "r", sku="a"))
    await engine.execute(call("order", sku="none"))
    await engine.execute(call("a caller's text"))
    engine.record_refusal(AgentError.standard("UNAUTHENTICATED", "no"))


async def test_counters_and_histograms() -> None:
    """Every execution counts once, by tool, status, code and transport; a text of a caller is never a label."""
    app, _ = make()
    async with app.open() as engine:
        await use(engine)
        found = scraped(engine)
        text = engine.prometheus()

    def executions(tool: str, status: str, code: str) -> float:
        labels = (("code", code), ("status", status), ("tool", tool), ("transport", "in_process"))
        return found["carmy_executions_total", labels]

    assert executions("order", "completed", "") == 3
    assert executions("order", "failed", "OUT_OF_STOCK") == 1
    assert executions("", "failed", "TOOL_NOT_FOUND") == 1
    assert found["carmy_replays_total", ()] == 2
    assert found["carmy_refusals_total", (("code", "UNAUTHENTICATED"), ("transport", "in_process"))] == 1
    assert found["carmy_execution_duration_seconds_count", (("tool", "order"),)] == 2
    assert found["carmy_store_duration_seconds_count", (("operation", "reserve"),)] == 3
    assert found["carmy_store_duration_seconds_bucket", (("le", "+Inf"), ("operation", "complete"))] == 1
    assert "caller" not in text


async def test_running_and_waiting() -> None:
    """Gauges are read when they are scraped: what runs, what of that waits for its turn, and what is left after the end."""
    app, go_on = make()
    async with app.open() as engine:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(engine.execute, call("wait"))
            await trio.testing.wait_all_tasks_blocked()
            found = scraped(engine)
            assert (found["carmy_executions_running", ()], found["carmy_executions_waiting", ()]) == (3, 2)
            go_on.set()
        found = scraped(engine)
        assert (found["carmy_executions_running", ()], found["carmy_executions_waiting", ()]) == (0, 0)
        assert found["carmy_loop_lag_seconds", ()] >= 0
        assert found["carmy_threads_stuck", ()] == 0


async def test_what_is_left_in_doubt(tmp_path: Path) -> None:
    """A write whose caller leaves counts as uncertain, and so does the answer to its retry; the store is timed."""
    store = StoreSettings(url=f"sqlite:{tmp_path / 'state.db'}")
    app, _ = make(Settings(store=store, metrics=ON.metrics))
    async with app.open() as engine:
        bound = engine.bind(gone=Cause.DISCONNECT)
        with trio.move_on_after(0.05):
            await bound.execute(call("wait", "r"))
        result = await engine.execute(call("wait", "r"))
        assert result.error is not None
        assert result.error.code == "EXECUTION_UNCERTAIN"
        found = scraped(engine)
    assert found["carmy_uncertain_total", ()] == 2
    assert found["carmy_store_duration_seconds_count", (("operation", "interrupt"),)] == 1


async def test_off_unless_it_is_asked_for() -> None:
    """Without an address and without `App.metrics` an engine has no metrics."""
    app, _ = make(Settings())
    async with app.open() as engine:
        await use(engine)
        assert engine.metrics is None
        assert engine.prometheus() == ""


def exported(reader: InMemoryMetricReader) -> Mapping[str, Any]:
    """The exported data points by the name of their metric."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_opentelemetry() -> None:
    """The meter has the same numbers under the names of OpenTelemetry, also over several engines of one application."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    app, _ = make(Settings())
    app.metrics(provider.get_meter("test"))
    for _ in range(2):
        async with app.open() as engine:
            await use(engine)
            points = exported(reader)
            counted = {
                (point.attributes["tool"], point.attributes["code"]): point.value
                for point in points["carmy.executions"]
            }
            assert counted == {("order", ""): 3, ("order", "OUT_OF_STOCK"): 1, ("", "TOOL_NOT_FOUND"): 1}
            assert points["carmy.executions.running"][0].value == 0
            assert points["carmy.execution.duration"][0].count >= 2
            assert points["carmy.execution.duration"][0].explicit_bounds == BOUNDS_SECONDS
    used = {metric.name for metric in METRICS if not metric.name.startswith("carmy.graph.")} | {
        "carmy.graph.runs.running"
    }
    assert points.keys() == used - {"carmy.connections"}  # in process there are none
    with pytest.raises(DeclarationError, match="already"):
        app.metrics()


async def test_label_sets_are_bounded() -> None:
    """Tools choose the codes of their errors; beyond the bound, a new code counts as another one."""
    metrics = Metrics()
    app, _ = make()
    async with app.open() as engine:
        await engine.execute(call("order", sku="none"))
        (record,) = engine.audit.newest()
    import msgspec

    for number in range(MAX_SERIES + 50):
        metrics.record(msgspec.structs.replace(record, error_code=f"CODE_{number}"))
    (executions,) = [metric for metric in METRICS if metric.name == "carmy.executions"]
    series = dict(metrics.values(executions))
    assert len(series) == MAX_SERIES + 1
    assert series["order", "failed", "other", "in_process"] == 50


def test_the_page_lists_every_metric() -> None:
    """The table of docs/observability.md has both names and the labels of every metric."""
    page = (DOCUMENTS / "observability.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE)
    assert rows == [
        (metric.name, name_of(metric), ", ".join(f"`{label}`" for label in metric.labels)) for metric in METRICS
    ]


def test_the_dashboard_uses_metrics_that_exist() -> None:
    """Every metric and label in the queries of the dashboard is one of the table, and every metric is in a query."""
    dashboard = json.loads((DOCUMENTS / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    names = {name_of(metric): metric for metric in METRICS}
    used = {name for query in queries for name in re.findall(r"\bcarmy_\w+", query)}
    known = set(names) | {
        f"{name}_{part}"
        for name, metric in names.items()
        if metric.kind is Kind.HISTOGRAM
        for part in ("bucket", "sum", "count")
    }
    assert used <= known
    assert {name for name in names if any(other.startswith(name) for other in used)} == set(names)
    labels = {label for metric in METRICS for label in metric.labels} | {"le", "instance", "job"}
    grouped = {
        label for query in queries for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")
    }
    assert grouped <= labels
