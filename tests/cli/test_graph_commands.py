"""The commands ``graph``: a graph is drawn, run, resumed and looked at, each time in a process of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Write
from .test_commands import Carmy, Ran, carmy

__all__ = ["carmy"]

PROGRAM = '''
    import dataclasses
    import os
    import signal

    import trio
    from carmy_engine import AgentContext, App, tool
    from carmy_engine.graph import StateGraph

    @tool(effect="write", register=False)
    async def pay(cents: int, ctx: AgentContext) -> str:
        """Pay."""
        with open("paid", "a") as file:
            file.write(f"{cents}\\n")
        if os.path.exists("kill"):
            os.unlink("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        if os.path.exists("stop"):
            os.kill(os.getpid(), signal.SIGTERM)
            await trio.sleep_forever()
        ctx.progress.report(1, 2, "half\\x1b[2J")
        return f"paid {cents} for {ctx.principal} of {ctx.metadata.get('tenant')}"

    @dataclasses.dataclass(frozen=True)
    class Order:
        cents: int = 0
        approved_by: str = ""
        receipt: str = ""

    async def approve(order, ctx):
        if order.cents > 100:
            return dataclasses.replace(order, approved_by=await ctx.interrupt({"pay": order.cents}))

    async def paying(order, ctx):
        return dataclasses.replace(order, receipt=await ctx.call(pay, cents=order.cents))

    declared = StateGraph(Order, name="orders").node("approve", approve).node("pay", paying).edge("approve", "pay")
    graph = declared.compile()
    app = App("shop").add(pay).store("sqlite:state.db")

    if __name__ == "__main__":
        app.run()
'''


@pytest.fixture
def program(write: Write) -> Path:
    """A program with a graph, an application and a store."""
    return write("program.py", PROGRAM)


def in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which may be killed."""
    code = "from carmy_engine.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def kinds(ran: Ran) -> list[str]:
    """The kinds of the events on standard error."""
    words = [line.split()[1] for line in ran.err.splitlines() if line.startswith("carmy: ")]
    return [word for word in words if "." in word]


def paid() -> list[str]:
    return Path("paid").read_text().splitlines()


def test_show(carmy: Carmy, program: Path) -> None:
    """`show` draws a graph as Mermaid or as text; without a name, the only one of the file."""
    assert carmy("graph", "show", "program.py").out.startswith("flowchart TD\n")
    ran = carmy("graph", "show", "program.py:graph", "--format", "text")
    assert (ran.code, ran.out) == (0, "start -> approve\napprove -> pay\npay -> end\n")


def test_run_prints_the_state_and_the_events(carmy: Carmy, program: Path) -> None:
    """`run` prints the last state to standard output, and a line for each event to standard error."""
    words = ('{"cents": 5}', "--metadata", '{"tenant": "acme"}', "--principal", "ana")
    ran = carmy("graph", "run", "program.py:graph", "order-1", *words)
    assert (ran.code, ran.json) == (0, {"cents": 5, "approved_by": "", "receipt": "paid 5 for ana of acme"})
    assert kinds(ran) == [
        "run.started",
        "checkpoint.saved",
        "node.started",
        "node.completed",
        "checkpoint.saved",
        "node.started",
        "tool.started",
        "tool.progress",
        "tool.completed",
        "node.completed",
        "checkpoint.saved",
        "checkpoint.saved",
        "run.completed",
    ]
    assert "tool.progress pay pay 1 2 half\N{REPLACEMENT CHARACTER}[2J\n" in ran.err


def test_a_question_and_its_answer(carmy: Carmy, program: Path) -> None:
    """A run that waits ends with 3, its question and the command that answers; that one continues it in another process."""
    ran = carmy("graph", "run", "program.py", "order 1", '{"cents": 500}')
    assert (ran.code, ran.json["receipt"]) == (3, "")
    assert 'the node approve asks {"pay":500}; answer: carmy graph resume' in ran.err
    assert "graph resume program.py:graph 'order 1' --answer JSON\n" in ran.err
    again = carmy("graph", "resume", "program.py", "order 1")
    assert (again.code, kinds(again)) == (3, ["run.started", "run.completed"])
    done = carmy("graph", "resume", "program.py", "order 1", "--answer", '"ben"', "--node", "approve", "--json")
    assert done.code == 0
    assert (done.json["status"], done.json["thread_id"], done.json["questions"]) == ("completed", "order 1", [])
    assert done.json["state"] == {"cents": 500, "approved_by": "ben", "receipt": "paid 500 for None of None"}
    assert paid() == ["500"]


