"""The workspace example: listing and searching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import Engine, ExecutionCompleted, ExecutionRequest, ToolProgress

from .conftest import Caller, example


@pytest.fixture
def tree(root: Path) -> None:
    """Some files."""
    for path, text in {
        "README.md": "Hello\nhello again\n",
        "src/main.py": "def main():\n    pass\n",
        "src/deep/util.py": "def util():\n    return 'Hello'\n",
        "src/data.bin": "Hello\0",
        ".git/config": "Hello\n",
        ".env": "Hello=1\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "link").symlink_to("README.md")


def paths(listing: Any) -> list[str]:
    return [file["path"] for file in listing["files"]]


@pytest.mark.usefixtures("tree")
async def test_list_files_in_order(owner: Caller) -> None:
    """All files by name, links as links, hidden ones only when asked for."""
    listing = await owner.data("list_files")
    assert paths(listing) == ["README.md", "link", "src/data.bin", "src/deep/util.py", "src/main.py"]
    assert listing["files"][0] == {"path": "README.md", "size": 18, "kind": "file"}
    assert listing["files"][1]["kind"] == "link"
    assert paths(await owner.data("list_files", hidden=True))[:2] == [".env", ".git/config"]
    assert paths(await owner.data("list_files", path="src/deep")) == ["src/deep/util.py"]
    assert await owner.code("list_files", path="nowhere") == "FILE_NOT_FOUND"
    assert await owner.code("list_files", path="README.md") == "FILE_NOT_FOUND"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "c.py", True),
        ("a/*.py", "a/c.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/*.py", "a/c.py", True),
        ("a/**/*.py", "a/x/y/c.py", True),
        ("a/**", "a/x/y", True),
        ("a/**", "b/x", False),
        ("**/b/**/d", "a/b/c/d", True),
        ("[ab].txt", "x/a.txt", True),
        ("?.txt", "ab.txt", False),
        ("**", "anything/at/all", True),
        ("a.c", "abc", False),
        ("/".join(["**", "a"] * 20) + "/b", "/".join("a" * 60), False),
    ],
)
async def test_globs(pattern: str, path: str, expected: bool) -> None:
    """Stars stay in a name, double stars do not, and many of them cost no more than few."""
    assert example("workspace_matching").glob_matcher(pattern)(path) is expected


@pytest.mark.usefixtures("tree", "small_pieces")
async def test_list_files_is_bounded(owner: Caller, root: Path) -> None:
    """The answer ends at the limit, and the walk at a number of files, whatever matches; both say so."""
    listing = await owner.data("list_files", limit=2)
    assert (paths(listing), listing["truncated"]) == (["README.md", "link"], True)
    (root / "src" / "more.py").touch()
    listing = await owner.data("list_files", pattern="m*.py")
    assert (paths(listing), listing["truncated"]) == (["src/main.py"], True)


@pytest.mark.usefixtures("tree")
async def test_search_finds_text(owner: Caller) -> None:
    """Text is found as it is; binary files are skipped and counted, links and hidden files left out."""
    assert await owner.data("search_files", pattern="Hello") == {
        "matches": [
            {"path": "README.md", "line": 1, "text": "Hello"},
            {"path": "src/deep/util.py", "line": 2, "text": "return 'Hello'"},
        ],
        "files_searched": 3,
        "files_skipped": 1,
        "truncated": False,
    }
    found = await owner.data("search_files", pattern="hello", ignore_case=True, glob="*.md", hidden=True)
    assert [match["line"] for match in found["matches"]] == [1, 2]
    assert (await owner.data("search_files", pattern=".*"))["matches"] == []


@pytest.mark.usefixtures("tree")
async def test_search_with_regular_expressions(owner: Caller) -> None:
    """Expressions are opt-in, the error of a wrong one describes it, and an evil one costs no more than others."""
    found = await owner.data("search_files", pattern=r"^DEF \w+\(\)", regex=True, ignore_case=True, glob="src/**")
    assert [match["path"] for match in found["matches"]] == ["src/deep/util.py", "src/main.py"]
    wrong = await owner.result("search_files", pattern="(", regex=True)
    assert wrong.error is not None
    assert (wrong.error.code, "unclosed group" in wrong.error.message) == ("INVALID_PATTERN", True)
    assert await owner.code("search_files", pattern="(?=x)", regex=True) == "INVALID_PATTERN"


async def test_an_evil_expression_is_harmless(owner: Caller, root: Path) -> None:
    """What would keep Python's own engine busy for years ends at once, so the event loop is never held."""
    (root / "evil").write_text("a" * 100_000 + "!")
    with trio.fail_after(30):
        assert (await owner.data("search_files", pattern="(a+)+$", regex=True))["matches"] == []


@pytest.mark.usefixtures("small_pieces")
async def test_search_is_bounded(owner: Caller, root: Path) -> None:
    """Matches end at the limit, lines are cut, large files skipped, and the walk ends: each is visible in the answer."""
    (root / "a").write_text("x\n" * 30)
    found = await owner.data("search_files", pattern="x", limit=10)
    assert (len(found["matches"]), found["truncated"]) == (10, True)
    assert (await owner.data("search_files", pattern="x", limit=30))["truncated"] is False
    (root / "a").write_text("x" * 900)
    assert len((await owner.data("search_files", pattern="x"))["matches"][0]["text"]) == 400
    (root / "a").write_text("x" * 1001)
    assert (await owner.data("search_files", pattern="x"))["files_skipped"] == 1
    for name in "bcdefg":
        (root / name).touch()
    assert (await owner.data("search_files", pattern="x"))["truncated"] is True
    assert await owner.code("search_files", pattern="x", limit=1001) == "INVALID_ARGUMENTS"
    assert await owner.code("search_files", pattern="") == "INVALID_ARGUMENTS"


async def test_matches_are_streamed_in_batches(engine: Engine, root: Path) -> None:
    """A listener gets every match once, in order and in batches, before the result that has them all."""
    for number in range(3):
        (root / f"{number}.txt").write_text("match\n" * 25)
    request = ExecutionRequest(tool="search_files", arguments={"pattern": "match"})
    streamed: list[Any] = []
    batches = 0
    with trio.fail_after(30):
        async with engine.stream(request) as events:
            async for event in events:
                if isinstance(event, ToolProgress):
                    batches += 1
                    streamed += event.partial
                elif isinstance(event, ExecutionCompleted):
                    result = event.result.unwrap()
    assert streamed == result["matches"]
    assert (len(streamed), batches) == (75, 4)
