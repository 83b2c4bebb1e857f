"""The file: who can read it, which files are refused, and what callers are told when it cannot be used."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
import trio

from carmy_engine import AgentError, ConfigurationError, StoreSettings
from carmy_engine.abc import Outcome
from carmy_engine.stores import sqlite
from carmy_engine.stores.sqlite import SqliteLimits, _schema
from carmy_engine.stores.sqlite._errors import translate, translate_os
from tests.stores.kit import NOW, VALUE, identity, opened, raw, reservation, state

FAILED = Outcome(
    execution_id="exec_1", error=AgentError("NO_STOCK", "there is none", "conflict", details={"left": 0}).info
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_it_is_private(path: Path) -> None:
    """All files of the store are readable and writable for their owner only, whatever the umask."""
    before = os.umask(0)
    try:
        async with opened(path) as store:
            await store.reserve(reservation())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["state.db", "state.db-wal", "state.db-shm"], 0o600)


async def test_a_file_that_others_can_read_is_made_private(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An existing file with a wider mode is narrowed, which is logged."""
    path.touch(0o644)
    path.chmod(0o644)
    async with opened(path) as store:
        await store.reserve(reservation())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "private now" in caplog.text


async def test_it_outlives_its_store(path: Path) -> None:
    """What one store has recorded, the next one on the same file replays."""
    async with opened(path) as store:
        await store.reserve(reservation())
        await store.complete(identity(), "exec_1", VALUE, NOW)
        before = await store.get(identity())
    async with opened(path) as store:
        assert await store.reserve(reservation(execution_id="exec_2")) == before


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
async def test_durability(path: Path, durability: str, level: int) -> None:
    """The setting is SQLite's level of syncing, on a write-ahead log."""
    async with opened(path, durability=durability) as store:
        await store.prepare()
        connection = store._database._connection
        assert connection is not None
        assert connection.rows("PRAGMA synchronous") == [(level,)]
        assert connection.rows("PRAGMA journal_mode") == [("wal",)]


async def test_a_newer_file_is_refused(path: Path) -> None:
    """A file of a later version is left alone, and the errors of the start and of every call give the reason."""
    async with opened(path) as store:
        await store.prepare()
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(_schema.MIGRATIONS) + 1}")
    before = path.read_bytes()
    async with opened(path) as store:
        with pytest.raises(ConfigurationError, match=r"state\.db was written by a newer version"):
            await store.prepare()
        with pytest.raises(sqlite.NewerFileError) as told:
            await store.reserve(reservation())
        assert told.value.reason == "newer_version"
    assert path.read_bytes() == before


async def test_an_older_file_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of an earlier version gets the steps that it lacks, and keeps what it has."""
    async with opened(path) as store:
        await store.reserve(reservation())
        await store.complete(identity(), "exec_1", VALUE, NOW)
    step = "ALTER TABLE entries ADD COLUMN note TEXT"
    monkeypatch.setattr(_schema, "MIGRATIONS", (*_schema.MIGRATIONS, step))
    for _ in range(2):
        async with opened(path) as store:
            assert await state(store) == "completed"
    with raw(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(_schema.MIGRATIONS),)
        assert connection.execute("SELECT note FROM entries").fetchall() == [(None,)]


async def test_a_failed_migration_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are one transaction: the old version still works on the file."""
    async with opened(path) as store:
        await store.prepare()
    with monkeypatch.context() as patch:
        patch.setattr(_schema, "MIGRATIONS", (*_schema.MIGRATIONS, "CREATE TABLE new (x) STRICT; SELECT nothing"))
        async with opened(path) as store:
            with pytest.raises(sqlite.UnexpectedError):
                await store.reserve(reservation())
    async with opened(path) as store:
        assert await store.reserve(reservation()) is None
    with raw(path) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'new'").fetchone() == (0,)


