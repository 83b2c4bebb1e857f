"""``carmy new`` and ``carmy add tool``: what they make runs, is typed and passes its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from carmy_engine.cli import main
from carmy_engine.cli._scaffold import TEMPLATES, Template


def carmy(*words: str) -> int:
    """Run a command; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passes(folder: Path, *command: str) -> None:
    """A program of the project's developers succeeds."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("template", get_args(Template))
def test_a_new_project(folder: Path, template: str) -> None:
    """Its own checks pass, with one more tool as well, and it can be called."""
    assert carmy("new", "my-shop", "--template", template) == 0
    project = folder / "my-shop"
    subprocess.run([sys.executable, "-m", "carmy_engine", "add", "tool", "ship_order"], cwd=project, check=True)
    passes(project, "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider")
    passes(project, "mypy", "--cache-dir", str(folder / "cache"))
    passes(project, "ruff", "check", "--no-cache", ".")
    passes(project, "ruff", "format", "--no-cache", "--check", ".")
    passes(project, "carmy_engine", "check")
    passes(project, "carmy_engine", "call", "ship_order", '{"text": "hello"}')
    passes(project, "my_shop", "tools")
    texts = [path.read_text(encoding="utf-8") for path in project.rglob("*") if path.suffix in {".py", ".md", ".toml"}]
    assert not any("{{" in text for text in texts)


def test_every_folder_is_a_template() -> None:
    """The folders are those that the command offers, and the one they share."""
    folders = {path.name for path in TEMPLATES.iterdir() if path.is_dir()}
    assert folders == {"common", *get_args(Template)}


@pytest.mark.parametrize("name", ["my shop", "../shop", "1shop", "class", ""])
def test_a_name_that_cannot_be(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is no name of a package is refused, and nothing is made."""
    assert carmy("new", name) == 2
    assert "is no name for a project" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_nothing_is_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder, a tool or a test of that name stays as it is."""
    (folder / "shop").mkdir()
    assert carmy("new", "shop") == 1
    assert "exists already" in capsys.readouterr().err
    assert list((folder / "shop").iterdir()) == []
    assert carmy("new", "other") == 0


def test_a_tool_of_the_same_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused; so is a name that is none, and a folder that is no project."""
    assert carmy("add", "tool", "ship") == 1
    assert "carmy.toml" in capsys.readouterr().err
    assert carmy("new", "shop") == 0
    monkeypatch.chdir(folder / "shop")
    assert carmy("add", "tool", "greet") == 1
    assert "exists already" in capsys.readouterr().err
    assert carmy("add", "tool", "ship-order") == 2
    assert "is no name for a tool" in capsys.readouterr().err


def test_a_list_of_another_form(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of tools that was rewritten by hand is left alone, and no file is made."""
    assert carmy("new", "shop") == 0
    monkeypatch.chdir(folder / "shop")
    Path("shop/tools/__init__.py").write_text("TOOLS = []\n")
    assert carmy("add", "tool", "ship") == 1
    assert "add the tool by hand" in capsys.readouterr().err
    assert not Path("shop/tools/ship.py").exists()
