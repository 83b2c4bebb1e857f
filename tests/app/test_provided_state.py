"""State with a life: provided by factories, entered in order of need, left in reverse, for the application or for each execution."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, get_args

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from carmy_engine import (
    INJECTED,
    AgentContext,
    AgentError,
    App,
    DeclarationError,
    Effect,
    Engine,
    ErrorCategory,
    ExecutionRequest,
    ExecutionResult,
    Settings,
    StartupError,
    State,
    ToolSpec,
    tool,
)


class Log(list[str]):
    """What happened, in order."""


class Database:
    def __init__(self, name: str = "db") -> None:
        self.name = name


class Session:
    def __init__(self, database: Database | None = None) -> None:
        self.database = database
        self.thread = threading.get_ident()


async def call(engine: Engine, name: str, request_id: str | None = None, **arguments: Any) -> ExecutionResult:
    """One execution."""
    return await engine.execute(ExecutionRequest(tool=name, arguments=arguments, request_id=request_id))


def with_session(log: Log, **attributes: Any) -> App:
    """An application whose executions get a `Session`, which logs its end."""
    app = App("shop", **attributes)

    @app.provide
    def database() -> Database:
        return Database()

    @contextlib.asynccontextmanager
    async def session(db: State[Database], ctx: AgentContext) -> AsyncIterator[Session]:
        log.append(f"begin {db.name} {ctx.principal}")
        try:
            yield Session(db)
        except BaseException as error:
            log.append(f"rollback {type(error).__name__}")
            raise
        log.append("commit")

    return app.provide(session, scope="execution")


def add_tools(app: App, log: Log) -> App:
    """Tools that end in every way."""

    @app.tool(effect="write", parallel_safe=True)
    async def fine(session: State[Session]) -> str:
        log.append("tool")
        return session.database.name if session.database else ""

    @app.tool(effect="write", parallel_safe=True)
    async def fails(session: State[Session]) -> str:
        raise ValueError

    @app.tool(effect="write", parallel_safe=True)
    async def declines(session: State[Session]) -> str:
        raise AgentError("NOT_THERE", "not there", ErrorCategory.NOT_FOUND)

    @app.tool(effect="write", parallel_safe=True)
    async def lies(session: State[Session]) -> str:
        return None  # type: ignore[return-value]

    @app.tool(effect="write", parallel_safe=True, timeout=0.05)
    async def late(session: State[Session]) -> str:
        await trio.sleep_forever()
        return ""

    @app.tool(effect="none")
    async def without() -> str:
        return "ok"

    return app


async def test_state_of_the_application_is_entered_in_order_of_need_and_left_in_reverse() -> None:
    """A factory gets the values of others, whatever the order of adding; all are left after the engine's end."""
    log = Log()
    app = App("shop")

    @contextlib.asynccontextmanager
    async def session(db: State[Database]) -> AsyncIterator[Session]:
        log.append(f"+session {db.name}")
        yield Session(db)
        log.append("-session")

    @contextlib.contextmanager
    def database(name: State[str]) -> Iterator[Database]:
        log.append("+database")
        yield Database(name)
        log.append("-database")

    app.provide(session).provide(database).state("orders")

    @app.tool(effect="read")
    async def look(session: State[Session]) -> str:
        log.append("tool")
        return session.database.name if session.database else ""

    assert app.check() == []
    assert log == []
    for _ in range(2):
        async with app.open() as engine:
            assert (await call(engine, "look")).unwrap() == "orders"
        assert log == ["+database", "+session orders", "tool", "-session", "-database"]
        log.clear()


