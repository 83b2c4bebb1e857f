"""Copy the store in SQLite while it is in use: ``python backup.py shop.db backups/shop.db``.

A program of its own: two copies of SQLite in one process would not see each other's locks. The copy is complete and consistent, with
everything that was answered before the copy began, and takes the place of an earlier one at once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing


def backup(source: str, target: str) -> None:
    """Copy a store.

    Args:
        source: The file in use; it must exist.
        target: The copy; its directory must exist. Only its owner can read it.
    """
    partial = f"{target}.partial"
    os.umask(0o077)
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=30)) as original,
        closing(sqlite3.connect(partial)) as copy,
    ):
        original.backup(copy, pages=1000, sleep=0.01)
        (problem,) = copy.execute("PRAGMA quick_check").fetchone()
    if problem != "ok":
        sys.exit(f"the copy is damaged: {problem}")
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python backup.py STORE COPY")
    backup(*sys.argv[1:])
