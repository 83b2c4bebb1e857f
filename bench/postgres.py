"""Reservations per second in PostgreSQL, beside a store that writes each in a transaction of its own; and from two processes.

The naive store has a pool of connections, and a thread for each caller. Both are measured in turns, and reported as ratios of medians.
It needs a server: ``CARMY_TEST_POSTGRESQL``, or the one at 127.0.0.1:5432.

Run with ``python -m bench.postgres [--rounds N] [--seconds S]``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import psycopg_pool
import trio

from carmy_engine.abc import Identity, Reservation, ReservationState
from carmy_engine.stores.postgres import PostgresStore

URL = os.environ.get("CARMY_TEST_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/postgres")
CALLERS = 32


class NaiveStore:
    """One transaction, one connection and one trip to a thread for each reservation."""

    def __init__(self, schema: str) -> None:
        options = {"options": f"-c search_path={schema}"}
        self._pool = psycopg_pool.ConnectionPool(URL, min_size=8, max_size=8, kwargs=options, open=True)
        with self._pool.connection() as connection:
            connection.cursor().execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.cursor().execute(
                "CREATE TABLE IF NOT EXISTS entries (principal text, request_id text, fingerprint bytea, execution_id text,"
                " tool text, started_at float8, PRIMARY KEY (principal, request_id))"
            )

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        await trio.to_thread.run_sync(self._insert, reservation)
        return None

    def _insert(self, new: Reservation) -> None:
        identity = new.identity
        values = (identity.principal, identity.request_id, new.fingerprint, new.execution_id, new.tool, new.started_at)
        with self._pool.connection() as connection:
            connection.execute("INSERT INTO entries VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", values)

    async def aclose(self) -> None:
        self._pool.close()


def ours(schema: str) -> PostgresStore:
    return PostgresStore(URL, schema=schema)


async def reserve_all(store: Any, seconds: float) -> float:
    """Reservations per second of the callers, each of which waits for its own before the next."""
    done = 0
    begin = time.perf_counter()
    run = uuid.uuid4().hex

    async def caller(number: int) -> None:
        nonlocal done
        count = 0
        while time.perf_counter() - begin < seconds:
            count += 1
            name = f"{run}-{number}-{count}"
            identity = Identity(principal="ana", session=None, scope="", request_id=name)
            await store.reserve(
                Reservation(
                    identity=identity,
                    fingerprint=b"f" * 32,
                    execution_id=f"exec_{name}",
                    state=ReservationState.RUNNING,
                    started_at=time.time(),
                    tool="pay",
                )
            )
            done += 1

    async with trio.open_nursery() as nursery:
        for number in range(CALLERS):
            nursery.start_soon(caller, number)
    return done / (time.perf_counter() - begin)


def measure(make: Callable[[str], Any], schema: str, seconds: float) -> float:
    async def main() -> float:
        store = make(schema)
        if isinstance(store, PostgresStore):
            await store.prepare()
        rate = await reserve_all(store, seconds)
        await store.aclose()
        return rate

    return trio.run(main)


def measure_two(schema: str, seconds: float) -> float:
    """The sum of two processes on one schema."""
    command = [sys.executable, "-m", "bench.postgres", "--one", schema, "--seconds", str(seconds)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return sum(float(process.communicate()[0]) for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--one", help="measure the store once, in this schema, and print its rate")
    options = parser.parse_args()
    if options.one:
        print(measure(ours, options.one, options.seconds))
        return
    rates: dict[str, list[float]] = {"naive": [], "one process": [], "two processes": []}
    schemas = [f"bench_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    try:
        for _ in range(options.rounds):
            rates["naive"].append(measure(NaiveStore, schemas[0], options.seconds))
            rates["one process"].append(measure(ours, schemas[1], options.seconds))
            rates["two processes"].append(measure_two(schemas[1], options.seconds))
    finally:
        with psycopg.connect(URL, autocommit=True) as connection:
            for schema in schemas:
                connection.cursor().execute(f"SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema} CASCADE")
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, rate in medians.items():
        print(f"{name:15} {rate:9,.0f} reservations/s   {rate / medians['naive']:5.2f} x naive")
    print(f"two processes / one: {medians['two processes'] / medians['one process']:.2f}")


if __name__ == "__main__":
    main()