@pytest.mark.parametrize(
    "kind", ["function", "async function", "generator", "async generator", "class", "manager", "plain"]
)
async def test_every_kind_of_factory_makes_its_value(kind: str) -> None:
    """Functions, generators, classes and context managers, plain and async."""
    left = Log()

    class Managed(Session):
        async def __aenter__(self) -> Managed:
            return self

        async def __aexit__(self, *error: object) -> None:
            left.append("left")

    def function() -> Session:
        return Session()

    async def async_function() -> Session:
        return Session()

    def generator() -> Iterator[Session]:
        yield Session()
        left.append("left")

    async def async_generator() -> AsyncIterator[Session]:
        yield Session()
        left.append("left")

    factory: dict[str, Any] = {
        "function": function,
        "async function": async_function,
        "generator": generator,
        "async generator": async_generator,
        "class": Managed,
        "manager": Managed(),
        "plain": lambda: Managed(),
    }
    app = App("shop")
    asks: Any = Managed if kind in ("class", "manager") else Session
    app.provide(factory[kind], Session if kind == "plain" else None)

    async def look(session: Any) -> bool:
        return isinstance(session, Session)

    look.__annotations__.update(session=Annotated[asks, *get_args(State[int])[1:]], **{"return": bool})
    app.add(tool(effect="read")(look))
    async with app.open() as engine:
        assert (await call(engine, "look")).unwrap() is True
        assert left == []
    assert left == ([] if "function" in kind else ["left"])


async def test_a_context_manager_can_stay_unentered() -> None:
    """`enter=False` gives the object itself."""
    app = App("shop").provide(threading.Lock, as_type=threading.Lock, enter=False)
    app.state("x")
    async with app.open() as engine:
        assert engine.statistics().running == 0


def test_a_wrong_factory_is_refused_in_a_sentence() -> None:
    """What is given, what is wanted, and where."""

    def needy(name: str) -> Database:
        return Database(name)

    def untyped():
        return Database()

    def personal(ctx: AgentContext) -> Database:
        return Database()

    def twice() -> Database:
        return Database()

    app = App("shop")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: app.provide(Database("x")), "Database object is not a factory of state for application 'shop'"),
        (
            lambda: app.provide(needy),
            r"parameter 'name' of the function needy \(.*test_provided_state.py:\d+\) has no value",
        ),
        (lambda: app.provide(untyped), "untyped .* does not name the type of its value"),
        (lambda: app.provide(personal), "asks for the AgentContext of a call; give it scope='execution'"),
        (lambda: app.provide(twice, scope="request"), "the scope of state is 'app' or 'execution', not 'request'"),
        (lambda: app.provide(contextlib.nullcontext(1), int, scope="execution"), "each execution needs a new one"),
        (lambda: app.provide(twice).provide(twice), "has state of type Database already"),
        (lambda: app.state(Database()), "has state of type Database already"),
        (lambda: app.override(Session, 1).__enter__(), "has no state of type Session; it has: Database"),
        (lambda: app.on_start(needy), "parameter 'name' of the function needy"),
        (lambda: app.middleware(twice), "the function twice is not a middleware"),  # type: ignore[type-var]
    ]
    for attempt, message in wrong:
        with pytest.raises(DeclarationError, match=message):
            attempt()


def test_check_lists_every_problem_of_state_and_enters_nothing() -> None:
    """Missing state, a circle, and state of an execution for the application: together, with the problems of tools."""
    entered = Log()

    def database(session: State[Session]) -> Database:
        entered.append("database")
        return Database()

    def text(number: State[int]) -> str:
        return str(number)

    def number(text: State[str]) -> int:
        return len(text)

    def session(missing: State[bytes]) -> Session:
        return Session()

    app = App("shop").provide(database).provide(text).provide(number).provide(session, scope="execution")

    @app.on_start
    def begin(flag: State[float]) -> None:
        entered.append("begin")

    problems = [(problem.code, str(problem)) for problem in app.check() if isinstance(problem, AgentError)]
    assert [code for code, _ in problems] == ["STATE_FAILED", "MISSING_STATE", "STATE_FAILED", "MISSING_STATE"]
    assert "lives as long as the application, and needs State[Session]" in problems[0][1]
    assert "needs State[bytes] for its parameter 'missing'" in problems[1][1]
    assert "state that needs itself cannot be made" in problems[2][1]
    assert "needs State[float] for its parameter 'flag'" in problems[3][1]
    assert entered == []


