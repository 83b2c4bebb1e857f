"""Middleware of a host: whatever it raises, before or after the tool, costs its own call one answer."""

from __future__ import annotations

from typing import Any

import pytest

from carmy_engine import App, Engine, ExecutionRequest
from tests.boundary.app import FINE, escape, escape_later
from tests.boundary.escapes import ESCAPES, SECRET


def with_middleware(site: str, how: list[str]) -> App:
    """An application whose middleware raises the escape in `how` at one site."""
    app = App("boundary")

    @app.middleware
    async def around(call: Any, proceed: Any) -> Any:
        if site == "before":
            await escape_later(how[0])
        if site == "before, at once":
            escape(how[0])
        value = await proceed()
        if site == "after":
            await escape_later(how[0])
        return value

    @app.middleware
    async def inside(call: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        finally:
            if site == "in a finally":
                await escape_later(how[0])

    @app.tool(effect="write")
    async def coroutine() -> str:
        return FINE

    @app.tool(effect="write")
    def function() -> str:
        return FINE

    return app


async def _code(engine: Engine, name: str, request_id: str) -> str:
    result = await engine.execute(ExecutionRequest(tool=name, request_id=request_id))
    assert SECRET not in repr(result.error)
    return "ok" if result.error is None else result.error.code


@pytest.mark.parametrize("site", ["before", "before, at once", "after", "in a finally"])
async def test_an_escape_of_middleware_costs_its_call_one_answer(site: str, caplog: pytest.LogCaptureFixture) -> None:
    """`TOOL_PANIC` and one traceback in the log; the next call is answered."""
    how = ["no"]
    async with with_middleware(site, how).open() as engine:
        for name in ("coroutine", "function"):
            for escape_name in ESCAPES:
                how[0] = escape_name
                caplog.clear()
                assert await _code(engine, name, f"{name} {escape_name}") == "TOOL_PANIC", (name, escape_name)
                assert len(caplog.records) == 1, (name, escape_name)
                how[0] = "no"
                assert await _code(engine, name, f"{name} {escape_name} again") == "ok"
        assert engine.statistics().running == 0
