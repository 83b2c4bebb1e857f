"""The commands that look into a store."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import App, Cause, ExecutionRequest
from carmy_engine.cli import _table
from carmy_engine.stores.sqlite import SqliteStore
from tests.stores.kit import reservation

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
        (("--status", "timed_out"), 0),
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
        (("program.py", "--status", "odd"), 2, '"cancelled", "timed_out"'),
    ],
)
def test_audit_refuses(carmy: Carmy, shop: Path, words: tuple[str, ...], code: int, told: str) -> None:
    """The command reports what it cannot do in one line, and nothing is made or changed."""
    before = shop.read_text()
    ran = carmy("audit", *words)
    assert ran.code == code
    assert told in ran.err
    assert ran.out == ""
    assert shop.read_text() == before
    assert not Path("missing.db").exists()


def in_doubt(*names: str, running: str | None = None) -> None:
    """Leave interrupted executions in the store of the program, and one that a living process runs, for as long as this one."""

    async def main() -> None:
        store = SqliteStore("state.db")
        for number, name in enumerate(names):
            entry = reservation(name, f"exec_{name}", started_at=time.time() + number)
            await store.reserve(entry)
            await store.interrupt(entry.identity, entry.execution_id, Cause.DISCONNECT, time.time())
        await store.aclose()
        if running is not None:
            await SqliteStore("state.db").reserve(reservation(running, f"exec_{running}"))

    trio.run(main)


async def retry(name: str) -> Any:
    """What a store tells somebody who sends the same again: the entry's state and its outcome."""
    store = SqliteStore("state.db")
    entry = await store.reserve(reservation(name, "exec_retry"))
    await store.aclose()
    return None if entry is None else (entry.state.value, entry.outcome)


def test_executions_in_doubt_are_listed(carmy: Carmy, shop: Path) -> None:
    """`executions list` shows what runs or is in doubt, newest first; options narrow it; --json prints one object a line."""
    in_doubt("r1", "r2", running="r3")
    ran = carmy("executions", "list", "program.py")
    assert ran.code == 0
    head, *rows = ran.out.splitlines()
    assert head.split() == ["STARTED", "STATE", "CAUSE", "TOOL", "PRINCIPAL", "SESSION", "REQUEST", "EXECUTION"]
    assert [row.split()[-1] for row in rows] == ["exec_r2", "exec_r1", "exec_r3"]
    assert "disconnect" in rows[0]
    listed = carmy("executions", "list", "--store", "sqlite:state.db", "--json", "--state", "running").out.splitlines()
    assert [json.loads(line)["execution_id"] for line in listed] == ["exec_r3"]
    assert len(carmy("executions", "list", "program.py", "--limit", "1").out.splitlines()) == 2
    assert len(carmy("executions", "list", "program.py", "--tool", "other").out.splitlines()) == 1
    assert json.loads(carmy("executions", "show", "program.py", "exec_r1").out)["request_id"] == "r1"


@pytest.mark.parametrize(
    ("words", "status", "after"),
    [
        (("--completed", '{"paid": 1.50}'), "completed", ("completed", b'{"paid": 1.50}', None)),
        (("--completed", "-5"), "completed", ("completed", b"-5", None)),
        (("--failed", "the card was refused"), "failed", ("completed", None, "SETTLED_AS_FAILED")),
        (("--failed", "no", "--code", "REFUSED"), "failed", ("completed", None, "REFUSED")),
        (("--released",), "cancelled", None),
    ],
)
def test_settling(carmy: Carmy, shop: Path, words: tuple[str, ...], status: str, after: Any) -> None:
    """An operator settles an execution with its outcome; a retry gets that, and the audit trail has it."""
    in_doubt("r1")
    ran = carmy("executions", "settle", "program.py", "exec_r1", *words)
    assert (ran.code, ran.err) == (0, "")
    (line,) = carmy("audit", "program.py", "--json").out.splitlines()
    record = json.loads(line)
    assert (record["execution_id"], record["status"], record["settled"]) == ("exec_r1", status, "operator")
    assert (record["request_id"], record["principal"], record["cause"]) == ("r1", "ana", "operator")
    found = trio.run(retry, "r1")
    if after is None:
        assert found is None
    else:
        state, outcome = found
        code = None if outcome.error is None else outcome.error.code
        assert (state, outcome.data_json, code) == after
        again = carmy("executions", "settle", "program.py", "exec_r1", "--released")
        assert again.code == 1
        assert "exec_r1 is completed: it has an answer" in again.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("exec_r1",), 2, "settle needs one of"),
        (("exec_r1", "--released", "--failed", "no"), 2, "settle needs one of"),
        (("exec_r1", "--completed", "{"), 2, "--completed is not valid JSON"),
        (("--released",), 2, "needs the id of an execution"),
        (("exec_9", "--released"), 1, "the store has no execution exec_9"),
        (("exec_r3", "--released"), 1, "exec_r3 is running: its process is alive"),
    ],
)
def test_settling_refuses(carmy: Carmy, shop: Path, words: tuple[str, ...], code: int, told: str) -> None:
    """What cannot be settled is left as it is."""
    in_doubt("r1", running="r3")
    ran = carmy("executions", "settle", "program.py", *words)
    assert ran.code == code
    assert told in ran.err
    assert len(carmy("executions", "list", "program.py").out.splitlines()) == 3


def test_tables_are_harmless() -> None:
    """What callers have chosen cannot move the cursor of a reader's terminal, nor push the columns apart."""
    text = _table.table(("A", "B"), [("\x1b[2J\n", None), ("x" * 100, 1)]).decode()
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3
    assert max(map(len, text.splitlines())) <= _table.MAX_CELL + 3
    assert _table.moment(0.0) == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0))
