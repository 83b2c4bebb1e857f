"""Libraries of asyncio in tools and state: a cancel reaches the server, and everything that was borrowed goes back."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import aiohttp.web
import asyncpg
import psycopg
import psycopg_pool
import pytest
import redis.asyncio
import sqlalchemy
import sqlalchemy.ext.asyncio as sqlalchemy_asyncio

from carmy_engine import AgentError, App, ExecutionRequest, State
from tests.host.app import request
from tests.host.drive import HOSTS, call_together, drive, pause, timed
from tests.support.services import POSTGRESQL, REDIS, needs_postgresql, needs_redis


@pytest.fixture
def name() -> str:
    """A name for the connections of one test, and for its table."""
    return f"carmy_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def observer(name: str) -> Iterator[psycopg.Connection]:
    """A connection that looks at those of the test, with a table of its name."""
    with psycopg.connect(POSTGRESQL, autocommit=True) as connection:
        connection.execute(f"create table {name} (number int)")
        yield connection
        connection.execute(f"drop table {name}")


def active(observer: psycopg.Connection, name: str) -> int:
    """The queries of the test that the server runs, and its open transactions."""
    found = observer.execute(
        "select count(*) from pg_stat_activity where application_name = %s and state <> 'idle'", (name,)
    ).fetchone()
    assert found is not None
    return int(found[0])


def count(observer: psycopg.Connection, name: str) -> int:
    found = observer.execute(f"select count(*) from {name}").fetchone()
    assert found is not None
    return int(found[0])


async def until_quiet(observer: psycopg.Connection, name: str, checked_out: Callable[[], int]) -> None:
    """Wait until the server has ended the queries of the test and the pool has its connections, of which it may replace some.

    Fails after ten seconds.
    """
    for _ in range(1000):
        if not active(observer, name) and not checked_out():
            return
        await pause(0.01)
    assert not active(observer, name)
    assert not checked_out()


def code(result: Any) -> str:
    return "ok" if result.error is None else result.error.code


Transaction = sqlalchemy_asyncio.AsyncSession


def make_app(library: str, name: str) -> tuple[App, Any]:
    """An application on one library's pool of at most five connections; and a function that counts those checked out."""
    app = App("shop", backend="asyncio")
    pools: list[Any] = []

    if library == "asyncpg":

        async def asyncpg_pool() -> AsyncIterator[asyncpg.Pool]:
            async with asyncpg.create_pool(
                POSTGRESQL, min_size=0, max_size=5, server_settings={"application_name": name}
            ) as pool:
                pools.append(pool)
                yield pool

        async def asyncpg_connection(pool: State[asyncpg.Pool]) -> AsyncIterator[asyncpg.Connection]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        app.provide(asyncpg_pool).provide(asyncpg_connection, scope="execution")

        @app.tool(effect="write", parallel_safe=True, name="insert")
        async def insert_asyncpg(connection: State[asyncpg.Connection], sleep: float = 0, fail: bool = False) -> int:
            """Insert a row."""
            await connection.execute(f"insert into {name} values (1)")
            await connection.execute("select pg_sleep($1)", sleep)
            if fail:
                raise AgentError("MINE", "no", "conflict")
            return 1

        return app, lambda: pools[0].get_size() - pools[0].get_idle_size()

    if library == "psycopg":

        async def psycopg_connections() -> AsyncIterator[psycopg_pool.AsyncConnectionPool]:
            async with psycopg_pool.AsyncConnectionPool(
                POSTGRESQL, min_size=0, max_size=5, kwargs={"application_name": name}, open=False
            ) as pool:
                pools.append(pool)
                yield pool

        async def psycopg_connection(
            pool: State[psycopg_pool.AsyncConnectionPool],
        ) -> AsyncIterator[psycopg.AsyncConnection]:
            async with pool.connection() as connection:
                yield connection

        app.provide(psycopg_connections).provide(psycopg_connection, scope="execution")

        @app.tool(effect="write", parallel_safe=True, name="insert")
        async def insert_psycopg(
            connection: State[psycopg.AsyncConnection], sleep: float = 0, fail: bool = False
        ) -> int:
            """Insert a row."""
            await connection.execute(f"insert into {name} values (1)")
            await connection.execute("select pg_sleep(%s)", (sleep,))
            if fail:
                raise AgentError("MINE", "no", "conflict")
            return 1

        def checked_out() -> int:
            stats = pools[0].get_stats()
            return int(stats["pool_size"] - stats["pool_available"])

        return app, checked_out

    async def sqlalchemy_engine() -> AsyncIterator[sqlalchemy_asyncio.AsyncEngine]:
        engine = sqlalchemy_asyncio.create_async_engine(
            POSTGRESQL.replace("postgresql:", "postgresql+asyncpg:"),
            pool_size=5,
            max_overflow=0,
            connect_args={"server_settings": {"application_name": name}},
        )
        pools.append(engine.pool)
        yield engine
        await engine.dispose()

    async def sqlalchemy_session(engine: State[sqlalchemy_asyncio.AsyncEngine]) -> AsyncIterator[Transaction]:
        async with sqlalchemy_asyncio.AsyncSession(engine) as session, session.begin():
            yield session

    app.provide(sqlalchemy_engine).provide(sqlalchemy_session, scope="execution")

    @app.tool(effect="write", parallel_safe=True, name="insert")
    async def insert_sqlalchemy(session: State[Transaction], sleep: float = 0, fail: bool = False) -> int:
        """Insert a row."""
        await session.execute(sqlalchemy.text(f"insert into {name} values (1)"))
        await session.execute(sqlalchemy.text("select pg_sleep(:sleep)"), {"sleep": sleep})
        if fail:
            raise AgentError("MINE", "no", "conflict")
        return 1

    return app, lambda: pools[0].checkedout()


