"""Transports stand on what everybody else's can stand on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from carmy_engine import transport

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "transports").rglob("*.py"))


def imported(source: str) -> Iterator[str]:
    """Every module, and every name of a module, that a file imports from the core."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private(source: str) -> list[str]:
    """What a file imports from the core that is nobody else's business."""
    names = [name for name in imported(source) if name.split(".")[0] == "carmy_engine"]
    return [name for name in names if any(re.match("_[^_]", part) for part in name.split("."))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from carmy_engine._engine.engine import Engine", ["carmy_engine._engine.engine.Engine"]),
        ("from carmy_engine import _engine", ["carmy_engine._engine"]),
        ("def f():\n    import carmy_engine._model.cause as c", ["carmy_engine._model.cause"]),
        ("from carmy_engine import Engine\nfrom carmy_engine.codec import decode\nfrom ._engine import other", []),
        ("from carmy_frames._engine import other", []),
    ],
)
def test_private_imports_are_found(source: str, found: list[str]) -> None:
    """However it is written, an import of a private part of the core is seen, and nothing else is."""
    assert private(source) == found


def test_transports_use_the_public_door() -> None:
    """No transport of ours imports a private part of the core: what they need, authors of others need as well."""
    assert len(SOURCES) > 50
    found = {str(path.relative_to(ROOT)): names for path in SOURCES if (names := private(path.read_text()))}
    assert found == {}


def test_the_door_says_what_it_has() -> None:
    """Every name of ``carmy_engine.transport`` stands in its text; kinds of address go by `parse_address`."""
    assert transport.__doc__ is not None
    assert [
        name for name in transport.__all__ if f"`{name}`" not in transport.__doc__ and not name.endswith("Address")
    ] == []
