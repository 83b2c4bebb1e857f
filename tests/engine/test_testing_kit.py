"""The public testing kit itself: it fails what it should fail, and its stage works across threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import App, open_engine
from carmy_engine.testing import (
    EXECUTOR_CHECKS,
    SCRIPTED_TOOLS,
    RecordingSink,
    RequirementError,
    Stage,
    compile_scripted,
)
from tests.engine.kit import request


class Faulty:
    """An executor with one fault."""

    def __init__(self, engine: Any, fault: str) -> None:
        self.engine = engine
        self.fault = fault

    async def execute(self, wanted: Any) -> Any:
        if self.fault == "forgets ids":
            wanted = msgspec.structs.replace(wanted, request_id=None)
        if self.fault == "forgets timeouts" and wanted.timeout_ms is not None:
            wanted = msgspec.structs.replace(wanted, timeout_ms=None, tool="echo", arguments={"text": "a"})
        return await self.engine.execute(wanted)

    @asynccontextmanager
    async def stream(self, wanted: Any) -> AsyncIterator[Any]:
        async with self.engine.stream(wanted) as events:
            if self.fault == "loses the first event":
                await events.receive()
            yield events

    async def catalog(self) -> Any:
        catalog = await self.engine.catalog()
        return msgspec.structs.replace(catalog, version="1") if self.fault == "has a wrong version" else catalog


@pytest.mark.parametrize(
    ("fault", "id_"),
    [
        ("forgets ids", "E-301"),
        ("forgets timeouts", "E-501"),
        ("loses the first event", "E-401"),
        ("has a wrong version", "E-803"),
    ],
)
async def test_a_faulty_executor_fails(fault, id_):
    """An executor with a fault fails the requirement that it breaks, and the failure has its message."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        async with open_engine(compile_scripted(Stage())) as engine:
            yield Faulty(engine, fault)

    (check,) = [check for check in EXECUTOR_CHECKS if check.id == id_]
    with pytest.raises(RequirementError, match=id_):
        await check.run(make)


async def test_checks_can_share_an_executor():
    """Checks use names of their own, so they can run on one executor one after the other."""
    async with open_engine(compile_scripted(Stage())) as engine:

        @asynccontextmanager
        async def make() -> AsyncIterator[Any]:
            yield engine

        for check in EXECUTOR_CHECKS:
            if check.id[2] in "38":
                await check.run(make)


async def test_the_scripted_tools_in_an_application():
    """An application serves the scripted tools as its documentation states."""
    app = App("scripted")
    app.add(*SCRIPTED_TOOLS).state(Stage())
    async with app.open() as engine:
        assert (await engine.execute(request("effect", {"tag": "t"}))).data == 1
        assert (await engine.execute(request("effects", {"tag": "t"}))).data == 1


async def test_a_gate_holds_and_lets_through():
    """Calls wait at a shut gate, in tasks and threads; once opened it stays open."""
    stage = Stage()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.pass_gate, "g")
        nursery.start_soon(trio.to_thread.run_sync, stage.pass_gate_in_thread, "g")
        await stage.until(lambda: stage.arrived("g") == 2)
        assert (stage.left("g"), stage.most_inside("g"), stage.is_open("g")) == (0, 2, False)
        stage.open("g")
        await stage.until(lambda: stage.left("g") == 2)
    await stage.pass_gate("g")
    assert stage.most_inside("g") == 2


async def test_a_cancelled_wait_leaves_the_gate():
    """A call that is cancelled at a gate has left it, and its waiter is forgotten."""
    stage = Stage()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.pass_gate, "g")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stage.left("g") == 1
    assert stage._waiters == []


def test_a_journal_survives_the_process(tmp_path):
    """With a journal, effects are counted across restarts."""
    journal = tmp_path / "effects"
    first = Stage(journal)
    assert [first.effect("a"), first.effect("b"), first.effect("a")] == [1, 1, 2]
    second = Stage(journal)
    assert (second.effects("a"), second.effects("b")) == (2, 1)
    assert second.effect("a") == 3


def test_a_recording_sink_finds_records():
    """Records can be found by their tool, oldest first."""
    sink = RecordingSink()
    assert len(sink) == 0
    assert list(sink) == sink.of("t") == []
