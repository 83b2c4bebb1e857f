"""The engine on a store that outlives it: what a retry gets after the end of one process, in the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
import trio
import trio.testing

from carmy_engine import App, ConfigurationError, ExecutionRequest, ExecutionResult
from carmy_engine.abc import ReservationState
from carmy_engine.stores.sqlite import SqliteLimits, SqliteStore
from carmy_engine.stores.sqlite._schema import MIGRATIONS
from tests.stores.kit import held, identity


def make(path: Path, **options: Any) -> tuple[App, list[str]]:
    """An application on a file, and what its tools have done. Each run needs a store of its own, unless there is one run."""
    app = App("shop").store(SqliteStore(path, **options) if options else f"sqlite:{path}")
    done: list[str] = []

    @app.tool(effect="write", parallel_safe=True)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(f"paid {amount}")
        return f"receipt {len(done)}"

    @app.tool(effect="read", parallel_safe=True)
    async def look() -> str:
        """Look."""
        done.append("looked")
        return "seen"

    @app.tool(effect="write", idempotent=True, parallel_safe=True)
    async def put() -> str:
        """Put."""
        done.append("put")
        return "there"

    return app, done


async def call(app: App, tool: str, request_id: str = "r1", **arguments: Any) -> ExecutionResult:
    """One call, in an engine of its own."""
    async with app.open() as engine:
        return await engine.execute(ExecutionRequest(tool=tool, arguments=arguments, request_id=request_id))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_a_retry_after_a_restart(path: Path) -> None:
    """The answer of the first process is replayed by the second, to the byte; another request is refused."""
    app, done = make(path)
    first = await call(app, "pay", amount=5)
    again = await call(app, "pay", amount=5)
    assert (first.replayed, again.replayed) == (False, True)
    assert first.data_json == again.data_json
    assert first.execution_id == again.execution_id
    other = await call(app, "pay", amount=6)
    assert other.error is not None
    assert other.error.code == "IDEMPOTENCY_CONFLICT"
    assert done == ["paid 5"]


@pytest.mark.parametrize(("tool", "arguments"), [("pay", {"amount": 5}), ("look", {}), ("put", {})])
async def test_a_retry_after_a_death(path: Path, tool: str, arguments: dict[str, Any]) -> None:
    """An attempt that died with its process: a write is in doubt, what may be repeated runs."""
    app, done = make(path)
    died = SqliteStore(path)
    async with app.open() as engine:
        seen: list[Any] = []
        store = engine._pipeline.reservations._store
        usual = store.reserve

        async def reserve(reservation: Any) -> Any:
            if not seen:
                seen.append(reservation)
                await died.reserve(reservation)
                await died.aclose()  # leaves it running, so it is interrupted: as good as dead
            return await usual(reservation)

        store.reserve = reserve  # type: ignore[method-assign]
        request = ExecutionRequest(tool=tool, arguments=arguments, request_id="r1")
        for _ in range(2):
            result = await engine.execute(request)
            if tool == "pay":
                assert result.error is not None
                assert result.error.code == "EXECUTION_UNCERTAIN"
                assert result.error.details is not None
                assert result.error.details["state"] == "interrupted"
                assert done == []
            else:
                result.unwrap()
                assert len(done) == 1


async def test_what_a_caller_is_told_of_a_store_that_cannot_be_used(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool is not run; the answer has the reason in a word, and no path; calls without a request_id go on."""
    app, done = make(path, limits=SqliteLimits(patience_secs=0.05))
    async with app.open() as engine:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        result = await engine.execute(ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id="r1"))
        assert result.error is not None
        assert result.error.code == "STORE_ERROR"
        assert result.error.retryable
        assert result.error.details == {"ran": False, "reason": "locked"}
        assert str(path) not in str(result.error)
        assert done == []
        assert (await engine.execute(ExecutionRequest(tool="pay", arguments={"amount": 5}))).data == "receipt 1"
        other.close()
        again = await engine.execute(ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id="r1"))
        assert again.data == "receipt 2"
    assert str(path) in caplog.text


async def test_a_deadline_does_not_wait_for_the_file(path: Path) -> None:
    """A call whose reservation does not come through ends with its deadline, whatever the file does; its id is free."""
    app, done = make(path)
    async with app.open() as engine:
        store = engine._pipeline.reservations._store
        assert isinstance(store, SqliteStore)
        for before in ("begin", "commit"):
            with trio.fail_after(10), held(store, before=before):
                request = ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id=before, timeout_ms=50)
                result = await engine.execute(request)
                assert result.error is not None
                assert result.error.code == "TIMEOUT"
                assert result.error.details is not None
                assert result.error.details["phase"] == "waiting"
            assert done == []
            await store.get(identity())  # the thread is through
        for before in ("begin", "commit"):
            request = ExecutionRequest(tool="pay", arguments={"amount": 5}, request_id=before)
            assert not (await engine.execute(request)).replayed
    assert done == ["paid 5"] * 2


