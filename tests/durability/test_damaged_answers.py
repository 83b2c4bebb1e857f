"""Stored answers that are no longer what a tool returned, on every transport."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio

import carmy_http
import carmy_websocket
from carmy_engine import App, Engine, ExecutionRequest, Settings
from carmy_engine.abc import Executor, Outcome, Reservation
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import SqliteStore
from carmy_mcp import open_mcp, serve_http

WAYS: dict[str, tuple[Any, Any]] = {
    "http": (carmy_http.serve, carmy_http.open_http),
    "websocket": (carmy_websocket.serve, carmy_websocket.open_websocket),
    "mcp": (serve_http, partial(open_mcp, trusted=True)),
}

REQUEST = ExecutionRequest(tool="work", request_id="r1")


class DamagingStore(MemoryStore):
    """A store of another kind, which gives other bytes than it was given."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        existing = await super().reserve(reservation)
        if existing is not None and existing.outcome is not None:
            damaged = Outcome(execution_id=existing.execution_id, data_json=self._data)
            fields = {name: getattr(existing, name) for name in existing.__struct_fields__}
            return Reservation(**{**fields, "outcome": damaged})
        return existing


def app_on(store: Any) -> App:
    app = App("shop", settings=Settings(address="127.0.0.1:0")).store(store)

    @app.tool(effect="write", parallel_safe=True)
    async def work() -> str:
        """Do something."""
        return "päid"

    return app


@asynccontextmanager
async def reached(way: str, engine: Engine) -> AsyncIterator[Executor]:
    """The engine, through one transport."""
    if way == "in process":
        yield engine
        return
    async with trio.open_nursery() as servers:
        serve, opener = WAYS[way]
        line: str = await servers.start(partial(serve, engine))
        async with opener(line.rpartition(" ")[2]) as client:
            yield client
        servers.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["in process", *WAYS])
@pytest.mark.parametrize("data", [b'"p\xffid"', b'"paid', b"", b"\x00"])
async def test_an_answer_that_is_no_json_is_corrupt(way: str, data: bytes) -> None:
    """It is not replayed: the retry gets ``STORE_ERROR`` with the reason, and the connection goes on."""
    with trio.fail_after(20):
        async with app_on(DamagingStore(data)).open() as engine, reached(way, engine) as executor:
            assert (await executor.execute(REQUEST)).unwrap() == "päid"
            for _ in range(2):
                error = (await executor.execute(REQUEST)).error
                assert error is not None
                assert (error.code, (error.details or {})["reason"]) == ("STORE_ERROR", "corrupt")
            assert (await executor.execute(ExecutionRequest(tool="work"))).unwrap() == "päid"


@pytest.mark.parametrize("way", ["in process", *WAYS])
async def test_an_answer_that_was_changed_in_the_file_is_corrupt(way: str, tmp_path: Path) -> None:
    """Its checksum shows it, even if it is still JSON."""
    path = tmp_path / "state.db"
    with trio.fail_after(20):
        async with app_on(SqliteStore(path)).open() as engine, reached(way, engine) as executor:
            assert (await executor.execute(REQUEST)).unwrap() == "päid"
            connection = apsw.Connection(str(path))
            connection.execute("UPDATE entries SET data = CAST('\"unpaid\"' AS BLOB)")
            connection.close()
            error = (await executor.execute(REQUEST)).error
            assert error is not None
            assert (error.code, (error.details or {})["reason"]) == ("STORE_ERROR", "corrupt")


async def test_a_store_that_fails_for_every_call_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A few tracebacks a minute show what is wrong; the others are counted."""
    async with app_on(DamagingStore(b"")).open() as engine:
        await engine.execute(REQUEST)
        for _ in range(100):
            assert (await engine.execute(REQUEST)).error is not None
    assert 0 < len([record for record in caplog.records if record.levelno == logging.ERROR]) < 10
