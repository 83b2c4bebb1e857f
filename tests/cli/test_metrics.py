"""Metrics and access lines of serving commands."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest
import trio

from carmy_engine import App, MetricsSettings, Settings
from carmy_engine.cli._problems import outside_problems
from carmy_engine.stores.memory import MemoryStore
from tests.cli.served import CARMY, LIMIT_SECONDS, MANY, connected, served
from tests.support.http import render


async def scraped(path: Path) -> str:
    """The metrics that are served at the file of a socket."""
    stream = await trio.open_unix_socket(path)
    async with stream:
        await stream.send_all(render("GET", "/metrics"))
        received = b""
        while data := await stream.receive_some():
            received += data
    return received.decode()


@pytest.fixture
def environment(directory: Path) -> dict[str, str]:
    """That of a command whose metrics are served at a file."""
    (directory / "many.py").write_text(textwrap.dedent(MANY))
    return {**os.environ, "CARMY_METRICS_ADDRESS": "unix:metrics.sock", "CARMY_LOG_ACCESS": "true"}


async def test_serve_with_metrics_and_access_lines(directory: Path, environment: dict[str, str]) -> None:
    """The command serves the metrics as well, logs a line for each call, and ends with 0."""
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*CARMY, "serve", "many.py", "--address", "127.0.0.1:0", env=environment) as server:
            assert (await server.says("metrics on ")).endswith("metrics.sock:/metrics")
            async with connected(await server.port()) as client:
                assert (await client.call("pid")).status == 200
                text = await scraped(directory / "metrics.sock")
            assert 'carmy_executions_total{tool="pid",status="completed",code="",transport="http"} 1' in text
            assert 'carmy_connections{transport="http"} 1' in text
            assert (await server.says("carmy.access: http pid completed - ")).endswith(" -")
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 0
    assert not (directory / "metrics.sock").exists()


async def test_each_process_has_its_own(directory: Path, environment: dict[str, str]) -> None:
    """With several processes, each serves its metrics at an address of its own; together they have all calls."""
    words = ("serve", "many.py", "--address", "127.0.0.1:0", "--processes", "2")
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*CARMY, *words, env=environment) as server:
            port = await server.port()
            for _ in range(8):
                async with connected(port) as client:
                    assert (await client.call("pid")).status == 200
            counted = 0.0
            for name in ("metrics.sock", "metrics.sock.2"):
                lines = (await scraped(directory / name)).splitlines()
                counted += sum(
                    float(line.rpartition(" ")[2]) for line in lines if line.startswith("carmy_executions_total")
                )
            assert counted == 8


async def test_an_address_that_cannot_be_bound(directory: Path, environment: dict[str, str]) -> None:
    """The command fails with the name of the setting, and does not serve."""
    environment |= {"CARMY_METRICS_ADDRESS": "unix:nowhere/metrics.sock"}
    with trio.fail_after(LIMIT_SECONDS):
        async with served(*CARMY, "serve", "many.py", "--address", "127.0.0.1:0", env=environment) as server:
            said = await server.last_words()
            assert await server.process.wait() == 1
    assert said.startswith("carmy: metrics.address = 'unix:nowhere/metrics.sock': cannot listen there")
    assert "listening" not in said


async def test_check_looks_at_the_address_of_the_metrics(tmp_path: Path) -> None:
    """What would keep the metrics from being served is a problem of the start, named by its setting."""
    app = App("birds").store(MemoryStore())
    for address, words in (
        (f"unix:{tmp_path}/none/metrics.sock", "metrics.address = "),
        ("no-such-host.invalid:9464", "metrics.address = 'no-such-host.invalid:9464': the host is not known"),
    ):
        settings = Settings(metrics=MetricsSettings(address=address))
        (problem,) = await outside_problems(app, None, settings)
        assert str(problem).startswith(words)
    for address in ("127.0.0.1:0", f"unix:{tmp_path}/metrics.sock", "0.0.0.0:9464"):
        settings = Settings(metrics=MetricsSettings(address=address))
        assert await outside_problems(app, None, settings) == []
