"""The graph of folders: acyclic, entered by doors, and drawn in the documents as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = [ROOT / "carmy_engine", *sorted(path for path in (ROOT / "transports").iterdir() if path.is_dir())]
NAMES = frozenset(package.name for package in PACKAGES)
DOORS = frozenset({"carmy_engine", "abc", "codec", "errors", "transport"})
"""Modules of the core that only offer names of other modules, and so belong to no folder."""
BEGIN, END = "<!-- folders: generated -->\n", "<!-- end of folders -->"


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted name and the path of every module."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def folder_of(module: str) -> str | None:
    """The folder of a module, such as ``carmy_engine._execution``; None for doors of the core.

    A public module beside the folders of a transport, such as ``carmy_http.server``, counts as one.
    """
    top, *rest = module.split(".")
    if top == "carmy_engine":
        return None if not rest or rest[0] in DOORS else f"{top}.{rest[0]}"
    is_apart = rest and (not rest[0].startswith("_") or (ROOT / "transports" / top / rest[0]).is_dir())
    return f"{top}.{rest[0]}" if is_apart else top


def imported(module: str) -> Iterator[str]:
    """The modules of the project that a module imports when it is loaded."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    pending: list[ast.stmt] = list(ast.parse(path.read_text()).body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.If | ast.Try):
            pending.extend(child for child in ast.walk(statement) if isinstance(child, ast.ImportFrom | ast.Import))
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name.partition(".")[0] in NAMES)
        elif isinstance(statement, ast.ImportFrom):
            base = package[: len(package) - statement.level + 1] if statement.level else []
            origin = ".".join([*base, *([statement.module] if statement.module else [])])
            if origin.partition(".")[0] in NAMES:
                for alias in statement.names:
                    inner = f"{origin}.{alias.name}"
                    yield inner if inner in MODULES else origin


def graph() -> dict[str, set[str]]:
    """Each folder, and the folders that its modules import from."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        folder = folder_of(module)
        if folder is None:
            continue
        others = {folder_of(target) for target in imported(module)}
        found.setdefault(folder, set()).update(other for other in others if other not in (None, folder))
    return found


def drawn() -> str:
    """The graph as the table of the documents: each folder with what it imports from, lowest first."""
    edges = graph()
    done: list[str] = []
    while len(done) < len(edges):
        ready = sorted(folder for folder in edges if folder not in done and edges[folder] <= set(done))
        assert ready, f"a circle among {sorted(set(edges) - set(done))}"
        done += ready
    width = max(map(len, done))
    lines = [
        f"{folder:{width}}  {'  '.join(sorted(edges[folder], key=done.index)) or '-'}" for folder in reversed(done)
    ]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def test_no_circle_between_folders() -> None:
    """Folders can be put in an order in which each one imports only from those before it."""
    assert drawn()


def test_the_documents_draw_the_folders() -> None:
    """The graph in docs/design.md is the one of the sources; `python tests/architecture/test_folders.py` renews it."""
    page = (ROOT / "docs" / "design.md").read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == drawn()


def test_no_private_import_across_packages() -> None:
    """One package imports from another only modules and names without a leading underscore."""
    found = []
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
                continue
            top = node.module.partition(".")[0]
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            if top in NAMES and top != module.partition(".")[0] and any(re.match("_(?!_)", name) for name in names):
                found.append(f"{module}:{node.lineno}: {node.module}")
    assert found == []


if __name__ == "__main__":
    design = ROOT / "docs" / "design.md"
    before, _, rest = design.read_text().partition(BEGIN)
    design.write_text(before + BEGIN + drawn() + END + rest.partition(END)[2])
