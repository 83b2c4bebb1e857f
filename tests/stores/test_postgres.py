"""The store in PostgreSQL: leases and fencing tokens, lost connections, and processes that share it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import trio

from carmy_engine import App, ConfigurationError, ExecutionRequest
from carmy_engine.abc import IdempotencyStore, ReservationState
from carmy_engine.stores.postgres import (
    DamagedEntryError,
    LeaseLostError,
    NotTextError,
    PostgresLimits,
    PostgresStore,
    UnreachableError,
)
from tests.stores.kit import VALUE, identity, reservation, state
from tests.support.services import POSTGRESQL, expire_leases, needs_postgresql, new_schema

pytestmark = needs_postgresql


@pytest.fixture
def schema() -> Iterator[str]:
    """The name of a schema that does not exist."""
    with new_schema() as name:
        yield name


@asynccontextmanager
async def opened(schema: str, url: str = POSTGRESQL, **options: Any) -> AsyncIterator[PostgresStore]:
    """A store, closed afterwards."""
    store = PostgresStore(url, schema=schema, **options)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True, relative_deadline=20):
            await store.aclose()


def rows(schema: str, query: str) -> list[tuple[Any, ...]]:
    """The result of a query, in the schema."""
    with psycopg.connect(POSTGRESQL, options=f"-c search_path={schema}") as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


async def test_an_entry_of_an_expired_lease_is_in_doubt(schema: str) -> None:
    """When a lease has expired, others see its running entries as interrupted, and find a record of each."""
    async with opened(schema) as late, opened(schema) as other:
        assert await late.reserve(reservation()) is None
        found = await other.reserve(reservation(execution_id="exec_2"))
        assert found is not None
        assert found.state is ReservationState.RUNNING
        expire_leases(schema)
        found = await other.reserve(reservation(execution_id="exec_2"))
        assert found is not None
        assert found.state is ReservationState.INTERRUPTED
        (record,) = await other.records()
        assert (record.execution_id, record.error_code) == ("exec_1", "EXECUTION_UNCERTAIN")


@pytest.mark.parametrize("ending", ["complete", "release", "interrupt"])
async def test_a_late_ending_is_refused(schema: str, ending: str) -> None:
    """After another process has taken over, an ending of the late owner changes nothing; one of an operator does."""

    async def end(store: IdempotencyStore) -> bool:
        if ending == "complete":
            return await store.complete(identity(), "exec_1", VALUE, time.time())
        if ending == "release":
            return await store.release(identity(), "exec_1")
        return await store.interrupt(identity(), "exec_1", None, time.time())

    async with opened(schema) as late, opened(schema) as other:
        await late.reserve(reservation())
        expire_leases(schema)
        assert await state(other) == "interrupted"
        assert not await end(late)
        assert await state(late) == "interrupted"
        assert await end(other) is (ending != "interrupt")


async def test_an_expired_lease_that_no_process_has_noticed(schema: str) -> None:
    """An owner that is late, but before all others, records its ending."""
    async with opened(schema) as late:
        await late.reserve(reservation())
        expire_leases(schema)
        assert await late.complete(identity(), "exec_1", VALUE, time.time())
        assert await state(late) == "completed"


async def test_a_released_id_that_runs_elsewhere(schema: str) -> None:
    """A late owner cannot end the entry of the execution that has taken its place."""
    async with opened(schema) as late, opened(schema) as other:
        await late.reserve(reservation())
        expire_leases(schema)
        assert await state(other) == "interrupted"
        assert await other.release(identity(), "exec_1")
        assert await other.reserve(reservation(execution_id="exec_2")) is None
        assert not await late.complete(identity(), "exec_1", VALUE, time.time())
        assert await other.complete(identity(), "exec_2", VALUE, time.time())


async def test_executions_that_have_lost_their_lease_are_cancelled(schema: str) -> None:
    """When the lease is lost, the engine cancels the executions whose entries others may take over."""
    store = PostgresStore(POSTGRESQL, schema=schema, limits=PostgresLimits(lease_secs=0.3))
    app = App("shop").store(store)
    begun = trio.Event()

    @app.tool(effect="write")
    async def pay() -> str:
        """Pay."""
        begun.set()
        await trio.sleep_forever()
        return "paid"

    results: list[Any] = []

    async with app.open() as engine, opened(schema) as other:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    results.append(
                        await engine.execute(ExecutionRequest(tool="pay", request_id="r1", timeout_ms=25_000))
                    )

                nursery.start_soon(call)
                await begun.wait()
                while not results:
                    expire_leases(schema)
                    await other.entries()  # buries the owner, unless it has renewed its lease meanwhile
                    await trio.sleep(0.01)
        (left,) = await other.entries()
    assert results[0].error.code == "SHUTTING_DOWN"
    assert left.state is ReservationState.INTERRUPTED


async def test_a_reservation_whose_lease_ran_out_at_once(schema: str) -> None:
    """A process that was stopped between the reservation and the tool does not run it."""
    async with opened(schema) as store:
        await store.prepare()
        store._lease._expires = 0.0
        with pytest.raises(LeaseLostError):
            await store.reserve(reservation())
        assert await state(store) == "free"


async def test_many_processes_make_the_tables(schema: str) -> None:
    """Stores that open a new schema at the same time all find it complete."""
    stores = [PostgresStore(POSTGRESQL, schema=schema) for _ in range(8)]
    async with trio.open_nursery() as nursery:
        for store in stores:
            nursery.start_soon(store.prepare)
    for number, store in enumerate(stores):
        assert await store.reserve(reservation(f"r{number}")) is None
        await store.aclose()
    assert rows(schema, "SELECT count(*), count(DISTINCT state) FROM entries") == [(8, 1)]


async def test_callers_share_transactions(schema: str) -> None:
    """Callers that arrive while a transaction is written share the next one."""
    async with opened(schema) as store:
        await store.prepare()
        before = store.transactions
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(store.reserve, reservation(f"r{number}", f"exec_{number}"))
        assert store.transactions - before < 50
        assert rows(schema, "SELECT sum(entries), sum(bytes) FROM totals") == rows(
            schema, "SELECT count(*), sum(bytes) FROM entries"
        )


@contextmanager
def losing(monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool) -> Iterator[Callable[[], bool]]:
    """The server closes the connection before, or after, a statement of the writer; whether it did is the value."""
    usual = psycopg.Connection.execute
    count = 0

    def execute(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        mine = count == number
        if mine and not after:
            _kill(self)
        result = usual(self, *arguments, **options)
        if mine and after:
            _kill(self)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "execute", execute)
        yield lambda: count >= number


def _kill(connection: psycopg.Connection) -> None:
    with psycopg.connect(POSTGRESQL, autocommit=True) as other:
        other.cursor().execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_connection_that_breaks_at_any_statement(
    schema: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Every method does its work once, whichever statement the connection breaks at."""
    number = 0
    lost = True
    async with opened(schema) as store:
        await store.prepare()
        while lost:
            number += 1
            one = f"r{number}"
            with losing(monkeypatch, number, after=after) as was_lost:
                assert await store.reserve(reservation(one)) is None
                assert await store.complete(identity(one), "exec_1", VALUE, time.time())
                assert await state(store, one) == "completed"
                lost = was_lost()
    assert number > 5
    assert rows(schema, "SELECT sum(entries), sum(bytes) FROM totals") == rows(
        schema, "SELECT count(*), sum(bytes) FROM entries"
    )


