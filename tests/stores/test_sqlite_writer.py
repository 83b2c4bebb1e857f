"""Group commit: who shares a transaction, who leaves it, and what is done although nobody waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from carmy_engine import Cause
from carmy_engine.abc import Outcome
from carmy_engine.stores.sqlite import (
    FileLockedError,
    SqliteLimits,
    SqliteStore,
    StoreClosedError,
    UnexpectedError,
)
from carmy_engine.transport import BURST_LINES
from tests.stores.kit import NOW, VALUE, held, identity, opened, raw, reservation, state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def ask(scope: trio.CancelScope, function: Callable[..., Any], *args: Any) -> None:
    """Call it in a scope that can be cancelled."""
    with scope:
        await function(*args)


async def test_callers_share_a_transaction(path: Path) -> None:
    """A caller that arrives while a transaction is written is in the next one, all of them together."""
    async with opened(path) as store:
        await store.prepare()
        before = store.transactions
        async with trio.open_nursery() as nursery:
            with held(store, before="commit") as gate:
                nursery.start_soon(store.reserve, reservation("first"))
                await gate.arrived()
                for number in range(100):
                    nursery.start_soon(store.reserve, reservation(f"r{number}"))
                await trio.testing.wait_all_tasks_blocked()
        assert store.transactions == before + 2
        for number in range(100):
            assert await state(store, f"r{number}") == "running"


async def test_one_transaction_takes_so_many(path: Path) -> None:
    """A transaction has a limit; no caller is forgotten."""
    async with opened(path, limits=SqliteLimits(max_jobs=10)) as store:
        await store.prepare()
        before = store.transactions
        async with trio.open_nursery() as nursery:
            with held(store, before="begin") as gate:
                for number in range(35):
                    nursery.start_soon(store.reserve, reservation(f"r{number}"))
                await gate.arrived()
                await trio.testing.wait_all_tasks_blocked()
        assert store.transactions == before + 4


async def test_a_reservation_that_waits_is_withdrawn(path: Path) -> None:
    """A caller that is cancelled in the queue leaves at once, and nothing is written for it."""
    async with opened(path) as store:
        await store.prepare()
        with held(store, before="begin") as gate:
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()
                nursery.start_soon(ask, scope, store.reserve, reservation())
                await gate.arrived()
                scope.cancel()
        with raw(path) as connection:
            assert await state(store) == "free"
            assert connection.execute("SELECT count(*) FROM entries").fetchall() == [(0,)]


async def test_a_reservation_in_a_transaction_is_taken_back(path: Path) -> None:
    """A caller that is cancelled while its reservation is committed leaves at once; the next one finds the id free."""
    async with opened(path) as store:
        await store.prepare()
        async with trio.open_nursery() as nursery:
            with held(store, before="commit") as gate:
                async with trio.open_nursery() as inner:
                    scope = trio.CancelScope()
                    inner.start_soon(ask, scope, store.reserve, reservation())
                    await gate.arrived()
                    scope.cancel()
                answers: list[object] = []

                async def retry() -> None:
                    answers.append(await store.reserve(reservation(execution_id="exec_2")))

                nursery.start_soon(retry)
                await trio.testing.wait_all_tasks_blocked()
        assert answers == [None]
        entry = await store.get(identity())
        assert entry is not None
        assert entry.execution_id == "exec_2"


async def test_taking_back_spares_what_was_there(path: Path) -> None:
    """A cancelled caller whose id was taken has reserved nothing, so nothing is taken back."""
    async with opened(path) as store:
        await store.reserve(reservation())
        with held(store, before="commit") as gate:
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()
                nursery.start_soon(ask, scope, store.reserve, reservation())
                await gate.arrived()
                scope.cancel()
        assert await state(store) == "running"


@pytest.mark.parametrize("before", ["begin", "commit"])
@pytest.mark.parametrize("ending", ["complete", "release", "interrupt"])
async def test_endings_are_recorded_without_their_caller(path: Path, ending: str, before: str) -> None:
    """An ending is true whether or not a caller waits for it to be written."""
    async with opened(path) as store:
        await store.reserve(reservation())
        operations: dict[str, tuple[Callable[..., Any], tuple[object, ...], str]] = {
            "complete": (store.complete, (VALUE, NOW), "completed"),
            "release": (store.release, (), "free"),
            "interrupt": (store.interrupt, (Cause.CALLER, NOW), "interrupted"),
        }
        function, arguments, after = operations[ending]
        with held(store, before=before) as gate:
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()
                nursery.start_soon(ask, scope, function, identity(), "exec_1", *arguments)
                await gate.arrived()
                scope.cancel()
        assert await state(store) == after


async def test_an_ending_that_failed_is_recorded_later(path: Path) -> None:
    """The caller gets an error; when the file can be written again, the ending comes before everything else."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.05)) as store:
        await store.reserve(reservation())
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(FileLockedError):
                await store.complete(identity(), "exec_1", VALUE, NOW)
            other.execute("ROLLBACK")
        again = await store.reserve(reservation(execution_id="exec_2"))
        assert again is not None
        assert again.outcome == VALUE