@needs_postgresql
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("library", ["asyncpg", "psycopg", "sqlalchemy"])
def test_a_deadline_reaches_the_database(library: str, host: str, name: str, observer: psycopg.Connection) -> None:
    """The query is cancelled on the server, the transaction is rolled back and the connection goes back to its pool. A call that
    succeeds commits, and one that fails rolls back.
    """
    app, checked_out = make_app(library, name)

    async def main(engine: Any) -> None:
        assert code(await engine.execute(request("insert"))) == "ok"
        assert count(observer, name) == 1
        assert code(await engine.execute(request("insert", fail=True))) == "MINE"
        assert code(await engine.execute(timed("insert", 300, sleep=50))) == "TIMEOUT"
        await until_quiet(observer, name, checked_out)
        assert count(observer, name) == 1
        assert code(await engine.execute(request("insert"))) == "ok"
        assert count(observer, name) == 2

    drive(host, app, main)


@needs_postgresql
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("library", ["asyncpg", "psycopg", "sqlalchemy"])
def test_many_calls_with_random_cancels_leave_nothing_checked_out(
    library: str, host: str, name: str, observer: psycopg.Connection
) -> None:
    """After 200 calls at once, of which many are left at random moments, every row is that of an answered call, and no connection,
    query, task or thread is left.
    """
    app, checked_out = make_app(library, name)

    async def main(engine: Any) -> None:
        # Connections are made first: SQLAlchemy wakes no waiter of its pool when the making of a connection is cancelled.
        await call_together(engine, [request("insert", sleep=0.05)] * 5)
        requests = [ExecutionRequest(tool="insert", arguments={"sleep": 0.001}) for _ in range(200)]
        results = await call_together(engine, requests, leave=0.6)
        assert {code(result) for result in results} == {"ok"}
        await until_quiet(observer, name, checked_out)
        assert len(results) + 5 <= count(observer, name) < 205
        assert code(await engine.execute(request("insert"))) == "ok"

    drive(host, app, main)


@needs_redis
@pytest.mark.parametrize("host", HOSTS)
def test_a_deadline_ends_the_wait_for_redis(host: str, name: str) -> None:
    """The wait of a blocking command ends, and its connection is not used again."""
    app = App("queue", backend="asyncio")
    clients: list[Any] = []

    async def client() -> AsyncIterator[redis.asyncio.Redis]:
        async with redis.asyncio.from_url(REDIS, client_name=name) as made:
            clients.append(made)
            yield made

    @app.provide(client).tool(effect="write", parallel_safe=True)
    async def pop(client: State[redis.asyncio.Redis], key: str) -> str | None:
        """Wait for an item."""
        found: Any = await client.blpop([key], timeout=50)
        return None if found is None else found[1].decode()

    @app.tool(effect="write", parallel_safe=True)
    async def push(client: State[redis.asyncio.Redis], key: str, value: str) -> int:
        """Add an item."""
        added: Any = await client.rpush(key, value)
        return int(added)

    async def main(engine: Any) -> None:
        assert (await engine.execute(request("push", key=name, value="first"))).data == 1  # connects
        assert (await engine.execute(request("pop", key=name))).data == "first"
        assert code(await engine.execute(timed("pop", 200, key=name))) == "TIMEOUT"
        assert clients[0].connection_pool._in_use_connections == set()
        # No wait that was left takes the item.
        assert (await engine.execute(request("push", key=name, value="a"))).data == 1
        assert (await engine.execute(request("pop", key=name))).data == "a"

    drive(host, app, main)


@contextmanager
def web_server() -> Iterator[tuple[str, list[str]]]:
    """A server that never answers under ``/slow``, and writes down what happens to its requests."""
    log: list[str] = []
    loop = asyncio.new_event_loop()

    async def slow(_: aiohttp.web.Request) -> aiohttp.web.Response:
        log.append("slow")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("client gone")
        raise AssertionError

    async def fast(_: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.json_response({"fine": True})

    async def start() -> tuple[aiohttp.web.AppRunner, int]:
        application = aiohttp.web.Application()
        application.add_routes([aiohttp.web.get("/slow", slow), aiohttp.web.get("/fast", fast)])
        runner = aiohttp.web.AppRunner(application, handler_cancellation=True)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    runner, port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}", log
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_deadline_closes_a_request(host: str) -> None:
    """A request of aiohttp is closed at the deadline, which its server sees; the session is closed with the application."""
    app = App("web", backend="asyncio")

    async def session() -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession() as made:
            yield made

    @app.provide(session).tool(effect="read", parallel_safe=True)
    async def fetch(session: State[aiohttp.ClientSession], url: str) -> dict[str, bool]:
        """Fetch a document."""
        async with session.get(url) as response:
            document: dict[str, bool] = await response.json()
            return document

    with web_server() as (url, log):

        async def main(engine: Any) -> None:
            assert code(await engine.execute(timed("fetch", 200, url=f"{url}/slow"))) == "TIMEOUT"
            requests = [ExecutionRequest(tool="fetch", arguments={"url": f"{url}/slow"}, timeout_ms=200)] * 50
            assert {code(result) for result in await call_together(engine, requests, leave=0.5)} == {"TIMEOUT"}
            assert (await engine.execute(request("fetch", url=f"{url}/fast"))).data == {"fine": True}

        drive(host, app, main)
    assert log.count("client gone") == log.count("slow") > 0