def test_history(carmy: Carmy, program: Path) -> None:
    """`history` lists the checkpoints, newest first, as a table or as one JSON object a line."""
    carmy("graph", "run", "program.py", "order-1", '{"cents": 500}')
    ran = carmy("graph", "history", "program.py:graph", "order-1")
    head, *rows = ran.out.splitlines()
    assert (ran.code, head.split()) == (0, ["NUMBER", "SAVED", "RUN", "STATUS", "NODE", "NEXT"])
    assert [(row.split()[0], *row.split()[4:]) for row in rows] == [
        ("1", "interrupted", "approve"),
        ("0", "running", "approve"),
    ]
    (line,) = carmy("graph", "history", "program.py", "order-1", "--json", "--limit", "1").out.splitlines()
    entry = json.loads(line)
    assert (entry["number"], entry["state"]["cents"], entry["next"]) == (1, 500, ["approve"])
    assert entry["questions"] == [{"node": "approve", "value": {"pay": 500}}]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
@pytest.mark.parametrize(
    ("settled", "code", "receipt", "effects"),
    [
        (("--completed", '"receipt 7"'), 0, "receipt 7", ["5"]),
        (("--released",), 0, "paid 5 for None of None", ["5", "5"]),
        (("--failed", "the bank refused"), 1, "", ["5"]),
    ],
)
def test_an_operator_settles_what_is_in_doubt(
    carmy: Carmy, program: Path, settled: tuple[str, ...], code: int, receipt: str, effects: list[str]
) -> None:
    """A run whose process was killed in a write is in doubt: the command names what to settle, and then it continues."""
    Path("kill").touch()
    assert in_a_process("graph", "run", "program.py", "order-1", '{"cents": 5}').returncode == -signal.SIGKILL
    ran = carmy("graph", "resume", "program.py", "order-1")
    assert ran.code == 3
    (listed,) = carmy("executions", "list", "program.py", "--json").out.splitlines()
    execution_id = json.loads(listed)["execution_id"]
    assert f"the node pay called pay, and the outcome of {execution_id} is not known; find it out, then: " in ran.err
    assert f"carmy executions settle program.py:app {execution_id} with --completed JSON, " in ran.err
    (newest, *_) = carmy("graph", "history", "program.py", "order-1", "--json").out.splitlines()
    (doubt,) = json.loads(newest)["doubts"]
    assert (doubt["node"], doubt["tool"], doubt["execution_id"]) == ("pay", "pay", execution_id)
    assert carmy("graph", "resume", "program.py", "order-1").code == 3
    assert carmy("executions", "settle", "program.py:app", execution_id, *settled).code == 0
    done = carmy("graph", "resume", "program.py", "order-1")
    assert (done.code, done.json["receipt"], paid()) == (code, receipt, effects)
    if code == 1:
        assert "SETTLED_AS_FAILED: the bank refused; try again: " in done.err


@pytest.mark.skipif(os.name != "posix", reason="a process sends itself a signal that it can handle")
def test_a_signal_cancels_the_run(carmy: Carmy, program: Path) -> None:
    """SIGTERM cancels the run as a shutdown does, with exit code 130; a write that was cut off is in doubt when it is resumed."""
    Path("stop").touch()
    ended = in_a_process("graph", "run", "program.py", "order-1", '{"cents": 5}', "--json")
    result = json.loads(ended.stdout)
    assert (ended.returncode, result["status"], result["cause"]) == (130, "cancelled", "shutdown")
    assert (
        "CANCELLED: the run was cancelled (shutdown); try again: carmy graph resume program.py:graph order-1"
        in ended.stderr
    )
    Path("stop").unlink()
    ran = carmy("graph", "resume", "program.py", "order-1", "--json")
    (doubt,) = ran.json["doubts"]
    assert (ran.code, ran.json["status"], doubt["tool"]) == (3, "in_doubt", "pay")
    assert carmy("executions", "settle", "program.py", doubt["execution_id"], "--completed", '"paid"').code == 0
    assert carmy("graph", "resume", "program.py", "order-1").json["receipt"] == "paid"


def test_the_timeout_of_a_run(carmy: Carmy, program: Path) -> None:
    """A run that its time has ended is timed out, with exit code 1."""
    ran = carmy("graph", "run", "program.py", "order-1", '{"cents": 5}', "--timeout", "0.000001", "--json")
    assert (ran.code, ran.json["status"], ran.json["error"]["code"]) == (1, "timed_out", "TIMEOUT")
    assert "TIMEOUT: the deadline of the run passed; try again: carmy graph resume program.py:graph order-1" in ran.err
    assert carmy("graph", "resume", "program.py", "order-1").code == 0


def test_a_run_belongs_to_its_caller(carmy: Carmy, program: Path) -> None:
    """A run is resumed with the principal and the session that it was started with."""
    owner = ("--principal", "ana", "--session", "s1")
    carmy("graph", "run", "program.py", "order-1", '{"cents": 500}', *owner)
    ran = carmy("graph", "resume", "program.py", "order-1", "--answer", '"ben"', "--principal", "ana")
    assert (ran.code, ran.out) == (1, "")
    assert "FORBIDDEN" in ran.err
    assert carmy("graph", "resume", "program.py", "order-1", "--answer", '"ben"', *owner).code == 0


