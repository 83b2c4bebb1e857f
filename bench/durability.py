"""What it costs that a retry is safe: calls per second with a request_id, on every kind of store, in one run.

The naive store is what one writes first: SQLite, fully synced, each reservation and each answer a transaction of its own. The others
are measured in turns with it and told as ratios, so that the speed of machine and disk cancels out. Before that, many ids go
through stores with a small retention, and it is told how much memory the process gains by that.

Run with ``python -m bench.durability [--rounds N] [--seconds S] [--ids N]``.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import trio

from carmy_engine import App, Engine, ExecutionRequest, MemoryStore
from carmy_engine.abc import IdempotencyStore, Identity, Outcome, Reservation, ReservationState
from carmy_engine.stores.sqlite import SqliteStore

CALLERS = (1, 32, 256)
RETENTION_SECONDS = 0.1
"""That small retention."""


class NaiveStore:
    """One transaction, and one trip to a thread, for each step. It knows only what the benchmark needs."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("CREATE TABLE entries (id TEXT PRIMARY KEY, execution_id TEXT, tool TEXT, data BLOB)")
        self._limiter = trio.CapacityLimiter(1)

    async def reserve(self, reservation: Reservation) -> Reservation | None:
        values = (reservation.identity.request_id, reservation.execution_id, reservation.tool)
        await self._run("INSERT INTO entries (id, execution_id, tool) VALUES (?, ?, ?)", values)
        return None

    async def complete(self, identity: Identity, execution_id: str, outcome: Outcome, finished_at: float) -> bool:
        values = (outcome.data_json, identity.request_id, execution_id)
        await self._run("UPDATE entries SET data = ? WHERE id = ? AND execution_id = ?", values)
        return True

    async def aclose(self) -> None:
        self._connection.close()

    async def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        await trio.to_thread.run_sync(self._transact, statement, values, limiter=self._limiter)

    def _transact(self, statement: str, values: tuple[Any, ...]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(statement, values)
        self._connection.execute("COMMIT")


STORES: dict[str, Callable[[Path], Any]] = {
    "naive": NaiveStore,
    "memory": lambda _: MemoryStore(max_entries=10**7, max_bytes=10**10),
    "sqlite normal": partial(SqliteStore, durability="normal"),
    "sqlite full": partial(SqliteStore, durability="full"),
}


def application(store: IdempotencyStore) -> App:
    app = App("bench").store(store)

    @app.tool(effect="write", parallel_safe=True)
    async def work(number: int) -> int:
        """Give it back."""
        return number

    return app


async def calls(engine: Engine, callers: int, seconds: float) -> float:
    """Calls per second of so many callers, each of which waits for its answer before it calls again."""
    done = 0
    begin = time.perf_counter()

    async def call(caller: int) -> None:
        nonlocal done
        number = 0
        while time.perf_counter() - begin < seconds:
            number += 1
            request = ExecutionRequest(
                tool="work", arguments={"number": number}, request_id=f"{callers}-{caller}-{number}"
            )
            (await engine.execute(request)).unwrap()
            done += 1

    async with trio.open_nursery() as nursery:
        for caller in range(callers):
            nursery.start_soon(call, caller)
    return done / (time.perf_counter() - begin)


def measure(make: Callable[[Path], Any], callers: int, seconds: float) -> float:
    async def main() -> float:
        async with application(make(Path(directory, "state.db"))).open() as engine:
            return await calls(engine, callers, seconds)

    with tempfile.TemporaryDirectory() as directory:
        return trio.run(main)


def growth(make: Callable[[Path], Any], ids: int) -> tuple[float, float]:
    """Megabytes that the process uses after a fifth of the ids, and what all the others have added."""

    async def main() -> tuple[float, float]:
        store = make(Path(directory, "state.db"))
        numbers = iter(range(ids))
        early = 0.0

        async def caller() -> None:
            nonlocal early
            for number in numbers:
                identity = Identity(principal="ana", session=None, scope="", request_id=f"{number}")
                entry = Reservation(
                    identity=identity,
                    fingerprint=b"f" * 32,
                    execution_id=f"exec_{number}",
                    state=ReservationState.RUNNING,
                    started_at=time.time(),
                    tool="work",
                )
                await store.reserve(entry)
                outcome = Outcome(execution_id=entry.execution_id, data_json=b"1")
                await store.complete(identity, entry.execution_id, outcome, time.time())
                if number == ids // 5:
                    early = used()
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(256):
                nursery.start_soon(caller)
        await store.aclose()
        return early, used() - early

    with tempfile.TemporaryDirectory() as directory:
        return trio.run(main)


def used() -> float:
    """Megabytes of memory that this process holds now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--ids", type=int, default=100_000, help="that go through stores with a small retention")
    options = parser.parse_args()
    print(f"{options.ids} ids, kept for {RETENTION_SECONDS:g} s")
    bounded: dict[str, Callable[[Path], Any]] = {
        "sqlite normal": partial(SqliteStore, durability="normal", retention=RETENTION_SECONDS),
        "memory": lambda _: MemoryStore(retention=RETENTION_SECONDS, max_entries=10**6),
    }
    for name, make in bounded.items():
        early, more = growth(make, options.ids)
        print(f"  {name:14} {early:6.0f} MB after a fifth of them, {more:+.0f} MB after all")
    for callers in CALLERS:
        found: dict[str, list[float]] = {name: [] for name in STORES}
        for _ in range(options.rounds):
            for name, make in STORES.items():
                found[name].append(measure(make, callers, options.seconds))
        naive = statistics.median(found["naive"])
        print(f"{callers} callers")
        for name, rates in found.items():
            rate = statistics.median(rates)
            print(f"  {name:14} {rate:8.0f} calls/s  {rate / naive:6.1f} x naive")


if __name__ == "__main__":
    main()