async def test_a_failing_factory_keeps_the_application_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    """`STATE_FAILED` names the factory and the reason; what had been entered is left; the traceback is logged once."""
    log = Log()

    def database() -> Iterator[Database]:
        yield Database()
        log.append("-database")

    async def session(db: State[Database]) -> Session:
        raise SystemExit("no route to host")

    app = App("shop").provide(session).provide(database)
    with pytest.raises(
        StartupError, match=r"STATE_FAILED: the state Session from the async function session .*no route to host"
    ):
        async with app.open():
            pytest.fail("opened")
    assert log == ["-database"]
    assert len(caplog.records) == 1


async def test_a_start_that_takes_too_long_fails(autojump_clock: trio.testing.MockClock) -> None:
    """The limit is a setting; state and functions of the start have it."""
    app = App("shop", settings=Settings(startup_timeout_secs=2.0))

    @app.on_start
    async def begin() -> None:
        await trio.sleep_forever()

    with pytest.raises(StartupError, match=r"on_start: .*begin.* was not ready within 2 s \(startup_timeout_secs\)"):
        async with app.open():
            pytest.fail("opened")


async def test_state_that_does_not_leave_is_cut_off(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After `shutdown_timeout_secs` its end is cancelled and logged; other state is left all the same."""
    log = Log()

    async def database() -> AsyncIterator[Database]:
        yield Database()
        log.append("-database")

    async def session(db: State[Database]) -> AsyncIterator[Session]:
        try:
            yield Session(db)
        finally:
            await trio.sleep_forever()

    app = App("shop", settings=Settings(shutdown_timeout_secs=3.0)).provide(session).provide(database)
    async with app.open():
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(3.0)
    assert log == ["-database"]
    assert "leaving the state Session" in caplog.text


async def test_a_failure_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The block of the application ends as it would have; the rest is left."""
    log = Log()

    def database() -> Iterator[Database]:
        yield Database()
        log.append("-database")

    async def session(db: State[Database]) -> AsyncIterator[Session]:
        yield Session(db)
        raise ValueError("cannot close")

    app = App("shop").provide(session).provide(database)

    @app.on_stop
    def end() -> None:
        raise ValueError("cannot say goodbye")

    async with app.open():
        pass
    assert log == ["-database"]
    assert "cannot close" in caplog.text
    assert "cannot say goodbye" in caplog.text


async def test_state_may_hold_a_nursery() -> None:
    """A factory may yield inside a nursery: each has a task of its own, and none ends another."""

    async def database() -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()

    app = App("shop").provide(database)
    ran = trio.Event()

    @app.tool(effect="none")
    async def start(nursery: State[trio.Nursery]) -> None:
        nursery.start_soon(trio.sleep_forever)
        ran.set()

    async with app.open() as engine:
        (await call(engine, "start")).unwrap()
    assert ran.is_set()


async def test_hooks_run_in_order_and_in_reverse() -> None:
    """`on_start` after state, `on_stop` before state is left; both may ask for state."""
    log = Log()

    def database() -> Iterator[Database]:
        log.append("+database")
        yield Database()
        log.append("-database")

    app = App("shop").provide(database)

    @app.on_start
    async def first(db: State[Database]) -> None:
        log.append(f"first {db.name}")

    @app.on_start
    def second() -> None:
        log.append("second")

    app.on_stop(lambda: log.append("last"))
    app.on_stop(lambda: log.append("earlier"))
    async with app.open():
        log.append("open")
    assert log == ["+database", "first db", "second", "open", "earlier", "last", "-database"]


async def test_an_override_replaces_a_value_in_the_block_only() -> None:
    """The factory is not called; afterwards it is again."""
    log = Log()
    app = add_tools(with_session(log), log)
    with app.override(Database, Database("fake")):
        async with app.open() as engine:
            assert (await call(engine, "fine")).unwrap() == "fake"
    with app.override(Session, Session(Database("whole"))):
        async with app.open() as engine:
            assert (await call(engine, "fine")).unwrap() == "whole"
    async with app.open() as engine:
        assert (await call(engine, "fine")).unwrap() == "db"


@pytest.mark.parametrize(
    ("name", "code", "end"),
    [
        ("fine", None, "commit"),
        ("fails", "TOOL_PANIC", "rollback ValueError"),
        ("declines", "NOT_THERE", "rollback AgentError"),
        ("lies", "INVALID_OUTPUT", "rollback AgentError"),
        ("late", "TIMEOUT", "rollback Cancelled"),
    ],
)
async def test_state_of_an_execution_sees_how_it_ended(name: str, code: str | None, end: str) -> None:
    """Entered for the execution, with its context; left with its outcome, an invalid output included."""
    log = Log()
    async with add_tools(with_session(log), log).open() as engine:
        bound = engine.bind(principal="ana")
        result = await bound.execute(ExecutionRequest(tool=name, request_id="1"))
        assert (None if result.error is None else result.error.code) == code
        assert [entry for entry in log if entry != "tool"] == ["begin db ana", end]
        log.clear()
        again = await bound.execute(ExecutionRequest(tool=name, request_id="1"))
        assert again.replayed
        assert log == []  # a replay needs no state
        assert (await call(engine, "without")).unwrap() == "ok"
        assert log == []  # nor does a tool that asks for none


async def test_a_failing_end_fails_the_call() -> None:
    """A commit that fails is the outcome; the tool's value is not returned."""
    app = App("shop")

    @contextlib.contextmanager
    def session() -> Iterator[Session]:
        yield Session()
        raise AgentError("NOT_COMMITTED", "the database is read-only", ErrorCategory.CONFLICT)

    app.provide(session, scope="execution")

    @app.tool(effect="write")
    async def coroutine(session: State[Session]) -> str:
        return "done"

    @app.tool(effect="write")
    def function(session: State[Session]) -> str:
        return "done"

    async with app.open() as engine:
        for name in ("coroutine", "function"):
            result = await call(engine, name)
            assert result.error is not None
            assert result.error.code == "NOT_COMMITTED"


async def test_state_cannot_turn_a_failure_into_a_success() -> None:
    """A context manager that swallows an exception changes nothing for the caller."""
    app = App("shop")

    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[Session]:
        with contextlib.suppress(BaseException):
            yield Session()

    @contextlib.contextmanager
    def database() -> Iterator[Database]:
        with contextlib.suppress(BaseException):
            yield Database()

    app.provide(session, scope="execution").provide(database, scope="execution")

    @app.tool(effect="write")
    async def coroutine(session: State[Session], database: State[Database]) -> str:
        raise ValueError

    @app.tool(effect="write")
    def function(session: State[Session], database: State[Database]) -> str:
        raise ValueError

    async with app.open() as engine:
        for name in ("coroutine", "function"):
            result = await call(engine, name)
            assert result.error is not None
            assert result.error.code == "TOOL_PANIC"


async def test_a_value_is_made_once_for_each_execution() -> None:
    """Two parameters and a factory of one execution share it; another execution has its own."""
    made = Log()
    app = App("shop")

    async def database() -> Database:
        made.append("database")
        return Database(str(len(made)))

    async def session(db: State[Database]) -> Session:
        return Session(db)

    app.provide(session, scope="execution").provide(database, scope="execution")

    @app.tool(effect="read")
    async def look(session: State[Session], db: State[Database]) -> str:
        assert session.database is db
        return db.name

    async with app.open() as engine:
        assert [(await call(engine, "look")).unwrap() for _ in range(3)] == ["1", "2", "3"]


async def test_plain_state_and_a_plain_tool_share_one_thread() -> None:
    """So a connection that belongs to its thread can be used."""
    threads: set[int] = set()
    app = App("shop")

    def session() -> Iterator[Session]:
        session = Session()
        yield session
        threads.update((session.thread, threading.get_ident()))

    app.provide(session, scope="execution")

    @app.tool(effect="write")
    def write(session: State[Session], ctx: AgentContext) -> bool:
        threads.add(threading.get_ident())
        return ctx.execution_id != ""

    async with app.open() as engine:
        assert (await call(engine, "write")).unwrap() is True
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_an_abandoned_thread_leaves_its_state_when_it_ends() -> None:
    """At the deadline the caller gets its answer; the state stays with the thread, and is then rolled back."""
    log = Log()
    app = App("shop")
    release, ended = threading.Event(), threading.Event()

    def session() -> Iterator[Session]:
        try:
            yield Session()
        except AgentError as error:
            log.append(error.code)
            raise
        finally:
            ended.set()

    app.provide(session, scope="execution")

    @app.tool(effect="write", timeout=0.05)
    def stuck(session: State[Session]) -> str:
        release.wait(10)
        log.append("tool")
        return "late"

    async with app.open() as engine:
        result = await call(engine, "stuck")
        assert result.error is not None
        assert result.error.code == "TIMEOUT"
        assert not ended.is_set()
        release.set()
        assert await trio.to_thread.run_sync(ended.wait, 10)
    assert log == ["tool", "CANCELLED"]


async def test_state_that_is_entered_too_late_is_left_at_once() -> None:
    """A plain factory of an async tool whose deadline passes meanwhile: its thread leaves what it enters."""
    log = Log()
    app = App("shop")
    release, left = threading.Event(), threading.Event()

    def session() -> Iterator[Session]:
        release.wait(10)
        try:
            yield Session()
        except trio.TooSlowError:
            log.append("undone")
            raise
        finally:
            left.set()

    app.provide(session, scope="execution")

    @app.tool(effect="write", timeout=0.05)
    async def slow(session: State[Session]) -> str:
        log.append("tool")
        return ""

    async with app.open() as engine:
        result = await call(engine, "slow", request_id="1")
        assert result.error is not None
        assert (result.error.code, (result.error.details or {})["phase"]) == ("TIMEOUT", "waiting")
        release.set()
        assert await trio.to_thread.run_sync(left.wait, 10)
    assert log == ["undone"]


async def test_the_clean_up_of_state_has_the_grace_of_the_call() -> None:
    """After a cancel, the end of a context manager may await."""
    log = Log()
    app = App("shop")

    async def session() -> AsyncIterator[Session]:
        try:
            yield Session()
        finally:
            await trio.lowlevel.checkpoint()
            log.append("rolled back")

    app.provide(session, scope="execution")

    @app.tool(effect="write")
    async def wait(session: State[Session]) -> str:
        await trio.sleep_forever()
        return ""

    async with app.open() as engine, trio.open_nursery() as nursery:
        nursery.start_soon(call, engine, "wait")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert log == ["rolled back"]


async def test_two_hundred_calls_with_random_ends_leave_nothing_entered() -> None:
    """Whatever ends a call, what it entered is left."""
    entered = 0
    app = App("shop")

    async def session() -> AsyncIterator[Session]:
        nonlocal entered
        entered += 1
        try:
            yield Session()
            await trio.lowlevel.checkpoint()
        finally:
            entered -= 1

    app.provide(session, scope="execution")

    @app.tool(effect="write", parallel_safe=True)
    async def vary(session: State[Session], number: int) -> str:
        for _ in range(number % 5):
            await trio.lowlevel.checkpoint()
        if number % 3 == 0:
            raise ValueError
        if number % 3 == 1:
            await trio.sleep_forever()
        return "ok"

    async with app.open() as engine, trio.open_nursery() as nursery:
        for number in range(200):
            await nursery.start(_cancelled_after, engine, number)
        nursery.cancel_scope.cancel()
    assert entered == 0


async def _cancelled_after(engine: Engine, number: int, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.CancelScope() as scope:
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call(engine, "vary", number=number))
            for _ in range(number % 11):
                await trio.lowlevel.checkpoint()
            scope.cancel()


class ByHand:
    """A tool without a function."""

    spec = ToolSpec(
        name="by_hand",
        description="",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        output_schema={"type": "integer"},
        effect=Effect.NONE,
    )

    async def execute(self, ctx: AgentContext, input: Any) -> Any:  # noqa: A002
        return input["n"] + 1


async def test_middleware_runs_around_every_tool_outermost_first() -> None:
    """Around functions, objects, plain functions and tools of other executors; it sees the validated arguments."""
    log = Log()
    app = App("shop")

    @app.middleware
    async def outer(call: Any, proceed: Any) -> Any:
        log.append(f"outer {call.spec.name} {dict(call.arguments)} {call.context.principal}")
        value = await proceed()
        log.append("outer end")
        return value

    @app.middleware
    async def inner(call: Any, proceed: Any) -> Any:
        log.append("inner")
        return await proceed()

    @app.tool(effect="none")
    async def add(ctx: AgentContext, text: State[str], n: int = 1) -> int:
        log.append("tool")
        return n + 1

    @app.tool(effect="none")
    def plain(n: int) -> int:
        return n + 1

    app.add(ByHand()).state("text")
    other = App("other")

    @other.tool(effect="none")
    async def far(n: int) -> int:
        return n + 1

    async with other.open() as there:
        app.mount(there, prefix="o.")
        async with app.open() as engine:
            for name in ("add", "plain", "by_hand", "o.far"):
                bound = engine.bind(principal="ana")
                result = await bound.execute(ExecutionRequest(tool=name, arguments={"n": 2}))
                assert result.unwrap() == 3
                shown = {"input": {"n": 2}} if name == "by_hand" else {"n": 2}
                assert log == [
                    f"outer {name} {shown} ana", "inner", *(["tool"] if name == "add" else []), "outer end",
                ]  # fmt: skip
                log.clear()


async def test_middleware_decides_the_outcome() -> None:
    """It may answer itself, change the value, raise an error, and see the tool's; what it returns is checked."""
    app = App("shop")
    answers: dict[str, Any] = {}

    @app.middleware
    async def decide(call: Any, proceed: Any) -> Any:
        match call.arguments["how"]:
            case "instead":
                return "instead"
            case "changed":
                return (await proceed()).upper()
            case "wrong":
                await proceed()
                return 5
            case "refused":
                raise AgentError("CLOSED", "closed", ErrorCategory.PERMISSION)
            case "seen":
                try:
                    await proceed()
                except ValueError as error:
                    answers["seen"] = error
                    return "mended"
            case "twice":
                await proceed()
                return await proceed()
            case "exits":
                raise SystemExit
        return await proceed()

    @app.tool(effect="write")
    async def say(how: str) -> str:
        if how == "seen":
            raise ValueError("broken")
        return "said"

    async with app.open() as engine:
        found = {}
        for how in ("instead", "changed", "wrong", "refused", "seen", "twice", "exits", "plain"):
            result = await call(engine, "say", how=how)
            found[how] = result.data if result.error is None else result.error.code
    assert found == {
        "instead": "instead",
        "changed": "SAID",
        "wrong": "INVALID_OUTPUT",
        "refused": "CLOSED",
        "seen": "mended",
        "twice": "TOOL_PANIC",
        "exits": "TOOL_PANIC",
        "plain": "said",
    }
    assert str(answers["seen"]) == "broken"


async def test_middleware_is_inside_the_deadline_and_not_around_replays() -> None:
    """A middleware that waits times out; a replay runs none."""
    log = Log()
    app = App("shop", timeout=0.05)

    @app.middleware
    async def wait(call: Any, proceed: Any) -> Any:
        log.append("middleware")
        if call.spec.name == "slow":
            await trio.sleep_forever()
        return await proceed()

    @app.tool(effect="write")
    async def slow() -> None:
        log.append("tool")

    @app.tool(effect="write")
    async def quick() -> None:
        log.append("tool")

    async with app.open() as engine:
        result = await call(engine, "slow")
        assert result.error is not None
        assert (result.error.code, (result.error.details or {})["phase"]) == ("TIMEOUT", "waiting")
        for _ in range(2):
            (await call(engine, "quick", request_id="1")).unwrap()
    assert log == ["middleware", "middleware", "tool"]


async def test_typed_calls_go_through_state_and_middleware() -> None:
    """`engine.call` returns the value in its type."""
    app = App("shop").provide(Database, scope="execution")

    @app.middleware
    async def through(call: Any, proceed: Any) -> Any:
        return await proceed()

    @app.tool(effect="read")
    async def names(count: int, db: State[Database] = INJECTED) -> tuple[str, ...]:
        return (db.name,) * count

    async with app.open() as engine:
        assert await engine.call(names, count=2) == ("db", "db")
