"""`SqliteStore.check`: what will keep a store from being used, found without changing anything."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from carmy_engine import ConfigurationError
from carmy_engine.stores.sqlite import SqliteStore


async def check(path: Path) -> str | None:
    """What `check` raises; None when it does not."""
    store = SqliteStore(path)
    try:
        await store.check()
    except ConfigurationError as error:
        return str(error)
    finally:
        await store.aclose()
    return None


async def make(path: Path) -> None:
    store = SqliteStore(path)
    await store.prepare()
    await store.aclose()


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_a_usable_file_is_left_as_it_is(tmp_path: Path) -> None:
    """A file of this version, and a directory where there is none yet, are fine, and nothing is made."""
    assert await check(tmp_path / "new.db") is None
    assert list(tmp_path.iterdir()) == []
    await make(tmp_path / "state.db")
    before = {path: path.stat().st_size for path in tmp_path.iterdir()}
    assert await check(tmp_path / "state.db") is None
    assert {path: path.stat().st_size for path in tmp_path.iterdir()} == before


async def test_what_will_not_change_by_itself_is_refused(tmp_path: Path) -> None:
    """A missing directory, a newer version, another program's file and no SQLite file are each reported as such."""
    for name in ("newer.db", "other.db"):
        await make(tmp_path / name)
    change(tmp_path / "newer.db", "PRAGMA user_version = 1000")
    change(tmp_path / "other.db", "PRAGMA application_id = 1")
    (tmp_path / "text.db").write_text("once upon a time " * 100)
    found = {name: await check(tmp_path / name) for name in ("gone/x.db", "newer.db", "other.db", "text.db")}
    assert "the directory must exist" in (found["gone/x.db"] or "")
    assert "written by a newer version" in (found["newer.db"] or "")
    assert "another program" in (found["other.db"] or "")
    assert "is not an SQLite file" in (found["text.db"] or "")


@pytest.mark.parametrize("mode", ["DEFERRED", "EXCLUSIVE"])
async def test_a_file_that_is_in_use_is_fine(tmp_path: Path, mode: str) -> None:
    """Whether another process holds the file is a matter of the moment, and no reason against starting."""
    await make(tmp_path / "state.db")
    holder = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    holder.execute(f"BEGIN {mode}")
    try:
        assert await check(tmp_path / "state.db") is None
    finally:
        holder.close()
