"""The commands, run in this process: their data, their words and their exit codes."""

from __future__ import annotations

import io
import json
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from carmy_engine import App, __version__
from carmy_engine.cli import main, run_app
from tests.boundary.app import make_app
from tests.boundary.escapes import ESCAPES

from .conftest import Write


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Carmy = Callable[..., Ran]


@pytest.fixture
def carmy(directory: Path, capfd: pytest.CaptureFixture[str]) -> Carmy:
    """Runs one command line in the directory with the example programs."""

    def carmy(*words: str, app: App | None = None) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words) if app is None else run_app(app, words)
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capfd.readouterr())

    return carmy


def test_tools_prints_the_catalog(carmy: Carmy) -> None:
    """`tools` prints the catalog document, the tools sorted by name, and nothing else on standard output."""
    ran = carmy("tools", "shop.py")
    assert ran.code == 0
    assert [spec["name"] for spec in ran.json["tools"]] == ["fail", "search"]
    assert "printed while loading" in ran.err


def test_call_prints_the_answer(carmy: Carmy) -> None:
    """`call` prints the answer's body alone, whatever the tool and its children print; 0 when it completed."""
    ran = carmy("call", "shop.py", "search", '{"query": "mouse"}')
    assert ran.code == 0
    assert ran.json["status"] == "completed"
    assert ran.json["data"] == ["mouse 0", "mouse 1"]
    assert ran.out.count("\n") == 1
    assert "printed by the tool" in ran.err
    assert "printed by a child" in ran.err


def test_standard_output_is_given_back(carmy: Carmy, capfd: pytest.CaptureFixture[str]) -> None:
    """After a command, standard output is what it was before."""
    carmy("call", "shop.py", "search", '{"query": "mouse"}')
    print("mine again", flush=True)
    assert capfd.readouterr().out == "mine again\n"


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_call_whose_tool_raises_anything_has_an_answer(escape: str, carmy: Carmy) -> None:
    """`call` prints ``TOOL_PANIC`` and ends with 1, whatever the tool raises: no cancel of its own is taken for a Ctrl-C."""
    ran = carmy("call", "after_a_wait", json.dumps({"how": escape}), app=make_app())
    assert (ran.code, ran.json["error"]["code"]) == (1, "TOOL_PANIC")


def test_a_call_that_fails_ends_with_1(carmy: Carmy) -> None:
    """An error is an answer too: it is printed, and the exit code is 1."""
    ran = carmy("call", "shop.py", "fail")
    assert ran.code == 1
    assert ran.json["error"]["code"] == "SOLD_OUT"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("serch",), "TOOL_NOT_FOUND"), (("search",), "INVALID_ARGUMENTS"), (("search", "[1]"), "INVALID_ARGUMENTS")],
)
def test_what_the_engine_refuses_is_an_answer(carmy: Carmy, words: tuple[str, ...], code: str) -> None:
    """Unknown tools and unfit arguments are refused by the engine, as for any other caller."""
    ran = carmy("call", "shop.py", *words)
    assert ran.code == 1
    assert ran.json["error"]["code"] == code


def test_arguments_from_standard_input(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads the arguments from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"query": "piped", "limit": 1}')))
    assert carmy("call", "shop.py", "search", "-").json["data"] == ["piped 0"]


def test_the_timeout_of_a_call(carmy: Carmy) -> None:
    """--timeout limits the call."""
    ran = carmy("call", "slow.py", "sleep", '{"seconds": 1000}', "--timeout", "0.05")
    assert ran.code == 1
    assert ran.json["error"]["code"] == "TIMEOUT"


