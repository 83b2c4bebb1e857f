"""The access log: one line for each execution, in text and in JSON, and nothing that callers sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import trio

from carmy_engine import AgentError, App, ExecutionRequest, LogSettings, Settings

ACCESS = Settings(log=LogSettings(access=True))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """The records of ``carmy.access``, in order."""
    found: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    handler, logger = Keep(), logging.getLogger("carmy.access")
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, "carmy.access")
    yield found
    logger.removeHandler(handler)


def make(settings: Settings | None = ACCESS) -> App:
    app = App("shop", settings=settings)

    @app.tool(effect="write", parallel_safe=True)
    async def order(sku: str) -> str:
        """Order."""
        if sku == "none":
            raise AgentError("OUT_OF_STOCK", f"no {sku}", "conflict")
        await trio.lowlevel.checkpoint()
        return f"secret {sku}"

    return app


async def test_one_line_for_each_execution(lines: list[logging.LogRecord]) -> None:
    """A success, a replay, a failure and an unknown tool have one line each, with the outcome and without arguments."""
    async with make().open() as engine:
        ana = engine.bind(principal="ana")
        done = await ana.execute(ExecutionRequest(tool="order", arguments={"sku": "secret-1"}, request_id="r"))
        await ana.execute(ExecutionRequest(tool="order", arguments={"sku": "secret-1"}, request_id="r"))
        await engine.execute(ExecutionRequest(tool="order", arguments={"sku": "none"}))
        await engine.execute(ExecutionRequest(tool="oder"))
    texts = [record.getMessage().split() for record in lines]
    assert [(words[1], words[2], words[3], words[7:]) for words in texts] == [
        ("order", "completed", "-", ["ana"]),
        ("order", "completed", "-", ["ana", "replayed"]),
        ("order", "failed", "OUT_OF_STOCK", ["-"]),
        ("oder", "failed", "TOOL_NOT_FOUND", ["-"]),
    ]
    assert {words[0] for words in texts} == {"in_process"}
    assert texts[0][6] == texts[1][6] == done.execution_id
    assert not any("secret" in record.getMessage() for record in lines)


@pytest.mark.parametrize("settings", [None, Settings()])
async def test_no_line_unless_it_is_set(settings: Settings | None, lines: list[logging.LogRecord]) -> None:
    """Without ``log.access`` there are no lines."""
    async with make(settings).open() as engine:
        await engine.execute(ExecutionRequest(tool="order", arguments={"sku": "x"}))
    assert lines == []


@pytest.mark.parametrize("name", ["a\nb", 'a" "b', "\x1b[31m", "é", "x" * 10_000, "a b"])
async def test_a_name_cannot_look_like_a_line(name: str, lines: list[logging.LogRecord]) -> None:
    """The name of an unknown tool and a principal are one column of one line, of a bounded length, whatever is in them."""
    async with make().open() as engine:
        await engine.bind(principal=name).execute(ExecutionRequest(tool=name))
    text = lines[0].getMessage()
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 1000
    assert "TOOL_NOT_FOUND" in text


async def test_a_refusal_is_no_execution(lines: list[logging.LogRecord]) -> None:
    """A request that a transport refuses has no access line; it has its own."""
    async with make().open() as engine:
        engine.record_refusal(AgentError.standard("INVALID_REQUEST", "no"))
    assert lines == []


async def test_json() -> None:
    """In JSON the line has one field for each value, beside time, level and logger."""
    from carmy_engine._telemetry.access_log import AccessLine
    from carmy_engine.cli._logs import _JsonFormatter

    line = AccessLine("http", "order", "failed", "OUT_OF_STOCK", 1.25, 0.5, False, "exec_1", None)
    record = logging.LogRecord("carmy.access", logging.INFO, "", 0, line, (), None)
    found = json.loads(_JsonFormatter(None).format(record))
    assert found.pop("time")
    assert found == {
        "level": "info", "logger": "carmy.access", "transport": "http", "tool": "order", "status": "failed", "code": "OUT_OF_STOCK",
        "duration_ms": 1.25, "waited_ms": 0.5, "replayed": False, "execution_id": "exec_1", "principal": None,
    }  # fmt: skip
