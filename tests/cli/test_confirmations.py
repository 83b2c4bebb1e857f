"""The commands that answer confirmations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

import carmy_http
from tests.support import vault
from tests.support.vault import burn, burnt

from .conftest import Write
from .test_commands import Carmy, carmy

__all__ = ["carmy"]

PROGRAM = """
    from carmy_engine import App

    app = App("shop").store("sqlite:state.db")

    @app.tool(effect="destructive")
    async def drop(name: str) -> str:
        return f"{name} is gone"
"""

CALL = ("call", "program.py", "drop", '{"name": "x"}', "--principal", "ana")


@pytest.fixture
def shop(write: Write) -> Path:
    """A program with a store."""
    return write("program.py", PROGRAM)


def asked(carmy: Carmy) -> str:
    """The confirmation of a refused call."""
    error = carmy(*CALL).json["error"]
    assert error["code"] == "CONFIRMATION_REQUIRED"
    return str(error["details"]["confirmation_id"])


@pytest.mark.parametrize("where", [("program.py",), ("--store", "sqlite:state.db")])
def test_on_a_store(carmy: Carmy, shop: Path, where: tuple[str, ...]) -> None:
    """Each command is a process of its own: asked in one, approved in another, run in a third, and no more in a fourth."""
    confirmation_id = asked(carmy)
    head, row = carmy("confirmations", "list", *where).out.splitlines()
    assert head.split() == ["ASKED", "STATE", "LEFT", "TOOL", "PRINCIPAL", "CONFIRMATION", "ARGUMENTS"]
    assert all(word in row for word in ("pending", "drop", "ana", confirmation_id, '{"name": "x"}'))
    where = where if where[0].startswith("--") else ()
    target = () if where else ("program.py",)
    approved = carmy("confirmations", "approve", *target, confirmation_id, *where)
    assert (approved.code, approved.json["state"], approved.json["answered_by"]) == (0, "approved", "operator")
    (line,) = carmy("confirmations", "list", *target, *where, "--json").out.splitlines()
    assert json.loads(line)["arguments"] == {"name": "x"}
    assert carmy(*CALL).json["data"] == "x is gone"
    denied = carmy("confirmations", "deny", *target, asked(carmy), *where)
    assert denied.json["state"] == "denied"
    assert carmy(*CALL).json["error"]["code"] == "CONFIRMATION_DENIED"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("approve", "program.py", "conf_0"), 1, "CONFIRMATION_NOT_FOUND"),
        (("approve", "program.py"), 2, "confirmations approve needs the id of a confirmation"),
        (("deny",), 2, "confirmations deny needs the id of a confirmation"),
        (("list", "--store", "memory:"), 1, "has no confirmations that could be read from here"),
        (("list", "--store", "sqlite:other.db"), 1, "there is no file"),
        (("list", "program.py", "--token", "t"), 2, "give its --url as well"),
        (("list", "program.py", "--url", "http://127.0.0.1:1"), 2, "takes neither a target nor --store"),
        (("list", "--url", "ftp://x"), 2, "the URL of a server must be like"),
        (("list", "--url", "http://127.0.0.1:1"), 1, "cannot connect to http://127.0.0.1:1"),
    ],
)
def test_what_is_refused(carmy: Carmy, shop: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """Each refusal states its reason, and whether the command line is wrong."""
    asked(carmy)
    ran = carmy("confirmations", *words)
    assert ran.code == code
    assert said in ran.err


async def test_on_a_running_server(carmy: Carmy, tmp_path: Path) -> None:
    """The token of the page answers, for the principal that it stands for; that of the caller does not."""

    async def run(*words: str) -> object:
        return await trio.to_thread.run_sync(carmy, "confirmations", *words)

    with trio.fail_after(30):
        async with (
            vault.served(vault.vault(tmp_path), carmy_http.serve) as url,
            carmy_http.open_http(url, token=vault.ANA) as client,
        ):
            refused = (await client.execute(burn())).error
            assert refused is not None
            confirmation_id = (refused.details or {})["confirmation_id"]
            forbidden = await run("approve", confirmation_id, "--url", url, "--token", vault.ANA)
            assert "FORBIDDEN" in forbidden.err  # type: ignore[attr-defined]
            page = ("--url", url, "--token", vault.HOST)
            assert confirmation_id in (await run("list", *page)).out  # type: ignore[attr-defined]
            answered = await run("approve", confirmation_id, *page)
            assert answered.json["answered_by"] == "eve"  # type: ignore[attr-defined]
            assert (await client.execute(burn())).data == "letters is gone"
    assert burnt(tmp_path) == ["letters"]
