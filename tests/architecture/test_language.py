"""The mechanical part of the rule for prose: name the thing, then state what it does to what."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
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


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of every string of several words that is no docstring: texts of errors, logs and help among them."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def promises(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and docstring of every test of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, ast.get_docstring(node) or ""


def offences(
    folders: tuple[str, ...] = SOURCES, read: Callable[[Path], Iterator[tuple[int, str]]] = prose
) -> list[str]:
    """Every line with a banned word."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "node_modules" not in path.parts
        for number, line in read(path)
        if BANNED.search(line)
    ]


def test_prose_names_things() -> None:
    """No docstring or comment of the packages uses a banned word."""
    assert offences() == []


def test_texts_name_things() -> None:
    """No error text, log text or help text of the packages has a banned word."""
    assert offences(read=texts) == []


def test_promises_name_things() -> None:
    """No docstring of a test has a banned word."""
    assert offences(("tests",), promises) == []


DOCUMENTS = re.compile(
    BANNED.pattern.replace(r"|who|tells?", "|tells").replace(r"|hears?|heard", "|hears"), re.IGNORECASE
)
"""In documents, a person may be a person."""


def test_documents_name_things() -> None:
    """No document has a banned word outside of its code."""
    found: list[str] = []
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = re.sub(
            r"(?ms)^```.*?^```|`[^`\n]*`|\([^)\s]*\)", lambda block: "\n" * block[0].count("\n"), path.read_text()
        )
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if DOCUMENTS.search(line)
        ]
    assert found == []


if __name__ == "__main__":
    print(*offences(tuple(sys.argv[1:]) or SOURCES), sep="\n")