def test_a_state_from_standard_input(carmy: Carmy, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads the initial state or the answer from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"cents": 500}')))
    assert carmy("graph", "run", "program.py", "order-1", "-").code == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"ben"')))
    assert carmy("graph", "resume", "program.py", "order-1", "--answer", "-").json["approved_by"] == "ben"
    carmy("graph", "run", "program.py", "order-2", '{"cents": 500}')
    ran = carmy("graph", "resume", "program.py", "order-2", "--answer", "-5")
    assert (ran.code, "INVALID_STATE" in ran.err) == (1, True)


def test_the_application_of_a_graph(carmy: Carmy, program: Path, write: Write) -> None:
    """A graph in a file without an application uses that of --app, or of the settings, or the tools beside it."""
    write("graphs.py", "from program import graph")
    assert carmy("graph", "run", "graphs.py", "t1", '{"cents": 1}', "--app", "program.py:app").json["receipt"]
    write("carmy.toml", 'app = "program:app"')
    assert carmy("graph", "run", "graphs.py:graph", "t2", '{"cents": 1}').json["receipt"]
    assert carmy("graph", "run", "t3", '{"cents": 1}').json["receipt"]
    write("carmy.toml", "")
    ran = carmy("graph", "run", "graphs.py", "t4", '{"cents": 1}')
    assert (ran.code, "TOOL_NOT_FOUND" in ran.err) == (1, True)
    assert "the store memory: ends with this command, so the run cannot be resumed" in ran.err


def test_the_commands_of_a_program(program: Path) -> None:
    """A program has the same commands; they take the name of a graph instead of a target."""

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "program.py", *words], capture_output=True, text=True, check=False)

    assert ran("graph", "show", "--format", "text").stdout.startswith("start -> approve")
    waiting = ran("graph", "run", "graph", "order-1", '{"cents": 500}')
    assert waiting.returncode == 3
    assert "answer: shop graph resume graph order-1 --answer JSON" in waiting.stderr
    assert json.loads(ran("graph", "resume", "order-1", "--answer", '"ben"').stdout)["approved_by"] == "ben"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show", "program.py:app"), 2, "program.py has no graph 'app'; it has: graph"),
        (("show", "program.py:declared"), 2, "the graph declared is not compiled: call its method compile()"),
        (("show", "shop.py"), 2, "shop.py has no graph"),
        (("run", "program.py"), 2, "graph run needs a graph and the id of a thread"),
        (("run", "program.py", "t", "{"), 2, "the initial state is not valid JSON"),
        (("run", "program.py", "t", '{"cents": "x"}'), 1, "INVALID_STATE"),
        (("run", "program.py", "t", "--metadata", "[1]"), 2, "--metadata must be a JSON object"),
        (("run", "program.py", "t", "--timeout", "-1"), 2, "--timeout must be a number of seconds above 0"),
        (("run", "program.py", "t", "--app", "shop.py:ap"), 2, "shop.py has no application 'ap'"),
        (("run", "program.py", "t", "--no-such"), 2, "no-such"),
        (("run", "program.py", "waits", '{"cents": 1}'), 1, "THREAD_BUSY"),
        (("resume", "program.py", "nope"), 1, "THREAD_NOT_FOUND"),
        (("resume", "program.py", "t", "--node", "pay"), 2, "--node belongs to an --answer"),
        (("resume", "program.py", "waits", "--answer", "{"), 2, "--answer is not valid JSON"),
        (("resume", "program.py", "waits", "--answer", "1", "--node", "pay"), 1, "nodes that have asked: approve"),
        (("resume", "program.py", "t", "u"), 2, "graph resume needs a graph and the id of a thread"),
        (("history", "program.py", "nope"), 1, "the graph 'orders' has no run on the thread 'nope'"),
        (("history", "program.py", "waits", "--limit", "0"), 2, "--limit must be"),
    ],
)
def test_what_is_refused(carmy: Carmy, program: Path, words: tuple[str, ...], code: int, told: str) -> None:
    """A wrong command line and a refused run are reported in one line, and nothing is printed to standard output."""
    carmy("graph", "run", "program.py", "waits", '{"cents": 500}')
    ran = carmy("graph", *words)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


def test_history_needs_a_store_that_lasts(carmy: Carmy, write: Write) -> None:
    """Checkpoints in memory end with their process, and a file that does not exist is not made."""
    write("program.py", PROGRAM.replace('.store("sqlite:state.db")', ""))
    ran = carmy("graph", "history", "program.py", "order-1")
    assert (ran.code, "the store memory: keeps no checkpoints" in ran.err) == (1, True)
    write("other.py", PROGRAM)
    ran = carmy("graph", "history", "other.py", "order-1")
    assert (ran.code, "there is no file" in ran.err, Path("state.db").exists()) == (1, True, False)