async def test_what_ran_and_could_not_be_recorded(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The answer states that the tool ran, why it is not recorded, and carries the value; it is recorded once that works."""
    app, _ = make(path, limits=SqliteLimits(patience_secs=0.05))
    other = apsw.Connection(":memory:")
    done: list[str] = []

    @app.tool(effect="write", parallel_safe=True)
    async def lock_and_pay() -> str:
        """Pay, and meanwhile somebody takes hold of the file."""
        done.append("paid")
        other.execute("BEGIN IMMEDIATE")
        return "receipt"

    async with app.open() as engine:
        other = apsw.Connection(str(path))
        request = ExecutionRequest(tool="lock_and_pay", request_id="r1")
        result = await engine.execute(request)
        assert result.error is not None
        assert result.error.code == "STORE_ERROR"
        assert not result.error.retryable
        details = dict(result.error.details or {})
        assert msgspec.json.decode(msgspec.json.encode(details)) == {"ran": True, "reason": "locked", "data": "receipt"}
        other.close()
        again = await engine.execute(request)
        assert again.data == "receipt"
        assert again.replayed
    assert done == ["paid"]


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_shutdown_leaves_what_is_true(path: Path, when: str) -> None:
    """A write that a shutdown cuts off is in doubt for the next process, and free if it had not begun."""
    app, done = make(path)
    begun = trio.Event()

    @app.tool(effect="write")
    async def slow(tag: str) -> str:
        """Take long."""
        done.append(tag)
        begun.set()
        await trio.sleep_forever()
        return ""

    results: dict[str, ExecutionResult] = {}

    async def start(tag: str) -> None:
        results[tag] = await engine.execute(ExecutionRequest(tool="slow", arguments={"tag": tag}, request_id=tag))

    async with trio.open_nursery() as nursery, app.open() as engine:
        nursery.start_soon(start, "running")
        await begun.wait()
        nursery.start_soon(start, "waiting")
        await trio.testing.wait_all_tasks_blocked()
    store = SqliteStore(path)
    entries = await _entries(store)
    await store.aclose()
    assert entries.get(when) == (ReservationState.INTERRUPTED if when == "running" else None)
    error = results[when].error
    assert error is not None
    assert error.code == "SHUTTING_DOWN"


async def _entries(store: SqliteStore) -> dict[str, ReservationState]:
    await store.prepare()
    connection = store._database._connection
    assert connection is not None
    return {name: ReservationState(state) for name, state in connection.rows("SELECT request_id, state FROM entries")}


async def test_a_newer_file_keeps_from_starting(path: Path) -> None:
    """An application on a file of a later version does not start, and gives the reason."""
    app, _ = make(path)
    await call(app, "look")
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(ConfigurationError, match=r"store\.url: .*state\.db was written by a newer version"):
        await call(app, "look")


async def test_a_store_that_is_closed_keeps_from_starting(path: Path) -> None:
    """A store ends with its engine: the next engine on the same object reports it at once, instead of refusing every retry."""
    app, done = make(path)
    app.store(SqliteStore(path))
    assert (await call(app, "pay", amount=5)).data == "receipt 1"
    with pytest.raises(ConfigurationError, match=r"state\.db was closed with the engine that used it"):
        await call(app, "pay", amount=5)
    app.store(SqliteStore(path))
    assert (await call(app, "pay", amount=5)).replayed
    assert done == ["paid 5"]


async def test_many_callers(path: Path) -> None:
    """Calls at the same time each get their own answer, share transactions, and are all there afterwards."""
    app, done = make(path)
    results: list[ExecutionResult] = []

    async def start(number: int, run: Callable[[ExecutionRequest], Any]) -> None:
        request = ExecutionRequest(tool="pay", arguments={"amount": number % 50}, request_id=f"r{number % 50}")
        results.append(await run(request))

    async with app.open() as engine, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(start, number, engine.execute)
    assert sorted(done) == sorted(f"paid {number}" for number in range(50))
    assert sum(result.error is None and not result.replayed for result in results) == 50
    store = SqliteStore(path)
    assert set((await _entries(store)).values()) == {ReservationState.COMPLETED}
    await store.aclose()
