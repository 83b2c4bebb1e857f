"""Transports that other distributions offer: what they describe is what the command does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from carmy_engine import Settings
from carmy_engine.transport import Transport
from tests.cli.served import CARMY

LINES = '''
    """A transport that answers one question and ends."""

    import sys

    import trio
    from carmy_engine import ConfigurationError, ExecutionRequest
    from carmy_engine.transport import Transport


    def prepare():
        print("prepared", file=sys.stderr)


    async def problems(settings, *, authenticated):
        return [ConfigurationError("the post is on strike")] if settings.address.endswith(":99") else []


    async def serve_pigeon(engine, *, principal=None, permissions=(), task_status=trio.TASK_STATUS_IGNORED):
        caller = engine.bind(transport="pigeon", principal=principal, permissions=permissions)
        task_status.started("pigeon listening on the roof")
        print((await caller.execute(ExecutionRequest(tool="whoami"))).data, flush=True)


    async def serve_post(engine, *, task_status=trio.TASK_STATUS_IGNORED):
        task_status.started(f"post listening on {engine.settings.address}")
        print("not for standard output", flush=True)


    pigeon = Transport(
        serve_pigeon,
        help="Serve by pigeon.",
        options=(),
        has_local_callers=True,
        claims_stdout=True,
        prepare=prepare,
        over_http=Transport(serve_post, problems=problems),
    )
'''

SHOP = """
    from carmy_engine import AgentContext, App

    print("printed while loading")
    app = App("shop")

    @app.tool(effect="none")
    async def whoami(ctx: AgentContext) -> str:
        return f"{ctx.principal}"
"""


@pytest.fixture
def pigeons(tmp_path: Path) -> Path:
    """A directory with an installed distribution that offers transports, and an application."""
    information = tmp_path / "pigeons-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1\n")
    (information / "entry_points.txt").write_text(
        "[carmy.transports]\npigeon = pigeons:pigeon\nplain = pigeons:serve_post\nlost = pigeons_of_old:serve\nweird = sys:path\n"
    )
    (tmp_path / "pigeons.py").write_text(textwrap.dedent(LINES))
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    return tmp_path


def carmy(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(directory), *sys.path])
    return subprocess.run(
        [*CARMY, *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_transport_describes_its_command(pigeons: Path) -> None:
    """The command of a transport has the help and the options that the transport object names."""
    listed = carmy(pigeons, "--help").stdout
    assert re.search(r"pigeon +Serve by pigeon\.", listed)
    assert re.search(r"plain +Serve over plain\.", listed)
    assert "lost" in listed
    assert "No module named 'pigeons_of_old'" in listed
    helped = carmy(pigeons, "pigeon", "--help").stdout
    assert all(option in helped for option in ("--http", "--address", "--principal", "--permission", "--log-level"))
    assert "--server" not in helped
    helped = carmy(pigeons, "plain", "--help").stdout
    assert "--address" in helped
    assert all(option not in helped for option in ("--http", "--principal", "--server"))


def test_a_transport_may_claim_standard_output(pigeons: Path) -> None:
    """A transport that claims standard output is prepared before the application is loaded, and alone writes to it."""
    ran = carmy(pigeons, "pigeon", "shop.py", "--principal", "ana")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith("prepared\n")
    assert "carmy: pigeon listening on the roof" in ran.stderr
    assert ran.stdout.splitlines()[-1] == "ana"


def test_standard_output_is_kept_from_other_transports(pigeons: Path) -> None:
    """What a transport prints without having claimed standard output goes to standard error."""
    for words in (("plain", "shop.py"), ("pigeon", "shop.py", "--http")):
        ran = carmy(pigeons, *words, "--address", "127.0.0.1:0")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == ""
        assert "post listening on 127.0.0.1:0" in ran.stderr
        assert "not for standard output" in ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("plain", "--principal", "ana"), 2, "--principal"),
        (("pigeon", "--http", "--principal", "ana"), 2, "pigeon --http takes no --principal"),
        (("pigeon", "--address", "127.0.0.1:0"), 2, "--address of pigeon goes with --http"),
        (("pigeon", "--http", "--address", "127.0.0.1:99"), 1, "the post is on strike"),
        (("lost",), 1, "the transport 'lost' cannot be loaded: No module named 'pigeons_of_old'"),
        (("weird",), 1, "the transport 'weird' is a list object, and cannot be called"),
    ],
)
def test_a_command_line_that_a_transport_does_not_take(
    pigeons: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    """Options, problems and broken offers are reported in one line each, whatever the transport."""
    command, *options = words
    ran = carmy(pigeons, command, "shop.py", *options)
    assert ran.returncode == code, ran.stderr
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


async def test_a_transport_is_called_as_the_function_it_holds() -> None:
    """A transport object takes what its function takes."""
    seen: list[object] = []

    async def serve(engine: object, *, word: str) -> None:
        seen.append((engine, word))

    transport = Transport(serve)
    await transport(Settings(), word="hello")  # type: ignore[arg-type] # any engine will do
    assert seen == [(Settings(), "hello")]
