"""A process that makes others and lets them die: ``python -m tests.durability.victim``.

It reads one `Orders` per line, forks a child that follows them, and writes one `Report` per line. Forking is what makes hundreds of
deaths affordable: everything is imported once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import apsw
import msgspec
import trio

from carmy_engine import AgentContext, App, Completed, ExecutionRequest, NotStarted
from carmy_engine.stores.postgres import PostgresLimits, PostgresStore
from carmy_engine.stores.sqlite import SqliteStore

STEPS = (
    "before reserve",
    "reserve: before commit",
    "reserve: in commit",
    "reserve: after commit",
    "after reserve",
    "tool: before effect",
    "tool: after effect",
    "before record",
    "record: before commit",
    "record: in commit",
    "record: after commit",
    "after record",
)
"""Where a child can be told to die."""

KINDS = tuple(
    (effect, idempotent)
    for effect in ("none", "read", "write", "external_write", "destructive")
    for idempotent in (False, True)
)
"""Of tools."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a child has to do.

    Attributes:
        store: Path of the file, or URL of the database with its schema.
        effects: Path of the file that a tool adds a line to.
        effect: Of the tool.
        idempotent: Likewise.
        request_id: Of the request.
        die: The step of `STEPS` at which it dies, None if it does not.
        pause: It stops at that step, instead of dying, until `resume`.
        resume: The process id of a child that has stopped, which goes on; nothing else counts then.
        killed_after: Seconds after it has begun until it is killed, None if it is not.
        durability: Of the store.
        reconcile: The tool looks for its line when it is asked what became of an attempt.
    """

    store: str
    effects: str
    effect: str = "write"
    idempotent: bool = False
    request_id: str = "r1"
    die: str | None = None
    pause: bool = False
    resume: int | None = None
    killed_after: float | None = None
    durability: str = "full"
    reconcile: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How it went.

    Attributes:
        died: It was killed.
        stopped: Its process id, if it has stopped.
        ok: It got a value, which is `execution_id`.
        code: The error's code.
        state: The error's ``details.state``.
        replayed: The answer was a stored one.
        execution_id: The answer's.
    """

    died: bool = False
    stopped: int | None = None
    ok: bool = False
    code: str | None = None
    state: str | None = None
    replayed: bool = False
    execution_id: str | None = None


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Trap:
    """Dies or stops when a step is reached.

    Attributes:
        phase: What the store is asked for, ``reserve`` or ``record``.
    """

    def __init__(self, step: str | None, *, pause: bool) -> None:
        self._step = step
        self._spring = stop if pause else die
        self.phase = ""

    def reach(self, step: str) -> None:
        if step == self._step:
            self._spring()

    def reach_in_phase(self, step: str) -> None:
        self.reach(f"{self.phase}: {step}")


class Traps:
    """Traps in a store: the base of its class."""

    _database: Any
    _trap: Trap

    def set_traps(self, trap: Trap) -> None:
        """Set them in the steps of a transaction as well."""
        self._trap = trap
        usual = self._database.transact

        def transact(work: Callable[[Any], None]) -> None:
            def work_and_trap(transaction: Any) -> None:
                work(transaction)
                trap.reach_in_phase("before commit")

            usual(work_and_trap)
            trap.reach_in_phase("after commit")

        self._database.transact = transact

    async def reserve(self, reservation: Any) -> Any:
        self._trap.reach("before reserve")
        self._trap.phase = "reserve"
        existing = await super().reserve(reservation)  # type: ignore[misc]
        self._trap.phase = ""
        self._trap.reach("after reserve")
        return existing

    async def complete(self, *arguments: Any) -> bool:
        self._trap.reach("before record")
        self._trap.phase = "record"
        done = await super().complete(*arguments)  # type: ignore[misc]
        self._trap.phase = ""
        self._trap.reach("after record")
        return done


class TrapSqlite(Traps, SqliteStore):
    """With traps."""


class TrapPostgres(Traps, PostgresStore):
    """With traps."""


