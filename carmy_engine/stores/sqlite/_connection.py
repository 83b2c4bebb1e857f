"""A connection to SQLite with plain types: those of apsw mention one that Python 3.11 does not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

Value = str | bytes | int | float | None
"""What a column can hold."""


class Connection:
    """A connection to an existing file. Its methods raise `apsw.Error`, and may be called from one thread at a time.

    Args:
        path: Of the file.
        on_busy: Called while another connection holds the file; True to try again.
    """

    def __init__(self, path: Path, on_busy: Callable[[], bool]) -> None:
        self._raw: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)

        def busy(_attempts: int) -> bool:
            return on_busy()

        self._raw.set_busy_handler(busy)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        opened: bool = self._raw.in_transaction
        return opened

    def run(self, statement: str, values: tuple[Value, ...] = ()) -> None:
        """Run a statement, or with no values a script of several."""
        self._raw.execute(statement, values or None).fetchall()  # apsw stops at the first row otherwise

    def rows(self, statement: str, values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a query. The types are those of its columns: tables here are strict ones."""
        found: list[tuple[Any, ...]] = self._raw.execute(statement, values).fetchall()
        return found

    def row(self, statement: str, values: tuple[Value, ...] = ()) -> tuple[Any, ...] | None:
        """Run a query that gives at most one row."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def insert(self, statement: str, values: tuple[Value, ...]) -> int:
        """Run a statement that adds one row; its number."""
        self._raw.execute(statement, values)
        number: int = self._raw.last_insert_rowid()
        return number

    def changes(self, statement: str, values: tuple[Value, ...]) -> int:
        """Run a statement that changes rows; how many it has changed."""
        self._raw.execute(statement, values)
        count: int = self._raw.changes()
        return count

    def leave_log(self) -> None:
        """Leave the write-ahead log alone when the connection is closed."""
        self._raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        """Close it, rolling back what is open. Never raises."""
        self._raw.close(force=True)
