"""The audit trail: everything that ended is in it, nobody waits for it, and nothing is dropped in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import App, Effect, ExecutionRecord, ExecutionRequest, ExecutionStatus
from carmy_engine.stores._writer import AUDIT_DELAY_SECONDS
from carmy_engine.stores.sqlite import SqliteLimits, SqliteStore
from tests.stores.kit import NOW, held, opened, raw, reservation


def record(number: int = 0, **changes: Any) -> ExecutionRecord:
    base = ExecutionRecord(
        execution_id=f"exec_{number}",
        request_id=None,
        principal="ana",
        session=None,
        transport="http",
        tool="pay",
        effect=Effect.WRITE,
        status=ExecutionStatus.COMPLETED,
        error_code=None,
        cause=None,
        duration_ms=1.5,
        waited_ms=0.0,
        started_at=NOW + number,
        replayed=False,
    )
    return msgspec.structs.replace(base, **changes)


def ids(records: list[ExecutionRecord]) -> list[str]:
    return [each.execution_id for each in records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_records_come_back_as_they_were(path: Path) -> None:
    """What was recorded is there after the end of the store, newest first, every field as it was."""
    written = [record(number, tool=f"tool {number}") for number in range(3)]
    async with opened(path) as store:
        for each in written:
            store.sink.record(each)
    async with opened(path) as store:
        assert await store.records() == written[::-1]


async def test_they_share_transactions(path: Path) -> None:
    """Records wait for a transaction that there is anyhow."""
    async with opened(path) as store:
        await store.prepare()
        before = store.transactions
        for number in range(100):
            store.sink.record(record(number))
        await store.reserve(reservation())
        assert store.transactions == before + 1
        with raw(path) as connection:
            assert connection.execute("SELECT count(*) FROM records").fetchall() == [(100,)]


async def test_they_do_not_wait_for_ever(path: Path, mock_clock: trio.testing.MockClock) -> None:
    """Without any other transaction, records get one of their own."""
    async with opened(path) as store:
        await store.prepare()
        before = store.transactions
        for number in range(10):
            store.sink.record(record(number))
        await trio.testing.wait_all_tasks_blocked()
        assert store.transactions == before
        mock_clock.jump(AUDIT_DELAY_SECONDS)
        with trio.move_on_after(0):  # let the timer's task run
            await trio.sleep_forever()
        while store.transactions == before:
            await trio.lowlevel.checkpoint()
        assert len(await store.records()) == 10


async def test_filters(path: Path) -> None:
    """Tool, status, principal and time each narrow what is shown; the limit takes the newest."""
    async with opened(path) as store:
        for number in range(6):
            store.sink.record(
                record(
                    number,
                    tool=("pay", "look")[number % 2],
                    principal=("ana", None, "ben")[number % 3],
                    status=ExecutionStatus.FAILED if number == 4 else ExecutionStatus.COMPLETED,
                )
            )
        assert ids(await store.records(tool="look")) == ["exec_5", "exec_3", "exec_1"]
        assert ids(await store.records(status=ExecutionStatus.FAILED)) == ["exec_4"]
        assert ids(await store.records(principal="ben")) == ["exec_5", "exec_2"]
        assert ids(await store.records(since=NOW + 2, until=NOW + 4)) == ["exec_3", "exec_2"]
        assert ids(await store.records(limit=2)) == ["exec_5", "exec_4"]
        assert ids(await store.records(tool="pay", principal="ana")) == ["exec_0"]


async def test_reading_goes_through_all_of_them(path: Path) -> None:
    """A long trail is read in portions, to its end."""
    async with opened(path, limits=SqliteLimits(max_read_records=7)) as store:
        for number in range(50):
            store.sink.record(record(number, tool="rare" if number in (0, 1, 30) else "pay"))
        assert ids(await store.records(tool="rare")) == ["exec_30", "exec_1", "exec_0"]
        assert len(await store.records(limit=1000)) == 50
        assert await store.records(tool="never") == []


async def test_nobody_waits_for_them(path: Path) -> None:
    """However long the file is held, recording returns at once, and it is all written in the end."""
    async with opened(path) as store:
        await store.prepare()
        with held(store, before="begin") as gate:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.reserve, reservation())
                await gate.arrived()
                for number in range(5000):
                    store.sink.record(record(number))
                gate.open()
        await store.aclose()
        assert store.sink.dropped == 0
    async with opened(path) as store:
        assert len(await store.records(limit=10_000)) == 5000


async def test_what_finds_no_room(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the file cannot be written for long, the newest are dropped: counted, and logged once."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.02, max_queued_records=10)) as store:
        await store.prepare()
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(25):
                store.sink.record(record(number))
            other.execute("ROLLBACK")
        assert store.sink.dropped == 15
        assert caplog.text.count("audit records are being dropped") == 1
        assert len(await store.records()) == 10


async def test_what_cannot_be_written_at_the_end(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records that are lost with the store are counted and logged as well."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.02)) as store:
        await store.prepare()
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            store.sink.record(record())
            await store.aclose()
            other.execute("ROLLBACK")
        assert store.sink.dropped == 1
    assert "1 audit records are lost" in caplog.text


async def test_old_records_go(path: Path) -> None:
    """Records are kept for so long, and so many of them."""
    options: dict[str, Any] = {"audit_retention": 10.0, "clock": lambda: NOW + 20}
    async with opened(path, **options) as store:
        for number in range(20):
            store.sink.record(record(number))
        assert ids(await store.records())[-1] == "exec_10"
    async with opened(path, **options, limits=SqliteLimits(max_records=5)) as store:
        store.sink.record(record(20))
        assert ids(await store.records()) == ["exec_20", "exec_19", "exec_18", "exec_17", "exec_16"]


async def test_the_engine_records_everything(path: Path) -> None:
    """With this store, an engine's executions, replays and refusals are all in the trail, without a word of configuration."""
    app = App("shop").store(SqliteStore(path))

    @app.tool(effect="write", parallel_safe=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"secret {amount}"

    async with app.open() as engine:
        ana = engine.bind(principal="ana", session="s1")
        for arguments in ({"amount": 1234567}, {"amount": 1234567}, {"amount": "1234567"}):
            await ana.execute(ExecutionRequest(tool="pay", arguments=arguments, request_id="r1"))
        await ana.execute(ExecutionRequest(tool="nothing"))
    store = SqliteStore(path)
    found = await store.records()
    await store.aclose()
    assert [(each.tool, each.error_code, each.replayed) for each in found] == [
        ("nothing", "TOOL_NOT_FOUND", False),
        ("pay", "INVALID_ARGUMENTS", False),
        ("pay", None, True),
        ("pay", None, False),
    ]
    assert all((each.principal, each.session, each.transport) == ("ana", "s1", "in_process") for each in found)
    connection = apsw.Connection(str(path))
    trail = b"".join(blob for (blob,) in connection.execute("SELECT record FROM records"))
    connection.close()
    assert b"1234567" not in trail
    assert b"secret" not in trail