async def test_files_of_others_are_refused(path: Path) -> None:
    """A file that is not SQLite's, or another program's, is not touched."""
    path.write_bytes(b"not a database, but longer than a header" * 100)
    async with opened(path) as store:
        with pytest.raises(sqlite.CorruptFileError, match="is not an SQLite file"):
            await store.reserve(reservation())
    path.unlink()
    with raw(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    path.chmod(0o644)
    before = path.read_bytes()
    async with opened(path) as store:
        with pytest.raises(sqlite.CorruptFileError, match="of another program"):
            await store.reserve(reservation())
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


async def test_a_directory_is_left_as_it_is(path: Path) -> None:
    """The path of a directory is refused, and others can still look into it."""
    path.mkdir(0o755)
    path.chmod(0o755)
    async with opened(path) as store:
        with pytest.raises(sqlite.CannotOpenError):
            await store.reserve(reservation())
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


async def test_a_damaged_file(path: Path) -> None:
    """Damage inside the file is reported as such, and never as a free id."""
    async with opened(path) as store:
        for number in range(200):
            await store.reserve(reservation(f"r{number}"))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    async with opened(path) as store:
        with pytest.raises(sqlite.CorruptFileError, match="is corrupt"):
            await store.reserve(reservation())


async def test_no_directory(path: Path) -> None:
    """A path into a directory that does not exist cannot be opened; it works once the directory is there."""
    async with opened(path.parent / "missing" / "state.db") as store:
        with pytest.raises(sqlite.CannotOpenError, match="the directory must exist"):
            await store.reserve(reservation())
        (path.parent / "missing").mkdir()
        assert await store.reserve(reservation()) is None


async def test_a_full_disk(path: Path) -> None:
    """No room: nothing is half done, callers get an error, and it works again once there is room."""
    async with opened(path) as store:
        await store.reserve(reservation())
        connection = store._database._connection
        assert connection is not None
        ((pages,),) = connection.rows("PRAGMA page_count")
        connection.run(f"PRAGMA max_page_count = {pages}")
        big = VALUE.__class__(execution_id="exec_1", data_json=b'"' + b"x" * 100_000 + b'"')
        with pytest.raises(sqlite.DiskFullError, match="the disk is full") as told:
            await store.complete(identity(), "exec_1", big, NOW)
        assert told.value.reason == "disk_full"
        # It has not been forgotten: the file is opened anew, without that limit, and the ending written first.
        entry = await store.get(identity())
        assert entry is not None
        assert entry.outcome == big


async def test_a_file_locked_by_others(path: Path) -> None:
    """A caller waits for others, but not for ever; afterwards all is as if it had not asked."""
    async with opened(path, limits=SqliteLimits(patience_secs=0.1)) as store:
        await store.prepare()
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite.FileLockedError, match="another process") as told:
                await store.reserve(reservation())
            assert told.value.reason == "locked"
            other.execute("ROLLBACK")
        assert await state(store) == "free"
        assert await store.reserve(reservation()) is None


async def test_waiting_for_others(path: Path) -> None:
    """A process that holds the file for a moment delays callers and does not fail them."""
    async with opened(path) as store:
        await store.prepare()
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.reserve, reservation())
                while not store._writer._busy:
                    await trio.lowlevel.checkpoint()
                other.execute("ROLLBACK")
        assert await state(store) == "running"


@pytest.mark.parametrize("after_an_error", [False, True])
async def test_a_file_that_was_replaced(path: Path, after_an_error: bool) -> None:
    """If the file is taken away under a running process, that is noticed before anything is promised."""
    async with opened(path) as store:
        assert await store.reserve(reservation()) is None
        if after_an_error:
            store._database._disconnect()
        path.unlink()
        with pytest.raises(sqlite.FileReplacedError, match="removed or replaced"):
            await store.reserve(reservation("r2"))
        assert await store.reserve(reservation("r2")) is None
        async with opened(path) as other:
            assert await state(other, "r2") == "running"


@pytest.mark.parametrize("how", ["removed", "replaced", "removed by a backup"])
@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_a_log_that_was_removed(path: Path, end: str, how: str) -> None:
    """It is noticed before anything more is promised; afterwards what was answered is replayed, and the store works again."""
    async with opened(path) as store, opened(path) as other:
        await other.prepare()
        assert await store.reserve(reservation()) is None
        assert await store.complete(identity(), "exec_1", VALUE, NOW)
        beside = path.with_name(path.name + end)
        beside.unlink()
        if how == "replaced":
            beside.touch(0o600)
        elif how == "removed by a backup":
            path.with_name(path.name + {"-wal": "-shm", "-shm": "-wal"}[end]).unlink()
        for each in (store, other):
            with pytest.raises(sqlite.FileReplacedError, match="removed or replaced"):
                await each.reserve(reservation("r2"))
        assert await state(other) == "completed"
        assert await store.reserve(reservation("r2")) is None
        assert await state(other, "r2") == "running"
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


ANOTHER = """
import sys, trio
from carmy_engine.abc import StoreError
from tests.stores.kit import opened, reservation

async def main():
    async with opened(sys.argv[1]) as store:
        try:
            found = await store.reserve(reservation(execution_id="exec_2", repeatable=True))
            print("free" if found is None else found.state.value)
        except StoreError as error:
            print(error.reason, error)

trio.run(main)
"""
"""Another process that reserves the same id, and prints what it is answered."""


async def reserved_elsewhere(path: Path) -> str:
    command = [sys.executable, "-c", ANOTHER, str(path)]
    done = await trio.run_process(command, capture_stdout=True, cwd=Path(__file__).parents[2])
    return done.stdout.decode()


async def test_a_log_that_was_removed_before_another_process_opens_the_file(path: Path) -> None:
    """That process does not take what the living one has reserved for free: it refuses until that one has noticed."""
    async with opened(path) as store:
        assert await store.reserve(reservation()) is None
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
        assert (await reserved_elsewhere(path)).startswith("replaced")
        with pytest.raises(sqlite.FileReplacedError):
            await store.get(identity())
        assert await state(store) == "running"
        assert await reserved_elsewhere(path) == "running\n"
        assert await store.complete(identity(), "exec_1", VALUE, NOW)


