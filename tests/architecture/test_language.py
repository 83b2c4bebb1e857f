"""The mechanical part of the rule for prose: name the thing, then state what it does to what."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("carmy_engine", "transports")

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|whom|who|tells?|told|says|said|hears?|heard|knows|minds|of our own|looks? after|looked after)\b",
    re.IGNORECASE,
)
"""Words that make code a person, or a person of nobody in particular. Code returns, raises, sends, logs, stores, checks and waits."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of every line of the docstrings and comments of a module."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.splitlines(), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def offences(folders: tuple[str, ...] = SOURCES) -> list[str]:
    """Every line of prose with a banned word."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in prose(path)
        if BANNED.search(line)
    ]


def test_prose_names_things() -> None:
    """No docstring or comment of the packages uses a banned word."""
    assert offences() == []


if __name__ == "__main__":
    print(*offences(tuple(sys.argv[1:]) or SOURCES), sep="\n")