class TrapFile(apsw.VFSFile):
    """Reaches the middle of a commit: written, and not synced."""

    on_sync: Callable[[], None]

    def __init__(self, filename: Any, flags: Any) -> None:
        super().__init__("", filename, flags)

    def xSync(self, flags: int) -> None:
        type(self).on_sync()
        super().xSync(flags)


class TrapFiles(apsw.VFS):
    """The usual files, with a trap."""

    def __init__(self) -> None:
        self.name = "trap"
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        return TrapFile(name, flags)


async def call(orders: Orders, begun: Callable[[], object]) -> Report:
    """One call in an engine of its own."""
    trap = Trap(orders.die, pause=orders.pause)
    TrapFile.on_sync = staticmethod(lambda: trap.reach_in_phase("in commit"))  # type: ignore[method-assign]
    durability: Any = orders.durability
    store: TrapSqlite | TrapPostgres
    if orders.store.startswith("postgresql:"):
        url, _, schema = orders.store.partition("?schema=")
        store = TrapPostgres(url, schema=schema, durability=durability, limits=PostgresLimits(patience_secs=2.0))
    else:
        store = TrapSqlite(orders.store, durability=durability)
    store.set_traps(trap)
    app = App("victim").store(store)

    async def look(_: AgentContext, arguments: dict[str, Any]) -> Completed | NotStarted:
        path = Path(orders.effects)
        lines = path.read_text().splitlines() if path.exists() else []
        return Completed(arguments["tag"]) if arguments["tag"] in lines else NotStarted()

    @app.tool(
        effect=orders.effect,  # type: ignore[arg-type]
        idempotent=orders.idempotent,
        parallel_safe=True,
        reconcile=look if orders.reconcile else None,
    )
    async def work(tag: str) -> str:
        """Add a line to the file."""
        trap.reach("tool: before effect")
        with open(orders.effects, "a") as file:  # noqa: ASYNC230 - one line
            file.write(f"{tag}\n")
        trap.reach("tool: after effect")
        return tag

    async with app.open() as engine:
        begun()
        request = ExecutionRequest(tool="work", arguments={"tag": orders.request_id}, request_id=orders.request_id)
        result = await engine.bind(permissions={"confirm:work"}).execute(request)
        error = result.error
        return Report(
            ok=error is None,
            code=None if error is None else error.code,
            state=None if error is None else (error.details or {}).get("state"),
            replayed=result.replayed,
            execution_id=result.execution_id,
        )


def follow(orders: Orders, output: int) -> None:
    """In the child."""
    files = TrapFiles()
    vars(apsw)["Connection"] = partial(apsw.Connection, vfs=files.name)
    report = trio.run(call, orders, partial(os.write, output, b"\n"))
    os.write(output, msgspec.json.encode(report))


def fork(orders: Orders) -> Report:
    """Make a child, and wait for its end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            follow(orders, write)
        finally:
            os._exit(0)
    os.close(write)
    pipe = open(read, "rb", buffering=0)  # noqa: SIM115 - that of a stopped child stays open
    told = pipe.read(1)
    if orders.killed_after is not None:
        select.select([], [], [], orders.killed_after)
        os.kill(child, signal.SIGKILL)
    if orders.pause and os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]):
        _stopped[child] = told, pipe
        return Report(stopped=child)
    return report_of(child, told, pipe)


_stopped: dict[int, tuple[bytes, FileIO]] = {}
"""Children that have stopped, with what they have written and their pipes."""


def report_of(child: int, told: bytes, pipe: FileIO) -> Report:
    """Wait for the end of a child."""
    with pipe:
        told += pipe.readall()
    with contextlib.suppress(ChildProcessError):  # waited for already, if it should have stopped and did not
        os.waitpid(child, 0)
    if len(told) > 1:
        return msgspec.json.decode(told, type=Report)
    return Report(died=True)


def follow_on(child: int) -> Report:
    """Let a child that has stopped go on."""
    told, pipe = _stopped.pop(child)
    os.kill(child, signal.SIGCONT)
    return report_of(child, told, pipe)


def main() -> None:
    for line in sys.stdin.buffer:
        orders = msgspec.json.decode(line, type=Orders)
        report = fork(orders) if orders.resume is None else follow_on(orders.resume)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
    for child in _stopped:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
