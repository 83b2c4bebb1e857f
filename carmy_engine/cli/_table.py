"""Tables for people: aligned columns, and nothing in them that could move a terminal's cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence

MAX_CELL = 48
"""Characters of one cell; more are cut, since names are what callers make them."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Lines of text, the columns aligned; None is an empty cell."""
    cells = [list(head), *[[shown(value) for value in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines).encode()


def moment(seconds: float) -> str:
    """Unix seconds as the local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def shown(value: object, limit: int = MAX_CELL) -> str:
    """A value in one line, cut at a number of characters, without what could move a cursor; None is empty."""
    text = "" if value is None else str(value)
    printable = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"
