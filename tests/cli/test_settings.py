"""Settings from outside the program: every command applies them to every application."""

from __future__ import annotations

import contextlib
import logging
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import trio
from pydantic import TypeAdapter, ValidationError

from carmy_engine import App, ConfigurationError, Engine, ExecutionRequest, LogSettings, Settings
from carmy_engine._config.sources import Deployment
from carmy_engine.cli import _logs
from carmy_engine.cli._problems import outside_problems
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import SqliteStore
from carmy_engine.transport import Transport
from carmy_mcp import open_mcp
from carmy_stdio import open_stdio

from .conftest import Write, running_server
from .test_commands import Carmy, carmy
from .test_life import CARMY

__all__ = ["carmy"]

EXPLICIT = """
    from carmy_engine import AgentContext, App, Settings
    app = App("program", settings=Settings(address="127.0.0.1:1", max_executions=7))

    @app.tool(effect="read", idempotent=True)
    async def settings() -> dict[str, object]:
        return {"name": app.name, "address": app.settings.address, "max_executions": app.settings.max_executions}

    @app.tool(effect="none")
    async def caller(ctx: AgentContext) -> list[str | None]:
        return [ctx.principal, *sorted(ctx.permissions)]

    @app.tool(effect="destructive")
    async def drop() -> str:
        return "dropped"

    if __name__ == "__main__":
        app.run()
"""


@pytest.fixture
def explicit(write: Write) -> Path:
    return write("explicit.py", EXPLICIT)


@pytest.mark.usefixtures("explicit")
@pytest.mark.parametrize("target", ["explicit.py", "explicit.py:app", "explicit:app", None])
def test_settings_reach_an_explicit_application(
    carmy: Carmy, write: Write, monkeypatch: pytest.MonkeyPatch, target: str | None
) -> None:
    """The environment wins over the file, which wins over what `App(...)` gave, whatever the target's form."""
    write("carmy.toml", "app = 'explicit.py'\nname = 'file'\naddress = '127.0.0.1:2'")
    monkeypatch.setenv("CARMY_ADDRESS", "127.0.0.1:3")
    ran = carmy("call", *([] if target is None else [target]), "settings")
    assert ran.json["data"] == {"name": "file", "address": "127.0.0.1:3", "max_executions": 7}


def test_settings_reach_the_commands_of_an_application(carmy: Carmy, write: Write) -> None:
    """`App.run` applies the file, too."""
    write("carmy.toml", "name = 'file'")
    app = App("program")
    carmy("tools", app=app)
    assert app.name == "file"