async def test_a_log_that_another_process_has_begun_is_left_alone(path: Path) -> None:
    """What a process has written after the log was removed is not overwritten by what the removed log held."""
    async with opened(path) as store:
        assert await store.reserve(reservation()) is None
        await trio.to_thread.run_sync(_written_by_another_program, path)
        with pytest.raises(sqlite.FileReplacedError):
            await store.get(identity())
        await store.prepare()
    with raw(path) as connection:
        assert connection.execute("SELECT x FROM witness").fetchall() == [(number,) for number in range(100)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _written_by_another_program(path: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    script = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]);"
        "c.execute('CREATE TABLE witness (x)'); [c.execute('INSERT INTO witness VALUES (?)', (n,)) for n in range(100)]; c.close()"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)


@pytest.mark.parametrize(
    "damage",
    [
        "data = x'22ff22'",
        "data = CAST('\"pai' AS BLOB)",
        "data = CAST('\"Paid\"' AS BLOB)",
        "data = NULL",
        "error = CAST('{}' AS BLOB)",
        "execution_id = 'exec_2'",
        "checksum = zeroblob(16)",
        "checksum = NULL, data = x'22ff22'",
        "checksum = NULL, data = CAST('{\"a\"' AS BLOB)",
        "checksum = NULL, error = CAST('[]' AS BLOB)",
        "checksum = NULL, error = x'ff'",
        "cause = 'nothing'",
    ],
)
async def test_a_damaged_answer(path: Path, damage: str) -> None:
    """It is not replayed but reported as corrupt, and so for its own id alone; in the same transaction others are served."""
    async with opened(path) as store:
        for name in ("r1", "r2"):
            await store.reserve(reservation(name))
            await store.complete(identity(name), "exec_1", VALUE, NOW)
        with raw(path) as connection:
            connection.execute(f"UPDATE entries SET {damage} WHERE request_id = 'r1'")
        for method in (store.get(identity()), store.reserve(reservation(execution_id="exec_2"))):
            with pytest.raises(sqlite.DamagedEntryError) as told:
                await method
            assert told.value.reason == "corrupt"
        found = await store.get(identity("r2"))
        assert found is not None
        assert found.outcome == VALUE


@pytest.mark.parametrize("outcome", [VALUE, Outcome(execution_id="exec_1"), FAILED])
async def test_an_answer_of_an_earlier_version(path: Path, outcome: Outcome) -> None:
    """It has no checksum, and is replayed."""
    async with opened(path) as store:
        await store.reserve(reservation())
        await store.complete(identity(), "exec_1", outcome, NOW)
        with raw(path) as connection:
            connection.execute("UPDATE entries SET checksum = NULL")
        found = await store.get(identity())
        assert found is not None
        assert found.outcome == outcome


async def test_a_store_that_cannot_be_used_does_not_keep_from_starting(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the error of every call at the start."""
    async with opened(path.parent / "missing" / "state.db") as store:
        await store.prepare()
    assert "calls with a request_id will be refused" in caplog.text


async def test_use_after_the_end(path: Path) -> None:
    """A closed store raises its own error."""
    async with opened(path) as store:
        await store.aclose()
        with pytest.raises(sqlite.StoreClosedError):
            await store.get(identity())


def test_every_error_has_its_word() -> None:
    """SQLite's and the system's errors are distinguished by one word, and the text names the file."""
    path = Path("state.db")
    words = {
        apsw.BusyError: "locked",
        apsw.LockedError: "locked",
        apsw.FullError: "disk_full",
        apsw.CorruptError: "corrupt",
        apsw.NotADBError: "corrupt",
        apsw.ReadOnlyError: "read_only",
        apsw.PermissionsError: "read_only",
        apsw.CantOpenError: "cannot_open",
        apsw.IOError: "io_error",
        apsw.NoMemError: "failed",
    }
    for kind, word in words.items():
        told = translate(kind("why"), path)
        assert told.reason == word
        assert "state.db" in str(told)
        assert "why" in str(told)
    for number, word in {13: "read_only", 30: "read_only", 28: "disk_full", 2: "cannot_open", 5: "io_error"}.items():
        assert translate_os(OSError(number, os.strerror(number)), path).reason == word


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for this user")
async def test_a_read_only_directory(path: Path) -> None:
    """A directory that cannot be written is reported as such."""
    path.parent.chmod(0o500)
    async with opened(path) as store:
        with pytest.raises(sqlite.ReadOnlyFileError):
            await store.reserve(reservation())
    path.parent.chmod(0o700)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://host/x", "sqlite::memory:"])
def test_urls_that_mean_nothing(url: str) -> None:
    """A URL without a path is refused with an example."""
    with pytest.raises(ConfigurationError, match="sqlite:PATH, such as sqlite:"):
        sqlite.from_settings(StoreSettings(url=url))


def test_urls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative path is one from the working directory at the start; ``~`` is the home directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "ana"))
    assert sqlite.from_settings(StoreSettings(url="sqlite:state.db")).path == tmp_path / "state.db"
    assert sqlite.from_settings(StoreSettings(url="sqlite:~/state.db")).path == tmp_path / "ana" / "state.db"
    assert sqlite.from_settings(StoreSettings(url="sqlite:/var/state.db")).path == Path("/var/state.db")