async def test_closing_runs_deferred_jobs(path: Path) -> None:
    """An ending that failed is tried once more when the store is closed."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.05)) as store:
        await store.reserve(reservation())
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(FileLockedError):
                await store.complete(identity(), "exec_1", VALUE, NOW)
            other.execute("ROLLBACK")
    async with opened(path, limits=SqliteLimits(patience_secs=0.05)) as store:
        assert await state(store) == "completed"


async def test_closing_gives_up(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be written at the end is reported, and is in doubt for the next process."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.05)) as store:
        await store.reserve(reservation())
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(FileLockedError):
                await store.complete(identity(), "exec_1", VALUE, NOW)
            await store.aclose()
            other.execute("ROLLBACK")
    assert "1 entries stay as they are" in caplog.text
    async with opened(path, limits=SqliteLimits(patience_secs=0.05)) as store:
        assert await state(store) == "interrupted"


async def test_deferred_jobs_are_bounded(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that fails for long fills neither the memory with outputs nor the log with lines."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.02, max_deferred_bytes=1000)) as store:
        for number in range(10):
            await store.reserve(reservation(f"r{number}"))
        outcome = Outcome(execution_id="exec_1", data_json=b"1" * 400)
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            for number in range(10):
                with pytest.raises(FileLockedError):
                    await store.complete(identity(f"r{number}"), "exec_1", outcome, NOW)
            other.execute("ROLLBACK")
        assert [await state(store, f"r{number}") for number in range(3)] == ["completed", "completed", "running"]
        assert store._writer._deferred_bytes == 0
    assert 1 <= sum("too much is waiting" in message for message in caplog.messages) <= BURST_LINES


async def test_one_job_does_not_spoil_another(path: Path) -> None:
    """What cannot be written fails alone, and before it reaches the file."""
    async with opened(path) as store:
        await store.prepare()
        before = store.transactions
        with pytest.raises(UnicodeEncodeError):
            await store.reserve(reservation("\ud800"))
        assert store.transactions == before
        huge = reservation("r2", started_at="yesterday")
        async with trio.open_nursery() as nursery:
            with held(store, before="begin") as gate:
                nursery.start_soon(store.reserve, reservation("r1"))
                await gate.arrived()
                nursery.start_soon(_refused, store, huge)
                nursery.start_soon(store.reserve, reservation("r3"))
                await trio.testing.wait_all_tasks_blocked()
        assert [await state(store, f"r{number}") for number in (1, 2, 3)] == ["running", "free", "running"]


async def _refused(store: SqliteStore, entry: Any) -> None:
    with pytest.raises(UnexpectedError, match="cannot store TEXT value in REAL column"):
        await store.reserve(entry)


async def test_newcomers_are_not_refused_for_others_patience(path: Path) -> None:
    """When a wait for the file fails, callers that came during it wait on, up to their own limit."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.3)) as store:
        await store.prepare()
        outcomes: list[str] = []

        async def reserve(name: str) -> None:
            try:
                await store.reserve(reservation(name))
            except FileLockedError:
                outcomes.append(f"{name} locked")
                other.execute("ROLLBACK")
            else:
                outcomes.append(f"{name} reserved")

        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            async with trio.open_nursery() as nursery:
                with held(store, before="begin") as gate:
                    nursery.start_soon(reserve, "early")
                    await gate.arrived()
                    nursery.start_soon(reserve, "late")
                    await trio.testing.wait_all_tasks_blocked()
        assert outcomes == ["early locked", "late reserved"]


async def test_closing_waits_for_what_is_under_way(path: Path) -> None:
    """Callers that came before the end get their answers; those after it are refused."""
    async with opened(path) as store:
        await store.prepare()
        async with trio.open_nursery() as nursery:
            with held(store, before="commit") as gate:
                nursery.start_soon(store.reserve, reservation())
                await gate.arrived()
                nursery.start_soon(store.complete, identity(), "exec_1", VALUE, NOW)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(store.aclose)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(StoreClosedError):
                    await store.reserve(reservation("r2"))
    async with opened(path) as store:
        assert await state(store) == "completed"


async def test_closing_goes_on_if_cancelled(path: Path) -> None:
    """The file is closed in any case; a caller that waits for it may leave."""
    async with opened(path) as store:
        await store.reserve(reservation())
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.aclose()
        assert scope.cancelled_caught
        await store.aclose()
        assert store._database._connection is None


async def test_no_transaction_stays_open(path: Path) -> None:
    """Whatever happens to callers, others can write afterwards."""
    async with opened(path) as store:
        await store.prepare()
        for before in ("begin", "commit"):
            with held(store, before=before) as gate:
                async with trio.open_nursery() as nursery:
                    for number in range(5):
                        nursery.start_soon(store.reserve, reservation(f"r{number}"))
                    await gate.arrived()
                    nursery.cancel_scope.cancel()
            await store.get(identity())
            with raw(path) as other:
                other.execute("BEGIN IMMEDIATE")
                assert other.execute("SELECT count(*) FROM entries").fetchall() == [(0,)]
                other.execute("ROLLBACK")
