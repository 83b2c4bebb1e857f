"""What every source file keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def files(*patterns: str) -> list[Path]:
    """The files of the checkout that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a checkout of git")
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_place_of_its_own() -> None:
    """No file mentions a directory of a developer's machine, or a package registry's host."""
    # Put together here, so that this file does not mention them either.
    forbidden = re.compile(
        "|".join(
            [
                "/ro" + "ot/",
                "/wo" + "rk/",
                "/ho" + r"me/\w",
                "pypi" + r"\.org",
                "pythonhosted" + r"\.org",
                "npmjs" + r"\.(org|com)",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


def declared_tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def test_every_test_says_what_is_promised() -> None:
    """Every test has a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in files("tests/*.py")
        if path.name.startswith("test_")
        for node in declared_tests(ast.parse(path.read_text()))
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_silenced_checks_have_reasons() -> None:
    """A comment that silences a type checker names the rule, and gives the reason on the same line."""
    bare = re.compile(r"#\s*(type: ignore|pyright: ignore)(?!\[[\w, -]+\]\s+#?\s*\S)")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("carmy_engine/*.py", "transports/*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []


def test_loggers_have_the_promised_names() -> None:
    """Every logger is one of the documented ones, so that an application can configure them all."""
    documented = {
        "carmy.access",
        "carmy.engine",
        "carmy.http",
        "carmy.websocket",
        "carmy.stdio",
        "carmy.mcp",
        "carmy.tools",
    }
    used = {
        name
        for path in files("carmy_engine/*.py", "transports/*.py")
        for name in re.findall(r"getLogger\(\"([^\"]*)\"\)", path.read_text())
    }
    assert used == documented


PATCHED_ON_PURPOSE = {
    "tests/examples/conftest.py": "an example for readers, which takes no limits",
    "tests/engine/declare/test_long_arguments.py": "forces the path of long arguments; 96 MiB of them would take minutes",
    "tests/engine/declare/test_long_outputs.py": "forces the path of long outputs",
    "tests/engine/test_json_pieces.py": "cuts short documents",
}
"""Tests that replace a constant, with the reason."""


def test_limits_are_passed_and_not_patched() -> None:
    """No test replaces a limit of a module: tests build the settings or the frozen limits that a program would pass."""
    patch = re.compile(r"setattr\([^)]*\"(?:[\w.]+\.)?(MAX_\w+|\w+_(?:SECONDS|BYTES|AT_ONCE|MAX))\"")
    found = {
        f"{path.relative_to(ROOT)}"
        for path in files("tests/*.py")
        if patch.search(path.read_text()) and path != Path(__file__)
    }
    assert found == PATCHED_ON_PURPOSE.keys()
