"""The seam between the transport and the libraries below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import carmy_websocket

SOURCES = sorted(Path(carmy_websocket.__file__).parent.glob("*.py"))


def test_only_public_names_of_the_library_are_used() -> None:
    """The package imports public names of trio-websocket and wsproto, and reads no private attribute of another object."""
    found = [f"{path.name}: {name}" for path in SOURCES for name in _private_names(ast.parse(path.read_text()))]
    assert found == []


def _private_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"trio_websocket", "wsproto"}:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (name for name in names if name.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield from () if ast.unparse(node.value) == "self" else (ast.unparse(node),)
