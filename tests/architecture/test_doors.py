"""Tests use the packages through their doors. A private part has a home: the folder of tests that tests it as such."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

WITHOUT_UNDERSCORES = {"carmy_http", "carmy_mcp"}
"""Packages whose only door is the package itself, though their modules have public names. Elsewhere, a private module has an underscore."""

HOMES: Mapping[str, set[str]] = {
    "carmy_engine._app": {"app", "cli", "hostile"},
    "carmy_engine._auth": {"cli", "security"},
    "carmy_engine._config": {"app", "cli"},
    "carmy_engine._engine": {"engine"},
    "carmy_engine._execution": {"engine"},
    "carmy_engine._gateway": {"gateway"},
    "carmy_engine._idempotency": {"durability", "engine"},
    "carmy_engine._json_schema": {"json_schema", "providers"},
    "carmy_engine._model": {"engine"},
    "carmy_engine._schema": {"engine", "schema"},
    "carmy_engine._telemetry": {"telemetry"},
    "carmy_engine._tools": {"app", "engine", "toolbox"},
    "carmy_engine._workers": {"workers"},
    "carmy_engine.cli": {"cli", "telemetry"},
    "carmy_engine.providers": {"providers"},
    "carmy_engine.stores": {"durability", "stores"},
    "carmy_engine.testing": {"conformance", "engine"},
    "carmy_frames": {"wire"},
    "carmy_http": {"boundary", "hostile", "http", "http_client", "http_native", "http_tls"},
    "carmy_mcp": {"boundary", "hostile", "mcp"},
    "carmy_net": {"hostile", "wire"},
    "carmy_stdio": {"stdio"},
    "carmy_websocket": {"websocket"},
}
"""The folders below ``tests`` that may import the private parts of a package. ``tests/architecture`` may import all."""

EXCEPTIONS = {
    ("tests/support/plain_trio.py", "carmy_engine._execution.trio_internals"): "skips tests where trio's internals are not known",
    ("tests/http_native/test_event_writer.py", "carmy_engine._execution.execution"): "events of an execution without an engine",
}  # fmt: skip
"""With the reason."""


def imported(tree: ast.Module) -> Iterator[str]:
    """The dotted name of every imported module, and of every private module that is imported from a package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if _is_private(alias.name) else node.module


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_door(module: str) -> bool:
    """True for a module that a user or the author of a transport may import from."""
    package, *rest = module.split(".")
    return not (rest and package in WITHOUT_UNDERSCORES) and not any(map(_is_private, rest))


def home_of(module: str) -> set[str]:
    """The folders that may import a private module: those of the longest package that has an entry."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        found = HOMES.get(".".join(parts[:end]))
        if found is not None:
            return found
    return set()


def test_private_parts_are_imported_where_they_are_tested() -> None:
    """A test imports from a door, or from a private part that is at home in its folder."""
    found: set[str] = set()
    used: set[tuple[str, str]] = set()
    sources = (path for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts)
    for path in sorted(sources):
        name = path.relative_to(ROOT).as_posix()
        folder = path.relative_to(ROOT / "tests").parts[0]
        for module in imported(ast.parse(path.read_text())):
            if not module.startswith("carmy_") or is_door(module) or folder in {"architecture", *home_of(module)}:
                continue
            if (name, module) in EXCEPTIONS:
                used.add((name, module))
            else:
                found.add(f"{name}: {module}")
    assert found == set()
    assert used == EXCEPTIONS.keys()
