"""The workspace example: reading, writing, deleting, and staying inside."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from carmy_engine import Effect, Engine

from .conftest import Caller

SECRET = "not for agents"


@pytest.fixture
def traps(root: Path) -> None:
    """A secret beside the workspace, and links in it that lead there and elsewhere."""
    (root.parent / "secret.txt").write_text(SECRET)
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "secret.txt").write_text(SECRET)
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "docs" / "page.md").write_text("page\n")
    (root / "relative-out").symlink_to("../secret.txt")
    (root / "absolute-out").symlink_to(root.parent / "secret.txt")
    (root / "absolute-in").symlink_to(root / "docs" / "page.md")
    (root / "directory-out").symlink_to("../outside")
    (root / "docs" / "up-and-out").symlink_to("deep/../../../outside")
    (root / "loop").symlink_to("loop")
    (root / "chain").symlink_to("relative-out")
    (root / "docs" / "up").symlink_to("..")
    (root / "inside").symlink_to("docs/page.md")


OUTSIDE = [
    "../secret.txt",
    "docs/../../secret.txt",
    "docs/..",
    "/etc/passwd",
    "relative-out",
    "absolute-out",
    "absolute-in",
    "directory-out/secret.txt",
    "docs/up-and-out/secret.txt",
    "docs/up/relative-out",
    "loop",
    "loop/x",
    "chain",
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.usefixtures("traps")
async def test_reading_outside_is_refused(owner: Caller, root: Path, path: str) -> None:
    """No path and no symbolic link leads out, and the refusal does not reveal where the workspace is."""
    result = await owner.result("read_file", path=path)
    assert result.error is not None
    assert result.error.code == "PATH_OUTSIDE_WORKSPACE"
    assert str(root.parent) not in result.error.message


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.usefixtures("traps")
async def test_writing_outside_is_refused(owner: Caller, root: Path, path: str) -> None:
    """What cannot be read through a path cannot be overwritten through it either."""
    assert await owner.code("write_file", path=path, content="x", overwrite=True) == "PATH_OUTSIDE_WORKSPACE"
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


@pytest.mark.usefixtures("traps")
async def test_deleting_and_running_outside_is_refused(owner: Caller, root: Path) -> None:
    """Directories outside can be neither emptied nor worked in."""
    assert await owner.code("delete_file", path="directory-out/secret.txt") == "PATH_OUTSIDE_WORKSPACE"
    assert await owner.code("run_command", argv=["pwd"], cwd="directory-out") == "PATH_OUTSIDE_WORKSPACE"
    assert await owner.code("run_command", argv=["pwd"], cwd="..") == "PATH_OUTSIDE_WORKSPACE"
    assert await owner.code("list_files", path="directory-out") == "PATH_OUTSIDE_WORKSPACE"
    assert await owner.code("search_files", pattern="x", path="directory-out") == "PATH_OUTSIDE_WORKSPACE"
    assert (root.parent / "outside" / "secret.txt").exists()


@pytest.mark.usefixtures("traps")
async def test_search_does_not_follow_links(owner: Caller) -> None:
    """Looking everywhere finds nothing that lies outside."""
    assert (await owner.data("search_files", pattern=SECRET, hidden=True))["matches"] == []


@pytest.mark.usefixtures("traps")
async def test_links_inside_are_followed(owner: Caller, root: Path) -> None:
    """A link whose target is in the workspace works, also through '..' in the link."""
    assert (await owner.data("read_file", path="inside"))["text"] == "page\n"
    assert (await owner.data("read_file", path="docs/up/docs/up/inside"))["text"] == "page\n"
    await owner.data("write_file", path="inside", content="new\n", overwrite=True)
    assert (root / "docs" / "page.md").read_text() == "new\n"
    assert (root / "inside").is_symlink()


@pytest.mark.usefixtures("traps")
async def test_deleting_a_link_deletes_the_link(owner: Caller, root: Path) -> None:
    """The link goes, also when it leads out; what it led to stays."""
    await owner.data("delete_file", path="relative-out")
    assert not (root / "relative-out").is_symlink()
    assert (root.parent / "secret.txt").read_text() == SECRET


async def test_a_directory_exchanged_for_a_link_meanwhile_leads_nowhere(
    owner: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking at a name and opening it, another process puts a link there: the call is refused, not led out."""
    (root.parent / "secret.txt").write_text(SECRET)
    (root / "swapped").mkdir()
    (root / "swapped" / "secret.txt").write_text("harmless")
    real = os.readlink

    def slow_readlink(name: str, *, dir_fd: int | None = None) -> str:
        try:
            return real(name, dir_fd=dir_fd)
        finally:
            if name == "swapped":
                (root / "swapped").rename(root / "moved")
                (root / "swapped").symlink_to(root.parent)

    monkeypatch.setattr(os, "readlink", slow_readlink)
    assert await owner.code("read_file", path="swapped/secret.txt") in {"FILE_NOT_FOUND", "PATH_OUTSIDE_WORKSPACE"}


