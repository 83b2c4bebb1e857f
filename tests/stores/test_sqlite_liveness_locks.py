"""Who is alive: running entries of the dead are in doubt, those of the living are not, whatever clocks and numbers say."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from carmy_engine.stores._rows import pack
from carmy_engine.stores.sqlite import FileLockedError
from carmy_engine.stores.sqlite._liveness_locks import LivenessLocks
from carmy_engine.stores.sqlite._schema import APPLICATION_ID, MIGRATIONS
from tests.stores.kit import NOW, VALUE, identity, opened, raw, reservation, state

HOLDER = """
import sys, trio
from tests.stores.kit import opened, reservation

async def main():
    async with opened(sys.argv[1]) as store:
        for name in sys.argv[2:]:
            assert await store.reserve(reservation(name)) is None
        print("reserved", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@asynccontextmanager
async def holder(path: Path, *names: str) -> AsyncIterator[trio.Process]:
    """A process that has reserved these ids and goes on running, until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(path), *names]
    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            run = partial(trio.run_process, stdout=-1, check=False, cwd=Path(__file__).parents[2], deliver_cancel=_kill)
            process = await nursery.start(run, command)
            told = b""
            while not told.endswith(b"\n"):
                told += await process.stdout.receive_some(100)
            assert told == b"reserved\n"
            yield process
            process.kill()
            await process.wait()


async def _kill(process: trio.Process) -> None:
    process.kill()


async def test_entries_of_the_living_are_running(path: Path) -> None:
    """Another process's reservation is running for as long as that process is, for stores opened before and after."""
    async with opened(path) as before:
        await before.prepare()
        async with holder(path, "r1"), opened(path) as after:
            for store in (before, after):
                entry = await store.reserve(reservation(execution_id="exec_2"))
                assert entry is not None
                assert entry.state.value == "running"


async def test_survivors_learn_of_a_death(path: Path) -> None:
    """When a process is killed, what it had running is interrupted for the others at once, and never free."""
    async with opened(path) as store:
        async with holder(path, "r1", "r2") as process:
            assert await state(store) == "running"
            process.kill()
            await process.wait()
            entry = await store.reserve(reservation(execution_id="exec_2"))
        assert entry is not None
        assert entry.state.value == "interrupted"
        assert entry.execution_id == "exec_1"
        assert entry.cause is None
        assert entry.finished_at == NOW
        assert await state(store, "r2") == "interrupted"


async def test_a_death_is_on_record(path: Path) -> None:
    """The audit trail has what a killed process was running, once, whichever process notices; what was closed in order is not in it."""
    async with opened(path) as store:
        await store.reserve(reservation("closed"))
    async with holder(path, "r1", "r2"):
        pass
    for _ in range(2):
        async with opened(path) as store:
            assert await state(store) == "interrupted"
            records = await store.records()
            assert sorted(each.request_id or "" for each in records) == ["r1", "r2"]
            for each in records:
                assert (each.status.value, each.error_code, each.tool) == ("cancelled", "EXECUTION_UNCERTAIN", "pay")
                assert (each.principal, each.started_at) == ("ana", reservation().started_at)


async def test_the_next_start_learns_of_a_death(path: Path) -> None:
    """Opening the file settles what the dead have left, before anybody asks for it."""
    async with holder(path, "r1"):
        pass
    async with opened(path) as store:
        await store.prepare()
        with raw(path) as connection:
            assert connection.execute("SELECT state, owner FROM entries").fetchall() == [("interrupted", None)]
            assert connection.execute("SELECT count(*) FROM owners").fetchall() == [(1,)]


async def test_clocks_and_process_numbers_do_not_matter(path: Path) -> None:
    """A dead owner is dead even if a process of its number lives; a living one lives even if its clock is years off."""
    async with holder(path, "dead"):
        pass
    async with opened(path, clock=lambda: 0.0) as living:
        await living.reserve(reservation("living"))
        with raw(path) as connection:
            connection.execute("UPDATE owners SET pid = 1, opened_at = 9e9")
        async with opened(path, clock=lambda: 9e9) as store:
            assert await state(store, "living") == "running"
            assert await state(store, "dead") == "interrupted"


async def test_two_stores_of_one_process(path: Path) -> None:
    """They are as strange to each other as those of two processes: each settles its own, and only its own end ends it."""
    async with opened(path) as first:
        await first.reserve(reservation())
        async with opened(path) as second:
            assert await state(second) == "running"
            await second.reserve(reservation("r2"))
        assert await state(first, "r2") == "interrupted"
        assert await state(first) == "running"
        assert await first.complete(identity(), "exec_1", VALUE, NOW)


async def test_two_names_of_one_file(path: Path, tmp_path: Path) -> None:
    """Stores opened by a symbolic link and by the file's own name see each other's running entries."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    async with opened(path) as first, opened(link) as second:
        await first.reserve(reservation())
        assert await state(second) == "running"
        await second.reserve(reservation("r2"))
        assert await state(first, "r2") == "running"
    assert [each.name for each in link.parent.iterdir()] == ["link.db"]


async def test_closing_leaves_no_owner(path: Path) -> None:
    """What a store still had running when it was closed is interrupted, and nothing is left of it but its entries."""
    async with opened(path) as store:
        await store.reserve(reservation())
    with raw(path) as connection:
        assert connection.execute("SELECT state FROM entries").fetchall() == [("interrupted",)]
        assert connection.execute("SELECT count(*) FROM owners").fetchall() == [(0,)]


async def test_the_locks_cannot_be_removed(path: Path) -> None:
    """They are in the database: no file beside it makes a living owner look dead, so its reservation is running for others."""
    async with opened(path) as before, holder(path, "r1"):
        await before.prepare()
        assert sorted(each.name for each in path.parent.iterdir()) == ["state.db", "state.db-shm", "state.db-wal"]
        async with opened(path) as after:
            for store in (before, after):
                entry = await store.reserve(reservation(execution_id="exec_2", repeatable=True))
                assert entry is not None
                assert entry.state.value == "running"


async def test_closing_a_store_leaves_the_locks_of_others(path: Path) -> None:
    """A process may open and close many stores on a file: those that are open go on owning, and SQLite keeps its locks."""
    async with opened(path) as first, holder(path, "r2"):
        await first.reserve(reservation())
        for _ in range(3):
            async with opened(path) as other:
                assert await state(other) == "running"
                assert await state(other, "r2") == "running"
        async with holder(path, "r3"):
            assert await state(first, "r3") == "running"
        assert await state(first) == "running"
        assert await first.complete(identity(), "exec_1", VALUE, NOW)
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_no_descriptor_is_left(path: Path) -> None:
    """When the last store on a file has been closed, the process has no descriptor of it any more."""

    def descriptors() -> int:
        targets = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        return sum(target.startswith(str(path)) for target in targets)

    for _ in range(2):
        async with opened(path) as first, opened(path) as second:
            await first.prepare()
            await second.prepare()
            assert descriptors() > 0
        assert descriptors() == 0


async def test_a_file_of_an_earlier_version(path: Path) -> None:
    """It is refused while a process of that version has it open; then its entries are in doubt, and the lock file goes."""
    with raw(path) as connection:
        for script in MIGRATIONS[:2]:
            connection.execute(script)
        connection.execute(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 2; PRAGMA journal_mode = WAL"
        )
        connection.execute("INSERT INTO owners VALUES (1, 1, 1.0)")
        new = pack(reservation())
        connection.execute(
            "INSERT INTO entries (key, principal, session, scope, request_id, fingerprint, execution_id, tool, started_at, state,"
            " owner, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 1, 1)",
            (new.key, *new.values),
        )
    lock_file = path.with_name("state.db-owners")
    lock_file.touch(0o666)
    earlier = LivenessLocks(lock_file, first_byte=0)
    assert earlier.claim(1)
    async with opened(path) as store:
        with pytest.raises(FileLockedError, match="earlier version"):
            await store.get(identity())
        earlier.close()
        assert await state(store) == "interrupted"
        assert not await trio.Path(lock_file).exists()


async def test_an_owner_stays_the_same_after_an_error(path: Path) -> None:
    """A store that has to open its file anew still owns what it has reserved."""
    async with opened(path) as store:
        await store.reserve(reservation())
        store._database._disconnect()
        assert await state(store) == "running"
        async with opened(path) as other:
            assert await state(other) == "running"
        with raw(path) as connection:
            assert connection.execute("SELECT count(*) FROM owners").fetchall() == [(1,)]


def test_locks(tmp_path: Path) -> None:
    """A byte belongs to one holder until that closes the file, within a process as between two."""
    path = tmp_path / "locks"
    path.touch()
    mine, other = LivenessLocks(path), LivenessLocks(path)
    assert mine.claim(7)
    assert mine.claim(2**40)
    assert not other.claim(7)
    assert other.is_alive(7)
    assert not other.is_alive(8)
    assert list(other.alive()) == [7, 2**40]
    assert list(mine.alive()) == []
    mine.release(2**40)
    assert list(other.alive()) == [7]
    assert mine.start_opening()
    assert not other.start_opening()
    mine.end_opening()
    assert other.start_opening()
    assert mine.is_alive(0)
    mine.close()
    mine.close()
    assert not other.is_alive(7)
    other.close()
