"""The commands that look into a store."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import trio

from carmy_engine import App, ExecutionRequest
from carmy_engine.cli import _table

from .conftest import Write
from .test_commands import Carmy, carmy

__all__ = ["carmy"]

PROGRAM = '''
    from carmy_engine import App

    app = App("shop").store("sqlite:state.db")

    @app.tool(effect="write", parallel_safe=True)
    async def pay(amount: int) -> int:
        """Pay."""
        return amount
'''


@pytest.fixture
def shop(write: Write) -> Path:
    """A program with a store."""
    return write("program.py", PROGRAM)


def test_audit_prints_what_has_happened(carmy: Carmy, shop: Path) -> None:
    """`audit` prints a table, newest first, of the target's store."""
    carmy("call", "program.py", "pay", '{"amount": 1}', "--request-id", "r1")
    carmy("call", "program.py", "pay", '{"amount": 1}', "--request-id", "r1")
    carmy("call", "program.py", "pay", '{"amount": "x"}')
    ran = carmy("audit", "program.py")
    assert ran.code == 0
    head, *rows = ran.out.splitlines()
    assert head.split() == ["TIME", "TOOL", "STATUS", "CODE", "PRINCIPAL", "TRANSPORT", "MS", "EXECUTION", "REQUEST"]
    assert ["INVALID_ARGUMENTS" in rows[0], "(replay)" in rows[1], "completed" in rows[2]] == [True, True, True]
    assert len(rows) == 3


def test_audit_as_json(carmy: Carmy, shop: Path) -> None:
    """With --json it is one object a line, with every field of the record."""
    carmy("call", "program.py", "pay", '{"amount": 1}', "--request-id", "r1")
    ran = carmy("audit", "--store", "sqlite:state.db", "--json")
    (line,) = ran.out.splitlines()
    found = json.loads(line)
    assert (found["tool"], found["status"], found["request_id"], found["effect"]) == ("pay", "completed", "r1", "write")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ((), 3),
        (("--limit", "1"), 1),
        (("--status", "failed"), 1),
        (("--tool", "pay"), 3),
        (("--tool", "other"), 0),
        (("--principal", "ana"), 0),
        (("--since", "1h"), 3),
        (("--until", "1h"), 0),
        (("--since", "2020-01-01"), 3),
        (("--until", "2020-01-01T10:00+02:00"), 0),
    ],
)
def test_audit_filters(carmy: Carmy, shop: Path, words: tuple[str, ...], count: int) -> None:
    """Each option narrows what is printed."""
    for argument in ("1", "2", '"x"'):
        carmy("call", "program.py", "pay", f'{{"amount": {argument}}}')
    assert len(carmy("audit", "program.py", "--json", *words).out.splitlines()) == count


def test_audit_of_an_application(carmy: Carmy, tmp_path: Path) -> None:
    """Over one application it takes no target, and uses the application's own store."""
    app = App("shop").store(f"sqlite:{tmp_path / 'own.db'}")

    @app.tool(effect="none")
    async def ping() -> str:
        """Answer."""
        return "pong"

    async def call() -> None:
        async with app.open() as engine:
            await engine.execute(ExecutionRequest(tool="ping"))

    trio.run(call)
    assert "ping" in carmy("audit", app=app).out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--store", "sqlite:missing.db"), 1, "there is no file"),
        (("--store", "memory:"), 1, "the store memory: keeps no audit records"),
        (("--store", ""), 2, "--store: url must be a text"),
        (("--store", "sqlite:program.py"), 1, "is not an SQLite file"),
        (("program.py", "--since", "soon"), 2, "--since must be a date"),
        (("program.py", "--limit", "0"), 2, "--limit must be"),
        (("program.py", "--status", "odd"), 2, "odd"),
    ],
)
def test_audit_refuses(carmy: Carmy, shop: Path, words: tuple[str, ...], code: int, told: str) -> None:
    """What it cannot do it says in one line, and nothing is made or changed."""
    before = shop.read_text()
    ran = carmy("audit", *words)
    assert ran.code == code
    assert told in ran.err
    assert ran.out == ""
    assert shop.read_text() == before
    assert not Path("missing.db").exists()


def test_tables_are_harmless() -> None:
    """What callers have chosen cannot move the cursor of whoever reads it, nor push the columns apart."""
    text = _table.table(("A", "B"), [("\x1b[2J\n", None), ("x" * 100, 1)]).decode()
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3
    assert max(map(len, text.splitlines())) <= _table.MAX_CELL + 3
    assert _table.moment(0.0) == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0))
