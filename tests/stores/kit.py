"""What the tests of the SQLite store share."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import trio

from carmy_engine.abc import IdempotencyStore, Identity, Outcome, Reservation, ReservationState
from carmy_engine.stores.sqlite import SqliteStore
from carmy_engine.stores.sqlite._database import Database


def identity(request_id: str = "r1") -> Identity:
    return Identity(principal="ana", session=None, scope="", request_id=request_id)


def reservation(request_id: str = "r1", execution_id: str = "exec_1", **changes: Any) -> Reservation:
    """A running entry."""
    base = Reservation(
        identity=identity(request_id),
        fingerprint=b"f" * 32,
        execution_id=execution_id,
        state=ReservationState.RUNNING,
        started_at=1_700_000_000.0,
        tool="pay",
    )
    return msgspec.structs.replace(base, **changes)


NOW = 1_700_000_010.0
"""What the clock of `opened` stores says."""

VALUE = Outcome(execution_id="exec_1", data_json=b'"paid"')


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    """A store on a file, closed afterwards."""
    store = SqliteStore(path, **{"durability": "normal", "clock": lambda: NOW, **options})
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True, relative_deadline=20):
            await store.aclose()


async def state(store: IdempotencyStore, request_id: str = "r1") -> str:
    """The state of an entry; ``free`` without one."""
    entry = await store.get(identity(request_id))
    return "free" if entry is None else entry.state.value


@contextmanager
def raw(path: Path) -> Iterator[apsw.Connection]:
    """The file, as another program sees it. In no transaction unless one is begun.

    Not with the module sqlite3: two copies of SQLite in one process do not see each other's locks.
    """
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


class Gate:
    """Holds a store's thread at the end of a transaction's work, before the commit, or before its beginning.

    Attributes:
        reached: Set in the thread when it is there.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    async def arrived(self) -> None:
        """Wait until the thread is there."""
        with trio.fail_after(10):
            await trio.to_thread.run_sync(self.reached.wait, abandon_on_cancel=True)

    def hold(self) -> None:
        """In the thread."""
        self.reached.set()
        assert self._go.wait(20)

    def open(self) -> None:
        self._go.set()


@contextmanager
def held(store: SqliteStore, *, before: str) -> Iterator[Gate]:
    """Hold the store's next transaction before its ``begin`` or its ``commit``; it goes on when the block ends, or earlier."""
    gate = Gate()
    database: Database = store._database
    usual = database.transaction

    @contextmanager
    def transaction() -> Iterator[Any]:
        if before == "begin":
            gate.hold()
        with usual() as entries:
            yield entries
            if before == "commit":
                gate.hold()

    database.transaction = transaction  # type: ignore[method-assign]
    try:
        yield gate
    finally:
        gate.open()
        database.transaction = usual  # type: ignore[method-assign]