def test_each_command_has_the_settings_of_its_own_moment(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of an earlier command in the same process leave nothing behind."""
    app = App("program", timeout=7)
    monkeypatch.setenv("CARMY_TIMEOUT_SECS", "5")
    assert "timeout_secs = 5.0 (CARMY_TIMEOUT_SECS)" in carmy("check", app=app).err
    monkeypatch.delenv("CARMY_TIMEOUT_SECS")
    assert "timeout_secs = 7.0 (the program)" in carmy("check", app=app).err


def test_an_application_in_process_reads_nothing(write: Write) -> None:
    """Without a command, `App(...)` keeps what the program gave."""
    write("carmy.toml", "name = 'file'")
    assert App("program").name == "program"


@pytest.mark.usefixtures("explicit")
async def test_serve_applies_settings_to_an_explicit_application(write: Write) -> None:
    """The address of carmy.toml is served, and an option of the command wins over it."""
    write("carmy.toml", "address = 'unix:file.sock'")
    with trio.fail_after(30):
        async with running_server(*CARMY, "serve", "explicit.py") as server:
            assert server.url.endswith("file.sock")
        async with running_server(*CARMY, "serve", "explicit.py", "--address", "127.0.0.1:0") as server:
            assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.usefixtures("explicit")
def test_the_store_of_the_settings_keeps_answers_of_an_explicit_application(
    carmy: Carmy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a durable store in the settings, the same request_id gives the same answer in the next command."""
    monkeypatch.setenv("CARMY_STORE_URL", "sqlite:state.db")
    first, second = (carmy("call", "explicit.py", "settings", "--request-id", "a") for _ in range(2))
    assert first.json == second.json
    assert "memory:" not in first.err
    assert carmy("audit", "explicit.py", "--json").out.count("\n") == 2


@pytest.mark.usefixtures("explicit")
def test_a_request_id_that_no_command_remembers_is_warned_about(carmy: Carmy) -> None:
    """With the store in memory, --request-id cannot do what it is for, and the command reports it."""
    assert (
        "the same --request-id runs the tool again" in carmy("call", "explicit.py", "settings", "--request-id", "a").err
    )
    assert carmy("call", "explicit.py", "settings").err == ""


def test_an_unknown_key_fails_every_command(carmy: Carmy, write: Write) -> None:
    """A key that does not exist is an error that names it and the nearest valid one, for any application."""
    write("carmy.toml", "adress = '127.0.0.1:0'")
    for command in (("tools", "slow.py"), ("call", "slow.py", "sleep"), ("serve", "slow.py"), ("check", "slow.py")):
        ran = carmy(*command)
        assert ran.code == 1
        assert "unknown key adress; did you mean address?" in ran.out + ran.err


def test_a_setting_without_effect_fails_every_command(carmy: Carmy, write: Write) -> None:
    """A store object given by the program stays, so a store in the settings is an error."""
    write("carmy.toml", "[store]\nurl = 'sqlite:state.db'")
    write("kept.py", "from carmy_engine import App, MemoryStore\napp = App('kept').store(MemoryStore())\n")
    for command in (("tools", "kept.py"), ("serve", "kept.py"), ("check", "kept.py")):
        ran = carmy(*command)
        assert ran.code == 1
        assert "carmy.toml: store.url has no effect, because application 'kept' gives a MemoryStore object" in (
            ran.out + ran.err
        )


def test_check_prints_every_setting_with_its_source(
    carmy: Carmy, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` prints each setting that is not the default, and where it comes from."""
    write("explicit.py", EXPLICIT)
    write("carmy.toml", "drain_timeout_secs = 3\n[http]\nallowed_hosts = ['shop.example']")
    monkeypatch.setenv("CARMY_TIMEOUT_SECS", "5")
    monkeypatch.setenv("CARMY_ADDRESS", "127.0.0.1:0")
    ran = carmy("check", "explicit.py")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        'carmy: name = "program" (the program)',
        'carmy: address = "127.0.0.1:0" (CARMY_ADDRESS)',
        "carmy: timeout_secs = 5.0 (CARMY_TIMEOUT_SECS)",
        "carmy: drain_timeout_secs = 3.0 (carmy.toml)",
        "carmy: max_executions = 7 (the program)",
        'carmy: http.allowed_hosts = ["shop.example"] (carmy.toml)',
        "carmy: no problems found",
    ]


def test_check_prints_no_secret(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store's URL that may hold a password, only the scheme is printed."""
    monkeypatch.setenv("CARMY_STORE_URL", "postgresql://ana:hunter2@db/shop")
    ran = carmy("check", "slow.py")
    assert ran.code == 1
    assert 'store.url = "postgresql:…" (CARMY_STORE_URL)' in ran.err
    assert "hunter2" not in ran.out + ran.err


REFUSED = [
    ({"CARMY_HTTP_ALLOWED_HOSTS": "*"}, "http.allowed_hosts: '*' must be one name"),
    ({"CARMY_HTTP_ALLOWED_ORIGINS": "shop.example"}, "http.allowed_origins: 'shop.example' must be an origin"),
    ({"CARMY_ADDRESS": "0.0.0.0:0"}, "address = '0.0.0.0:0' can be reached from other machines"),
    ({"CARMY_ADDRESS": "no..where:0"}, "address = 'no..where:0': the host is not known"),
    ({"CARMY_ADDRESS": "unix:gone/x.sock"}, "address = 'unix:gone/x.sock': cannot listen there (No such file"),
    ({"CARMY_STORE_URL": "sqlite:"}, "store.url must be sqlite:PATH"),
    ({"CARMY_STORE_URL": "sqlite:gone/state.db"}, "gone/state.db: No such file or directory; the directory must exist"),
    ({"CARMY_STORE_URL": "sqlite:newer.db"}, "newer.db was written by a newer version"),
    ({"CARMY_STORE_URL": "sqlite:shop.py"}, "shop.py is not an SQLite file"),
    ({"CARMY_STORE_URL": "paper:"}, "this installation has no store 'paper'"),
    (
        {"CARMY_HTTP_ALLOWED_HOSTS": "*,a", "CARMY_ADDRESS": "0.0.0.0:0", "CARMY_STORE_URL": "sqlite:gone/state.db"},
        "http.allowed_hosts",
    ),
]


@pytest.mark.parametrize(("variables", "words"), REFUSED)
def test_check_reports_what_serve_refuses(
    carmy: Carmy, directory: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: str
) -> None:
    """`check` prints the list that `serve` prints: one line for each problem, whatever it is about."""
    store = SqliteStore(directory / "newer.db")
    trio.run(store.prepare)
    trio.run(store.aclose)
    with sqlite3.connect(directory / "newer.db") as connection:
        connection.execute("PRAGMA user_version = 1000")
    connection.close()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    checked = carmy("check", "slow.py")
    served = carmy("serve", "slow.py")
    assert (checked.code, served.code) == (1, 1)
    assert words in checked.out
    assert len(checked.out.splitlines()) == len(variables)
    assert not [line for line in checked.out.splitlines() if line not in served.err]


@pytest.mark.parametrize("command", [("serve",), ("ws",), ("mcp", "--http"), ("serve", "--processes", "2")])
def test_every_server_reports_all_problems_together(
    carmy: Carmy, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """One start shows everything that is wrong, whatever serves."""
    monkeypatch.setenv("CARMY_HTTP_ALLOWED_HOSTS", "*")
    monkeypatch.setenv("CARMY_HTTP_ALLOWED_ORIGINS", "shop.example")
    monkeypatch.setenv("CARMY_ADDRESS", "0.0.0.0:0")
    monkeypatch.setenv("CARMY_STORE_URL", "paper:")
    name, *options = command
    ran = carmy(name, "slow.py", *options)
    assert ran.code == 1
    assert "4 problems at start" in ran.err


def test_check_changes_nothing(carmy: Carmy, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` makes no file for a store and listens nowhere."""
    monkeypatch.setenv("CARMY_STORE_URL", "sqlite:state.db")
    monkeypatch.setenv("CARMY_ADDRESS", "unix:shop.sock")
    before = set(directory.iterdir())
    assert carmy("check", "slow.py").code == 0
    assert {path for path in directory.iterdir() if path.name != "__pycache__"} <= before


async def test_a_transport_may_add_problems() -> None:
    """What a transport of another package refuses is in the list, and a transport without such a list adds none."""
    problem = ConfigurationError("not like this")

    async def serve(engine: Engine) -> None:
        pytest.fail("nothing is served")

    async def problems(settings: Settings, *, authenticated: bool) -> list[ConfigurationError]:
        assert not authenticated
        return [problem]

    app = App("birds").store(MemoryStore())
    assert await outside_problems(app, Transport(serve, problems=problems), app.settings) == [problem]
    assert await outside_problems(app, Transport(serve), app.settings) == []
    assert await outside_problems(app, None, app.settings) == []


@pytest.mark.usefixtures("explicit")
def test_local_callers_have_the_identity_of_the_options(carmy: Carmy, monkeypatch: pytest.MonkeyPatch) -> None:
    """--principal and --permission win over CARMY_PRINCIPAL and CARMY_PERMISSIONS, and permissions count for the call."""
    assert carmy("call", "explicit.py", "caller").json["data"] == [None]
    monkeypatch.setenv("CARMY_PRINCIPAL", "ben")
    monkeypatch.setenv("CARMY_PERMISSIONS", "a, b")
    assert carmy("call", "explicit.py", "caller").json["data"] == ["ben", "a", "b"]
    options = ("--principal", "ana", "--permission", "x", "--permission", "confirm:drop")
    assert carmy("call", "explicit.py", "caller", *options).json["data"] == ["ana", "confirm:drop", "x"]
    assert carmy("call", "explicit.py", "drop").json["error"]["code"] == "CONFIRMATION_REQUIRED"
    assert carmy("call", "explicit.py", "drop", *options).json["data"] == "dropped"
    assert carmy("call", "explicit.py", "caller", "--principal", "").code == 2


@pytest.mark.usefixtures("explicit")
@pytest.mark.parametrize("transport", ["stdio", "mcp"])
async def test_the_parent_of_a_server_has_the_identity_of_the_options(transport: str) -> None:
    """Over standard input and output the options name the caller, too."""
    command = [*CARMY, transport, "explicit.py", "--principal", "ana", "--permission", "x"]
    opened = open_stdio(command) if transport == "stdio" else open_mcp(command)
    with trio.fail_after(30):
        async with opened as client:
            result = await client.execute(ExecutionRequest(tool="caller", arguments={}))
    assert list(result.unwrap()) == ["ana", "x"]


@pytest.mark.parametrize(
    "command",
    [("serve", "slow.py"), ("ws", "slow.py"), ("mcp", "slow.py", "--http"), ("call", "x", "--url", "http://a")],
)
def test_an_identity_is_refused_over_a_network(
    carmy: Carmy, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Callers over a network show credentials, so no command gives them an identity, by option or by variable."""
    refused = carmy(*command, "--principal", "ana")
    assert refused.code == 2
    assert "principal" in refused.err
    monkeypatch.setenv("CARMY_PERMISSIONS", "a")
    refused = carmy(*command)
    assert refused.code == 2
    assert "callers over a network show credentials" in refused.err


@contextlib.contextmanager
def bare_logging() -> Iterator[logging.Logger]:
    """The root logger as in a process that has configured nothing, for the length of a block."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    try:
        yield root
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_logging_is_configured_where_the_application_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines from info on go to standard error; libraries below the transports log warnings only."""
    with bare_logging() as root:
        _logs.configure_logging(LogSettings())
        logging.getLogger("carmy.http").info("served %s", "it")
        logging.getLogger("mcp.server").info("payload")
        logging.getLogger("shop").debug("detail")
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("INFO carmy.http: served it")
        _logs.configure_logging(LogSettings())
        assert len(root.handlers) == 1


def test_logging_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`json` writes one object on each line, tracebacks and the number of the process included."""
    with bare_logging():
        _logs.configure_logging(LogSettings(level="error", format="json"), process=17)
        log = logging.getLogger("carmy.engine")
        log.warning("left out")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            log.exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert '"level":"error","logger":"carmy.engine","message":"failed","process":17,"exception":"Traceback' in line


@pytest.mark.parametrize("style", ["text", "json"])
def test_tracebacks_of_every_logger_are_bounded(
    style: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    """A library or the application may log an exception of any length; the values that pydantic refused are left out."""
    sent = "secret"
    with bare_logging():
        _logs.configure_logging(LogSettings(level="error", format=style))
        log = logging.getLogger("application")
        try:
            raise RuntimeError("x" * 1_000_000)
        except RuntimeError:
            log.exception("failed")
        try:
            TypeAdapter(int).validate_python(sent)
        except ValidationError:
            log.exception("failed")
    written = capsys.readouterr().err
    assert "omitted" in written
    assert "validation error" in written
    assert sent not in written
    assert len(written) < 100_000


@pytest.mark.parametrize("name", [None, "carmy"])
def test_logging_of_the_application_survives(name: str | None) -> None:
    """Handlers that the application has installed, for everything or for the project's loggers, stay the only ones."""
    with bare_logging() as root:
        logger = logging.getLogger(name)
        handler = logging.NullHandler()
        logger.addHandler(handler)
        try:
            _logs.configure_logging(LogSettings(level="debug"))
            assert logger.handlers == [handler]
            assert root.level == logging.WARNING
        finally:
            logger.removeHandler(handler)


async def test_serve_leaves_logging_to_the_application(write: Write) -> None:
    """An application's own `basicConfig` counts under `serve`, although the command is there first."""
    write(
        "own.py",
        """
        import logging
        from carmy_engine import App, ExecutionRequest

        logging.basicConfig(level=logging.INFO, format="OWN %(message)s")
        app = App("own")
        app.ready("log", lambda: logging.getLogger("shop").info("line"))
        logging.getLogger("shop").info("loaded")
        """,
    )
    with trio.fail_after(30):
        async with running_server(*CARMY, "serve", "own.py", "--address", "127.0.0.1:0") as server:
            assert b"OWN loaded\n" in server.said
            server.process.send_signal(signal.SIGHUP)
            assert await server.process.wait() == 0


def test_a_deployment_replaces_what_the_program_gave() -> None:
    """Values reach tables, too, and everything else stays."""
    given = Settings(name="given", log=LogSettings(level="error"))
    changed = Deployment({"log.format": "json", "timeout_secs": 5.0}).over(given)
    assert changed == Settings(name="given", timeout_secs=5, log=LogSettings(level="error", format="json"))