def test_the_request_id_of_a_call(carmy: Carmy) -> None:
    """--request-id is checked by the engine, so it gets there."""
    assert carmy("call", "slow.py", "sleep", '{"seconds": 0}', "--request-id", "order-1").code == 0
    assert (
        carmy("call", "slow.py", "sleep", '{"seconds": 0}', "--request-id", "x" * 257).json["error"]["code"]
        == "INVALID_ID"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "there is nothing to run: name a target (file.py, file.py:app or module:app), or set 'app' in carmy.toml"),
        (("nope",), "'nope' is neither a command nor a target"),
        (("tools", "shop.py", "more"), "tools takes no 'more' after its target"),
        (("check", "shop.py", "extra"), "check takes no 'extra' after its target"),
        (("serv", "shop.py"), "there is no command 'serv'; did you mean 'serve'?"),
        (("shop.py", "serv"), "there is no command 'serv'; did you mean 'serve'?"),
        (
            ("serv",),
            "'serv' is neither a command nor a target: a target is file.py, file.py:app or module:app; did you mean",
        ),
        (("call", "pkg.app", "one"), "if 'pkg.app' is the target, write it as file.py, file.py:app or module:app"),
        (("shop.py", "serve"), "the command comes first: serve shop.py"),
        (("stdio", "slow.py", "--address", "127.0.0.1:0"), "--address"),
        (("mcp", "slow.py", "--address", "127.0.0.1:0"), "--address and --server of mcp go with --http"),
        (("tools", "gone.py"), "there is no file gone.py"),
        (("tools", "gone:app"), "there is no module gone"),
        (("tools", "shop.py:app"), "shop.py has no application 'app'"),
        (("tools", "slow.py:ap"), "slow.py has no application 'ap'; it has: app"),
        (("tools", "shop.py", "--loud"), "--loud"),
        (("serve", "slow.py", "--address", "here"), "--address must be HOST:PORT"),
        (("serve", "slow.py", "--server", "apache"), "apache"),
        (("call",), "call needs the name of a tool"),
        (("call", "slow.py", "sleep", "{}", "{}"), "at most one JSON text after it"),
        (("call", "slow.py", "sleep", "{"), "the arguments of 'sleep' are not valid JSON"),
        (("call", "slow.py", "sleep", "--loud"), "call has no option --loud"),
        (("call", "slow.py", "sleep", "--timeout", "0"), "--timeout must be a number of seconds above 0"),
        (("call", "slow.py", "sleep", "--url", "http://127.0.0.1:1"), "takes no target"),
        (("call", "slow.py", "sleep", "--on-running", "join"), "on-running"),
        (("call", "sleep", "--url", "ftp://x"), "the URL of a server must be like http://127.0.0.1:3000"),
        (("call", "slow.py", "sleep", "--token", "a"), "--token is for a running server"),
        (
            ("call", "sleep", "--url", "http://127.0.0.1:1", "--token", "a b"),
            "a bearer token is empty, or contains white space",
        ),
    ],
)
def test_a_wrong_command_line_ends_with_2(carmy: Carmy, words: tuple[str, ...], says: str) -> None:
    """A command line that cannot be meant ends with 2, prints no data, and states what to do."""
    ran = carmy(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err


def test_help_and_version(carmy: Carmy) -> None:
    """--help lists the commands and --version prints the version, both with success."""
    helped = carmy("--help")
    assert helped.code == 0
    for command in ("serve", "stdio", "ws", "mcp", "tools", "call", "check"):
        assert f" {command} " in helped.out
    assert carmy("--version").out.strip() == __version__


def test_a_transport_that_is_not_there(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport that no package offers is refused, with the names of those that there are."""
    monkeypatch.setattr("carmy_engine._app.plugins.entry_points", lambda **_: EntryPoints())
    ran = carmy("serve", "slow.py")
    assert ran.code == 1
    assert "this installation has no transport 'http' (it has: none)" in ran.err
    ran = carmy("ws", "slow.py")
    assert ran.code == 1


def test_the_target_from_the_settings(carmy: Carmy, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a target, `app` of carmy.toml or CARMY_APP names it."""
    write("carmy.toml", "app = 'slow:app'")
    assert [spec["name"] for spec in carmy("tools").json["tools"]] == ["block", "sleep", "spin"]
    monkeypatch.setenv("CARMY_APP", "shop.py")
    assert [spec["name"] for spec in carmy("tools").json["tools"]] == ["fail", "search"]


def test_a_file_without_an_app_is_served_by_convention(carmy: Carmy, write: Write) -> None:
    """A file with tools and no App gets a conventional one over the tools that it defines, and not those it imports."""
    write("lib.py", "from carmy_engine import tool\n@tool(effect='none')\nasync def imported() -> int:\n    return 1\n")
    write(
        "own.py",
        "from carmy_engine import tool\nimport lib\n@tool(effect='none')\nasync def defined() -> int:\n    return 1\n",
    )
    assert [spec["name"] for spec in carmy("tools", "own.py").json["tools"]] == ["defined"]


def test_several_apps_need_a_choice(carmy: Carmy, write: Write) -> None:
    """A file with several applications is refused without a name, and each can be named."""
    write(
        "two.py",
        """
        from carmy_engine import App
        one, two = App("one"), App("two")

        @two.tool(effect="none")
        async def ping() -> str:
            return "pong"
        """,
    )
    refused = carmy("tools", "two.py")
    assert refused.code == 2
    assert "choose one: two.py:one or two.py:two" in refused.err
    assert carmy("call", "two.py:two", "ping").json["data"] == "pong"


def test_a_file_in_another_directory(carmy: Carmy, write: Write) -> None:
    """A target file may import what lies beside it."""
    write("sub/helper.py", "WORD = 'helped'")
    write(
        "sub/program.py",
        "from carmy_engine import tool\nimport helper\n@tool(effect='none')\nasync def word() -> str:\n    return helper.WORD\n",
    )
    assert carmy("call", "sub/program.py", "word").json["data"] == "helped"


def test_a_file_named_like_a_module_leaves_it_alone(carmy: Carmy, write: Write) -> None:
    """A target named like a module that is loaded already does not take its place."""
    write("json.py", "from carmy_engine import tool\n@tool(effect='none')\nasync def word() -> str:\n    return 'x'\n")
    assert carmy("call", "json.py", "word").code == 0
    assert sys.modules["json"] is json


def test_a_file_that_does_not_load(carmy: Carmy, write: Write) -> None:
    """An exception while loading is shown with its traceback; wrong declarations speak for themselves."""
    write("broken.py", "1 / 0\n")
    ran = carmy("tools", "broken.py")
    assert (ran.code, ran.out) == (1, "")
    assert "broken.py could not be loaded" in ran.err
    assert "ZeroDivisionError" in ran.err
    write("wrong.py", "from carmy_engine import tool\n@tool(effect='none')\nasync def f(x) -> int: ...\n")
    ran = carmy("tools", "wrong.py")
    assert ran.code == 1
    assert "Traceback" not in ran.err


def test_a_file_that_runs_itself_while_loading(carmy: Carmy, write: Write) -> None:
    """App.run outside the main guard would run inside the command; it is refused with the remedy."""
    write("eager.py", "from carmy_engine import App\nApp('eager').run()\n")
    ran = carmy("tools", "eager.py")
    assert ran.code == 1
    assert 'put that below: if __name__ == "__main__":' in ran.err


def test_check_reports_every_problem(carmy: Carmy, write: Write) -> None:
    """`check` prints one problem a line, and ends with 1 when there is any."""
    assert carmy("check", "shop.py")[:2] == (0, "")
    write(
        "bad.py",
        """
        from carmy_engine import App, State
        app = App("bad").store("paper:x")

        @app.tool(effect="none", name="a b")
        async def one() -> int: ...

        @app.tool(effect="none")
        async def two(state: State[dict]) -> int: ...
        """,
    )
    ran = carmy("check", "bad.py")
    assert ran.code == 1
    assert [line.partition(":")[0] for line in ran.out.splitlines()] == [
        "INVALID_TOOL_NAME",
        "MISSING_STATE",
        "this installation has no store 'paper' (it has",
    ]


def test_check_reports_an_unusable_schema_of_a_tool_made_by_hand(carmy: Carmy, write: Write) -> None:
    """`check` prints INVALID_SCHEMA for an object with a schema that cannot be used, and ends with 1."""
    write(
        "made.py",
        """
        from carmy_engine import App, Effect, ToolSpec

        class Made:
            spec = ToolSpec(
                name="made", description="", input_schema={"type": "objekt"}, output_schema={}, effect=Effect.NONE
            )

            async def execute(self, ctx, input): ...

        app = App("made").add(Made())
        """,
    )
    ran = carmy("check", "made.py")
    assert ran.code == 1
    assert ran.out.startswith("INVALID_SCHEMA: tool 'made': input_schema: ")


def test_check_reports_what_keeps_the_file_from_loading(carmy: Carmy, write: Write) -> None:
    """A wrong declaration or setting is reported by `check` like any other problem."""
    write("wrong.py", "from carmy_engine import tool\n@tool(effect='none')\nasync def f(x) -> int: ...\n")
    ran = carmy("check", "wrong.py")
    assert ran.code == 1
    assert "wrong.py" in ran.out
    write("carmy.toml", "nmae = 'x'")
    ran = carmy("check", "shop.py")
    assert ran.code == 1
    assert "did you mean name?" in ran.out


def test_other_commands_report_problems_too(carmy: Carmy, write: Write) -> None:
    """An application that cannot start fails every command with its problems on standard error."""
    write("bad.py", "from carmy_engine import tool\n@tool(effect='none', name='a b')\nasync def one() -> int: ...\n")
    for command in (("tools", "bad.py"), ("call", "bad.py", "one"), ("serve", "bad.py")):
        ran = carmy(*command)
        assert (ran.code, ran.out) == (1, "")
        assert "1 problem at start" in ran.err


def test_an_application_runs_the_same_commands(carmy: Carmy) -> None:
    """App.run has the commands without targets, under the application's name."""
    app = App("mine")

    @app.tool(effect="none")
    async def ping() -> str:
        return "pong"

    assert carmy("call", "ping", app=app).json["data"] == "pong"
    assert [spec["name"] for spec in carmy("tools", app=app).json["tools"]] == ["ping"]
    assert carmy("check", app=app).code == 0
    assert "TARGET" not in carmy("--help", app=app).out
    ran = carmy("slow.py", app=app)
    assert ran.code == 2
    assert "there is no command 'slow.py'" in ran.err


def test_a_server_that_is_not_there(carmy: Carmy) -> None:
    """--url to an address where no server listens fails, and the message states that nothing was sent."""
    ran = carmy("call", "search", "--url", "http://127.0.0.1:1")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot connect to http://127.0.0.1:1: Connection refused; the call was not sent" in ran.err


@pytest.mark.parametrize(
    ("words", "advice"), [((), "It had no request_id"), (("--request-id", "r"), "with the same request_id")]
)
def test_a_server_that_does_not_answer(carmy: Carmy, words: tuple[str, ...], advice: str) -> None:
    """A connection that ends before the answer leaves the outcome unknown: the command reports this, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65536)

        peer = threading.Thread(target=hang_up, daemon=True)
        peer.start()
        ran = carmy("call", "search", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}", *words)
        peer.join()
    assert (ran.code, ran.out) == (1, "")
    assert "the connection was lost" in ran.err
    assert "the call may have run" in ran.err
    assert advice in ran.err


PROGRAM = "from carmy_command import main; main()"


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell in which ``carmy`` is the command."""
    carmy = shlex.join([sys.executable, "-c", PROGRAM])
    return subprocess.run(
        ["bash", "-c", line.replace("carmy", carmy, 1)], capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("command", ["tools shop.py", 'call shop.py search \'{"query": "a"}\'', "--help", "--version"])
@pytest.mark.parametrize(
    ("redirection", "words"),
    [
        (">/dev/full", "cannot write to standard output: No space left on device"),
        (">&-", "standard output is closed, so there is nowhere to write to"),
    ],
)
def test_data_that_cannot_be_written_fails_the_command(command: str, redirection: str, words: str) -> None:
    """With standard output full or closed, a command that has data fails with 1 and one line."""
    done = in_shell(f"carmy {command} {redirection}")
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("directory")
def test_a_command_without_data_needs_no_standard_output() -> None:
    """`serve` works with standard output closed: here it fails for the address, which it has looked at."""
    assert "cannot listen there" in in_shell("carmy serve slow.py --address unix:gone/x >&-").stderr


def test_ctrl_c_while_the_command_is_imported() -> None:
    """An interrupt in the first tenths of a second ends the command as any other one does, without a traceback."""
    interrupt = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("carmy_engine"):
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
"""
    done = subprocess.run(
        [sys.executable, "-c", interrupt + PROGRAM], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