async def test_a_file_exchanged_for_a_link_meanwhile_leads_nowhere(
    owner: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for the last name of a path."""
    (root.parent / "secret.txt").write_text(SECRET)
    (root / "file").write_text("harmless")
    real = os.readlink

    def slow_readlink(name: str, *, dir_fd: int | None = None) -> str:
        try:
            return real(name, dir_fd=dir_fd)
        finally:
            (root / "file").unlink()
            (root / "file").symlink_to(root.parent / "secret.txt")

    monkeypatch.setattr(os, "readlink", slow_readlink)
    assert await owner.code("read_file", path="file") == "PATH_OUTSIDE_WORKSPACE"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", "FILE_NOT_FOUND"),
        ("file/below", "FILE_NOT_FOUND"),
        ("directory", "IS_A_DIRECTORY"),
        ("", "IS_A_DIRECTORY"),
        (".", "IS_A_DIRECTORY"),
        ("zero\0byte", "INVALID_PATH"),
        ("x" * 300, "INVALID_PATH"),
        ("d/" * 70 + "f", "FILE_NOT_FOUND"),
        ("binary", "NOT_TEXT"),
        ("latin", "NOT_TEXT"),
        ("fifo", "NOT_A_FILE"),
    ],
)
async def test_what_cannot_be_read_says_why(owner: Caller, root: Path, path: str, code: str) -> None:
    """Each way in which a path is not a text file has a code of its own, and a FIFO blocks no call."""
    (root / "file").touch()
    (root / "directory").mkdir()
    (root / "binary").write_bytes(b"\x7fELF\0")
    (root / "latin").write_bytes("Käse".encode("latin-1"))
    os.mkfifo(root / "fifo")
    assert await owner.code("read_file", path=path) == code


@pytest.mark.usefixtures("traps")
async def test_no_descriptor_is_left_open(owner: Caller, root: Path) -> None:
    """Whatever a call ends with, what it has opened is closed."""
    (root / "file").touch()
    os.mkfifo(root / "fifo")

    async def everything() -> None:
        for path in ["missing/x", "docs", "fifo", "file", "docs/up/inside", *OUTSIDE]:
            await owner.result("read_file", path=path)
            await owner.result("list_files", path=path)
            await owner.result("run_command", argv=["no-such-program"], cwd=path)
            await owner.result("write_file", path=path, content="", expected_sha256="0" * 64)
        await owner.result("list_files", limit=1)
        await owner.result("search_files", pattern="page", limit=1)
        await owner.result("run_command", argv=["true"])

    await everything()  # what is opened once and kept, such as the worker threads' own
    before = len(os.listdir("/proc/self/fd"))
    await everything()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_read_file_gives_lines_and_hash(owner: Caller, root: Path) -> None:
    """A slice has the lines that were asked for, the number of all, and the hash of the whole file."""
    content = b"one\r\ntwo\x0cstill two\nthree"
    (root / "file").write_bytes(content)
    assert await owner.data("read_file", path="./file", start_line=2, end_line=2) == {
        "path": "./file",
        "text": "two\x0cstill two\n",
        "start_line": 2,
        "end_line": 2,
        "total_lines": 3,
        "truncated": False,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert (await owner.data("read_file", path="file"))["text"].encode() == content
    assert await owner.code("read_file", path="file", start_line=4) == "NO_SUCH_LINE"
    (root / "empty").touch()
    assert (await owner.data("read_file", path="empty"))["total_lines"] == 0


@pytest.mark.usefixtures("small_pieces")
async def test_read_file_is_bounded(owner: Caller, root: Path) -> None:
    """Long answers end at a line, an endless line ends inside, and both say so; huge files are refused."""
    (root / "lines").write_text("123456789\n" * 5)
    got = await owner.data("read_file", path="lines")
    assert (got["text"], got["end_line"], got["truncated"]) == ("123456789\n" * 2, 2, True)
    (root / "line").write_text("ä" * 15)
    got = await owner.data("read_file", path="line")
    assert (got["text"], got["truncated"]) == ("ä" * 10, True)
    (root / "huge").write_text("x" * 1001)
    assert await owner.code("read_file", path="huge") == "FILE_TOO_LARGE"


async def test_write_file_creates_once(owner: Caller, root: Path) -> None:
    """A new file is created, a second attempt is refused unless ``overwrite`` is set, and nothing else is left."""
    assert (await owner.data("write_file", path="file", content="ä"))["created"] is True
    assert await owner.code("write_file", path="file", content="y") == "FILE_EXISTS"
    (root / "file").chmod(0o751)
    written = await owner.data("write_file", path="file", content="z", overwrite=True)
    assert written == {"path": "file", "size": 1, "sha256": hashlib.sha256(b"z").hexdigest(), "created": False}
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o751
    assert os.listdir(root) == ["file"]


async def test_write_file_makes_directories_only_when_told(owner: Caller, root: Path) -> None:
    """A misspelt directory is an error and not a new tree."""
    assert await owner.code("write_file", path="a/b/file", content="x") == "FILE_NOT_FOUND"
    await owner.data("write_file", path="a/b/file", content="x", make_directories=True)
    assert (root / "a" / "b" / "file").read_text() == "x"
    deep = "/".join("d" * 70)
    assert await owner.code("write_file", path=deep, content="x", make_directories=True) == "INVALID_PATH"
    assert await owner.code("write_file", path="a", content="x", overwrite=True) == "IS_A_DIRECTORY"


async def test_expected_sha256_guards_against_lost_changes(owner: Caller, root: Path) -> None:
    """A file that another process has changed since it was read is not overwritten; the refusal has its hash."""
    (root / "file").write_text("old")
    expected = (await owner.data("read_file", path="file"))["sha256"]
    (root / "file").write_text("changed")
    result = await owner.result("write_file", path="file", content="mine", expected_sha256=expected)
    assert result.error is not None
    assert (result.error.code, result.error.details) == (
        "FILE_CHANGED",
        {"sha256": hashlib.sha256(b"changed").hexdigest()},
    )
    assert (root / "file").read_text() == "changed"
    await owner.data("write_file", path="file", content="mine", expected_sha256=hashlib.sha256(b"changed").hexdigest())
    assert (root / "file").read_text() == "mine"
    assert await owner.code("write_file", path="new", content="x", expected_sha256=expected) == "FILE_CHANGED"
    assert await owner.code("write_file", path="new", content="x", expected_sha256="short") == "INVALID_ARGUMENTS"


async def test_a_retried_write_happens_once(owner: Caller, root: Path) -> None:
    """The same request_id gives the same answer; what has been written since is not written over."""
    first = await owner.result("write_file", request_id="w1", path="file", content="first")
    (root / "file").write_text("somebody else's")
    second = await owner.result("write_file", request_id="w1", path="file", content="first")
    assert (second.replayed, second.data) == (True, first.data)
    assert (root / "file").read_text() == "somebody else's"
    conflict = await owner.result("write_file", request_id="w1", path="file", content="other")
    assert conflict.error is not None
    assert conflict.error.code == "IDEMPOTENCY_CONFLICT"


async def test_deleting_needs_confirmation(owner: Caller, engine: object, root: Path) -> None:
    """Without the permission nothing is deleted; with it the file goes, and directories stay."""
    (root / "file").write_text("abc")
    (root / "directory").mkdir()
    unconfirmed = Caller(owner.executor.bind(permissions=set()))
    assert await unconfirmed.code("delete_file", path="file") == "CONFIRMATION_REQUIRED"
    assert await unconfirmed.code("run_command", argv=["rm", "file"]) == "CONFIRMATION_REQUIRED"
    assert (root / "file").exists()
    assert await owner.data("delete_file", path="file") == {"path": "file", "size": 3}
    assert not (root / "file").exists()
    assert await owner.code("delete_file", path="file") == "FILE_NOT_FOUND"
    assert await owner.code("delete_file", path="directory") == "IS_A_DIRECTORY"


async def test_anonymous_callers_may_only_read(anonymous: Caller, root: Path) -> None:
    """Over a network and without credentials, tools that change something are neither listed nor called."""
    (root / "file").write_text("abc")
    catalog = await anonymous.executor.catalog()
    assert {spec.name for spec in catalog.tools} == {"list_files", "search_files", "read_file"}
    assert {spec.effect for spec in catalog.tools} == {Effect.READ}
    assert await anonymous.code("write_file", path="new", content="x") == "FORBIDDEN"
    assert (await anonymous.data("read_file", path="file"))["text"] == "abc"
    assert os.listdir(root) == ["file"]


async def test_the_parent_of_a_child_process_may_write(engine: Engine, root: Path) -> None:
    """Over standard input the caller is the parent process, with its rights; confirmation is needed all the same."""
    parent = Caller(engine.bind(transport="stdio"))
    assert (await parent.data("write_file", path="new", content="x"))["created"] is True
    assert await parent.code("delete_file", path="new") == "CONFIRMATION_REQUIRED"
