"""What logs, metrics and spans add to one call in process, by short interleaved rounds.

Each contender is an engine of its own; the median of its best quarter of rounds (processor time) is compared with that of the engine without anything.
"""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import time
from collections.abc import Callable

import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracer

from carmy_engine import App, Engine, ExecutionRequest, LogSettings, MetricsSettings, Settings
from carmy_engine.cli._logs import _JsonFormatter

CALLS = 300
ROUNDS = 80
REQUEST = ExecutionRequest(tool="search", arguments={"query": "mouse", "limit": 3})

ACCESS = LogSettings(access=True)
METRICS = MetricsSettings(address="127.0.0.1:0")


def plain() -> App:
    return App("bench")


def access() -> App:
    return App("bench", settings=Settings(log=ACCESS))


def metrics() -> App:
    return App("bench", settings=Settings(metrics=METRICS))


def no_op_spans() -> App:
    return App("bench").spans(NoOpTracer())


def everything() -> App:
    return App("bench", settings=Settings(log=ACCESS, metrics=METRICS)).spans(NoOpTracer())


def meter() -> App:
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    return App("bench").metrics(provider.get_meter("bench"))


def recorded_spans() -> App:
    return App("bench").spans(TracerProvider(shutdown_on_exit=False).get_tracer("bench"))


CONTENDERS: dict[str, Callable[[], App]] = {
    "nothing": plain,
    "nothing, again": plain,
    "access lines as JSON": access,
    "metrics for Prometheus": metrics,
    "spans that are not recorded": no_op_spans,
    "all three": everything,
    "metrics with OpenTelemetry's SDK": meter,
    "spans with OpenTelemetry's SDK": recorded_spans,
}


async def round_of(engine: Engine) -> float:
    """Microseconds of processor time of one call."""
    began = time.thread_time()
    for _ in range(CALLS):
        await engine.execute(REQUEST)
    return (time.thread_time() - began) / CALLS * 1e6


async def main() -> None:
    logging.getLogger("carmy.access").setLevel(logging.INFO)
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - before anything is measured
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(_JsonFormatter(None))
        logging.getLogger("carmy.access").addHandler(handler)
        logging.getLogger("carmy.access").propagate = False
        async with contextlib.AsyncExitStack() as stack:
            engines: dict[str, Engine] = {}
            for name, make in CONTENDERS.items():
                app = make()

                @app.tool(effect="read", parallel_safe=True)
                async def search(query: str, limit: int = 10) -> str:
                    """Search."""
                    return query

                engines[name] = await stack.enter_async_context(app.open())
            found: dict[str, list[float]] = {name: [] for name in engines}
            for _ in range(ROUNDS):
                for name, engine in engines.items():
                    found[name].append(await round_of(engine))
    # The least disturbed rounds: other processes only ever add time.
    medians = {name: statistics.median(sorted(rounds)[: ROUNDS // 4]) for name, rounds in found.items()}
    base = medians["nothing"]
    for name, median in medians.items():
        print(f"{name:34} {median:7.2f} us a call  {median - base:+7.2f} us")


if __name__ == "__main__":
    trio.run(main)
