"""``carmy install``: what is written to the files of clients, and what stays."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carmy_engine.cli._client_files import client_file, replace_file, with_entry
from carmy_engine.cli._commands import run
from carmy_engine.cli._outcome import Failure


@pytest.fixture
def home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory of its own; the working directory has `shop.py`."""
    made = directory / "home"
    made.mkdir()
    for name in ("CARMY_CONFIG", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setattr(sys, "platform", "linux")
    return made


def install(*words: str) -> int:
    return run(None, ["install", *words])


def entry_of(directory: Path) -> dict[str, Any]:
    return {
        "command": os.path.abspath(sys.executable),
        "args": ["-m", "carmy_command", "mcp", str(directory / "shop.py")],
    }


def test_a_new_file(home: Path, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The entry has absolute paths; the difference is printed first, and a second time changes nothing."""
    path = home / ".cursor" / "mcp.json"
    assert install("cursor", "shop.py", "--name", "shop") == 0
    assert json.loads(path.read_text()) == {"mcpServers": {"shop": entry_of(directory)}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = capfd.readouterr()
    assert f"+++ {path} (then)" in told.out
    assert '+    "shop": {' in told.out
    assert "Restart cursor" in told.err
    before = path.read_bytes()
    assert install("cursor", "shop.py", "--name", "shop") == 0
    told = capfd.readouterr()
    assert told.out == ""
    assert "needs no change" in told.err
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


def test_print_writes_nothing(home: Path, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The difference alone, and no directory is made."""
    assert install("claude-desktop", "shop.py", "--print", "--env", "TOKEN=a=b") == 0
    assert '"TOKEN": "a=b"' in capfd.readouterr().out
    assert list(home.iterdir()) == []


def test_the_entry_runs(home: Path, directory: Path) -> None:
    """The command line that is written serves the application, from another directory."""
    assert install("claude-code", "shop.py", "--name", "shop") == 0
    entry = json.loads((home / ".claude.json").read_text())["mcpServers"]["shop"]
    assert entry["type"] == "stdio"
    words = [word if word != "mcp" else "tools" for word in (entry["command"], *entry["args"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, cwd="/", check=True)
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["fail", "search"]


def test_modules_and_settings_are_found_from_elsewhere(home: Path, directory: Path) -> None:
    """A module of the working directory needs its place, and so does the file of settings there."""
    (directory / "carmy.toml").write_text('name = "My shop!"\napp = "shopping:app"\n')
    (directory / "shopping.py").write_text("from carmy_engine import App\napp = App('x')\n")
    assert install("vscode", "--project") == 0
    found = json.loads((directory / ".vscode" / "mcp.json").read_text())
    assert found == {
        "servers": {
            "My-shop": {
                "type": "stdio",
                "command": os.path.abspath(sys.executable),
                "args": ["-m", "carmy_command", "mcp", "shopping:app"],
                "env": {"CARMY_CONFIG": str(directory / "carmy.toml"), "PYTHONPATH": str(directory)},
            }
        }
    }


def test_a_program_installs_itself(home: Path, directory: Path) -> None:
    """Over one application, the command needs no target, and the entry runs the program."""
    program = directory / "own.py"
    program.write_text("from carmy_engine import App\nApp('own').run()\n")
    words = [sys.executable, str(program), "install", "cursor"]
    subprocess.run(words, env={**os.environ, "HOME": str(home)}, timeout=50, check=True, capture_output=True)
    found = json.loads((home / ".cursor" / "mcp.json").read_text())
    assert found == {"mcpServers": {"own": {"command": os.path.abspath(sys.executable), "args": [str(program), "mcp"]}}}


OTHERS = """\
{
\t"theme": "d\\u00e4rk",
\t"numbers": [1.50, 1e3,   2],
\t"mcpServers": {
\t\t"files": {"command": "files"}, "web": {
\t\t\t"command": "web"
\t\t}
\t},
\t"last": null
}"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_everything_else_stays(home: Path, directory: Path, newline: str) -> None:
    """Other servers and settings keep every byte; a removal gives back the former text, and a backup is beside it."""
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    before = OTHERS.replace("\n", newline).encode()
    path.write_bytes(before)
    path.chmod(0o640)
    assert install("cursor", "shop.py", "--name", "shop") == 0
    after = path.read_bytes()
    assert json.loads(after)["mcpServers"]["shop"] == entry_of(directory)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.with_name("mcp.json.bak").read_bytes() == before
    assert (b"\r\n" in after) is (newline == "\r\n")
    assert install("cursor", "--name", "shop", "--remove") == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "name", "after"),
    [
        ('{"s": {"a": 1}}', "a", '{"s": {}}'),
        ('{"s": {"a": 1, "b": 2}}', "a", '{"s": {"b": 2}}'),
        ('{"s": {"a": 1, "b": 2}}', "b", '{"s": {"a": 1}}'),
        ('{"s": {"a": 1, "b": {"c": [2]}, "d": "}"}}', "b", '{"s": {"a": 1, "d": "}"}}'),
        ('{"s": {"a\\"": 1}, "a": 2}', 'a"', '{"s": {}, "a": 2}'),
        ("{}", "a", "{}"),
        ('{"s": {}}', "a", '{"s": {}}'),
    ],
)
def test_removals(text: str, name: str, after: str) -> None:
    """The member and one comma go, wherever it stands."""
    assert with_entry(text, "s", name, None, Path("f")) == after


@pytest.mark.parametrize(
    "text", ["{}", '{"a": 1}', '{"s": {}}', '{"s": { }}', '{"s": {"b": 1}, "t": 2}', '{"s": {"n": 0}}']
)
def test_insertions_are_valid(text: str) -> None:
    """The result is JSON with all that was there, and a second time gives the same."""
    made = with_entry(text, "s", "n", {"command": "é"}, Path("f"))
    expected = json.loads(text)
    expected.setdefault("s", {})["n"] = {"command": "é"}
    assert json.loads(made) == expected
    assert with_entry(made, "s", "n", {"command": "é"}, Path("f")) == made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{\n  // mine\n  "servers": {}\n}', "not plain JSON"),
        (b'{"servers": {},}', "not plain JSON"),
        (b"[" * 100_000, "not plain JSON"),
        (b"[]", "no JSON object"),
        (b'{"servers": []}', "is no object"),
        (b'{"servers": {}, "servers": {}}', "twice"),
        (b'"\xff"', "not UTF-8"),
    ],
)
def test_files_that_would_lose_something_are_refused(
    home: Path, directory: Path, capfd: pytest.CaptureFixture[str], text: bytes, says: str
) -> None:
    """Nothing is written; where only the form is foreign, the entry is printed for adding it by hand."""
    path = home / ".config" / "Code" / "User" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    assert install("vscode", "shop.py", "--name", "shop") == 1
    told = capfd.readouterr().err
    assert says in told
    if says == "not plain JSON":
        assert "by hand" in told
        assert '"carmy_command"' in told
    assert path.read_bytes() == text
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["emacs", "shop.py"], 2, "emacs"),
        (["cursor", "none.py"], 2, "there is no file none.py"),
        (["cursor", "shop.py", "--env", "TOKEN"], 2, "KEY=VALUE"),
        (["claude-desktop", "shop.py", "--project"], 1, "no configuration of a project"),
        (["cursor", "shop.py", "--name", ""], 2, "--name"),
    ],
)
def test_wrong_command_lines(
    home: Path, capfd: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    """One line, the exit code of its kind, and no file."""
    assert install(*words) == code
    assert says in capfd.readouterr().err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("client", "platform", "environ", "path"),
    [
        ("claude-desktop", "darwin", {}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {}, "/h/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/a"}, "/a/Claude/claude_desktop_config.json"),
        ("vscode", "darwin", {}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", {}, "/h/AppData/Roaming/Code/User/mcp.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("cursor", "win32", {"APPDATA": "/a"}, "/h/.cursor/mcp.json"),
    ],
)
def test_places_on_each_platform(client: Any, platform: str, environ: dict[str, str], path: str) -> None:
    """As the documentation of each client names them."""
    found = client_file(
        client, project=False, platform=platform, environ=environ, home=Path("/h"), directory=Path("/d")
    )
    assert found.path.as_posix() == path


def test_a_file_that_changes_meanwhile_is_left(tmp_path: Path) -> None:
    """What another program has written since the difference was printed is not lost; links keep leading to their file."""
    path = tmp_path / "real.json"
    path.write_text('{"a": 1}')
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(Failure, match="has changed meanwhile"):
        replace_file(link, "{}", '{"b": 2}')
    assert path.read_text() == '{"a": 1}'
    assert replace_file(link, '{"a": 1}', '{"b": 2}') == tmp_path / "real.json.bak"
    assert link.is_symlink()
    assert path.read_text() == '{"b": 2}'
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]