async def test_a_commit_whose_answer_is_lost(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that was committed is not repeated when the connection breaks before its answer."""
    usual = psycopg.Transaction.__exit__
    lost = 0

    def leave(self: Any, *arguments: Any) -> Any:
        nonlocal lost
        result = usual(self, *arguments)
        lost += 1
        if lost % 2:
            self.connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    async with opened(schema) as store:
        await store.prepare()
        monkeypatch.setattr(psycopg.Transaction, "__exit__", leave)
        assert await store.reserve(reservation()) is None
        assert await store.complete(identity(), "exec_1", VALUE, time.time())
        assert not await store.complete(identity(), "exec_1", VALUE, time.time())
        monkeypatch.undo()
        assert await state(store) == "completed"
    assert rows(schema, "SELECT sum(entries) FROM totals") == [(1,)]


class Relay:
    """A relay to the server that can be cut.

    Attributes:
        url: Of the server, through the relay.
    """

    def __init__(self) -> None:
        self._connections = trio.CancelScope()
        self._is_cut = False
        self.url = ""

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        self._is_cut = True
        self._connections.cancel()

    def restore(self) -> None:
        self._is_cut = False
        self._connections = trio.CancelScope()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        parts = urlsplit(POSTGRESQL)
        assert parts.port is not None

        async def copy(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
            try:
                async for data in source:
                    await sink.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            scope.cancel()

        async def relay(stream: trio.SocketStream) -> None:
            if self._is_cut:
                return
            with self._connections:
                server = await trio.open_tcp_stream(parts.hostname or "127.0.0.1", parts.port or 5432)
                async with server, trio.open_nursery() as nursery:
                    nursery.start_soon(copy, stream, server, nursery.cancel_scope)
                    nursery.start_soon(copy, server, stream, nursery.cancel_scope)

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        self.url = parts._replace(netloc=f"{parts.username or 'postgres'}@127.0.0.1:{port}").geturl()
        async with trio.open_nursery() as nursery:
            task_status.started()
            await trio.serve_listeners(relay, [listener], handler_nursery=nursery)


async def test_a_server_that_is_away(schema: str, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    """While the server is away, calls are refused; endings are recorded as soon as it is back, before all else."""
    relay = Relay()
    await nursery.start(relay.serve)
    async with opened(schema, relay.url, limits=PostgresLimits(patience_secs=0.2)) as store:
        assert await store.reserve(reservation()) is None
        relay.cut()
        with pytest.raises(UnreachableError):
            await store.complete(identity(), "exec_1", VALUE, time.time())
        with pytest.raises(UnreachableError):
            await store.reserve(reservation("r2"))
        relay.restore()
        assert await state(store) == "completed"
        assert await state(store, "r2") == "free"
    nursery.cancel_scope.cancel()


async def test_a_server_that_is_away_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """An engine starts without its server, and refuses what needs a request_id; the password is in no message."""
    with caplog.at_level(logging.ERROR, "carmy.engine"):
        store = PostgresStore("postgresql://ana:secret@127.0.0.1:1/shop", limits=PostgresLimits(patience_secs=0.1))
        await store.prepare()
        with pytest.raises(UnreachableError) as told:
            await store.reserve(reservation())
        await store.aclose()
    assert "calls with a request_id will be refused" in caplog.text
    assert "secret" not in caplog.text + str(told.value) + store.name


async def test_a_malformed_url() -> None:
    """A URL that libpq does not understand is refused, without its text."""
    with pytest.raises(ConfigurationError) as told:
        PostgresStore("postgresql://ana:secret@[host/shop")
    assert "secret" not in str(told.value)


async def test_the_settings(schema: str) -> None:
    """`store.url` and `store.lease_secs` make the store; an unknown user is reported by `check`."""
    app = App("shop").store(f"{POSTGRESQL}?schema={schema}")

    @app.tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    for replayed in (False, True):
        async with app.open() as engine:
            result = await engine.execute(ExecutionRequest(tool="pay", request_id="r1"))
            assert (result.data, result.replayed) == ("paid", replayed)
    async with opened(schema, POSTGRESQL.replace("postgres@", "nobody_here@")) as unknown:
        with pytest.raises(ConfigurationError, match="does not exist"):
            await unknown.check()


async def test_text_that_the_server_cannot_hold(schema: str) -> None:
    """A principal with U+0000 is refused for itself; other callers of the same transaction are not."""
    async with opened(schema) as store:
        odd = reservation()
        odd = reservation("r2", identity=type(odd.identity)(principal="a\0b", session=None, scope="", request_id="r2"))
        with pytest.raises(NotTextError):
            await store.reserve(odd)
        with pytest.raises(NotTextError):
            await store.get_confirmation("conf_\0", now=0.0)
        with pytest.raises(NotTextError):
            await store.entries(tool="\0")
        assert await store.reserve(reservation()) is None


async def test_a_damaged_entry(schema: str) -> None:
    """An entry that is not what was written is an error of its own calls, and of no others in the same transaction."""
    async with opened(schema) as store:
        await store.reserve(reservation())
        await store.complete(identity(), "exec_1", VALUE, time.time())
        with psycopg.connect(POSTGRESQL, autocommit=True) as connection:
            connection.cursor().execute(f"UPDATE {schema}.entries SET data = 'other'")
        outcomes: list[object] = []

        async def reserve(number: int) -> None:
            try:
                outcomes.append(await store.reserve(reservation(f"r{number}", f"exec_{number}0")))
            except DamagedEntryError as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(1, 20):
                nursery.start_soon(reserve, number)
        assert outcomes.count(None) == 18
        with pytest.raises(DamagedEntryError, match="checksum"):
            await store.get(identity())


async def test_a_lost_schema(schema: str) -> None:
    """Tables that were dropped are an error of the store, not a crash; a new process makes them anew."""
    async with opened(schema) as store:
        await store.reserve(reservation())
        rows_gone = f"DROP SCHEMA {schema} CASCADE"
        with psycopg.connect(POSTGRESQL, autocommit=True) as connection:
            connection.execute("SET client_min_messages = error")
            connection.execute(rows_gone)  # type: ignore[call-overload]
        with pytest.raises(Exception, match="refuses this user or its statements"):
            await store.reserve(reservation("r2"))
    async with opened(schema) as anew:
        assert await anew.reserve(reservation()) is None
