"""The tools of another executor as one's own. That they behave like tools is proved by the suite in tests/conformance."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio

from carmy_engine import (
    AgentContext,
    App,
    Catalog,
    ClosedError,
    DeclarationError,
    Engine,
    ExecutionEvent,
    ExecutionRequest,
    ExecutionResult,
    OutcomeUnknownError,
    RequireToolPermission,
    StartupError,
    tool,
)
from carmy_engine.testing import SCRIPTED_TOOLS, RecordingSink, Stage
from carmy_frames.driver import open_client
from tests.wire.pair import connected, served


@asynccontextmanager
async def far_side(stage: Stage | None = None, *sinks: RecordingSink) -> AsyncIterator[Engine]:
    """An engine with the scripted tools."""
    app = App("far").add(*SCRIPTED_TOOLS).state(stage or Stage())
    for sink in sinks:
        app.sink(sink)
    async with app.open() as engine:
        yield engine


def call(name: str, arguments: dict[str, Any] | None = None, **fields: Any) -> ExecutionRequest:
    return ExecutionRequest(tool=name, arguments=arguments, **fields)


def code_of(result: ExecutionResult) -> str | None:
    return None if result.error is None else result.error.code


class Broken:
    """An executor that has the tools of another, and fails at every call.

    Attributes:
        failure: What a call raises.
        after: How many events come first.
    """

    def __init__(self, inner: Engine, failure: Exception, after: int = 0) -> None:
        self.inner = inner
        self.failure = failure
        self.after = after

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        raise self.failure

    @asynccontextmanager
    async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
        send, receive = trio.open_memory_channel[ExecutionEvent](10)
        async with self.inner.stream(request) as events:
            for _ in range(self.after):
                await send.send(await events.receive())
        send.close()
        yield _Failing(receive, self.failure)

    async def catalog(self) -> Catalog:
        return await self.inner.catalog()


class _Failing(trio.abc.ReceiveChannel[ExecutionEvent]):
    def __init__(self, inner: trio.abc.ReceiveChannel[ExecutionEvent], failure: Exception) -> None:
        self._inner = inner
        self._failure = failure

    async def receive(self) -> ExecutionEvent:
        try:
            return await self._inner.receive()
        except trio.EndOfChannel:
            raise self._failure from None

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_names_and_properties():
    """Its tools have the prefix, beside the application's own; everything else about them is as it was."""

    @tool(effect="none", register=False)
    async def ping() -> str:
        """Answer."""
        return "pong"

    async with far_side() as far, App("near").add(ping).mount(far, prefix="far.").open() as near:
        theirs = {spec.name: spec for spec in (await far.catalog()).tools}
        ours = {spec.name: spec for spec in (await near.catalog()).tools}
        assert ours.keys() == {"ping"} | {f"far.{name}" for name in theirs}
        for name, spec in theirs.items():
            found = ours[f"far.{name}"]
            assert found.input_schema == spec.input_schema
            assert found.output_schema == spec.output_schema
            assert (found.description, found.effect, found.idempotent) == (
                spec.description,
                spec.effect,
                spec.idempotent,
            )
            assert (found.parallel_safe, found.confirmation) == (spec.parallel_safe, spec.confirmation)
        assert (await near.execute(call("far.echo", {"text": "a"}))).data == "a"
        assert code_of(await near.execute(call("echo", {"text": "a"}))) == "TOOL_NOT_FOUND"


async def test_policies_and_records_are_ours():
    """A call is allowed or refused here, by the name it has here, and recorded here whatever becomes of it."""
    records, theirs = RecordingSink(), RecordingSink()
    async with far_side(None, theirs) as far:
        app = App("near").mount(far, prefix="far.").policy(RequireToolPermission()).sink(records)
        async with app.open() as near:
            assert code_of(await near.execute(call("far.echo", {"text": "a"}))) == "FORBIDDEN"
            assert theirs.records == []
            ana = near.bind(principal="ana", permissions={"tool:far.echo"})
            assert (await ana.execute(call("far.echo", {"text": "a"}))).data == "a"
            assert [spec.name for spec in (await ana.catalog()).tools] == ["far.echo"]
    assert [(record.tool, record.principal, record.error_code) for record in records.records] == [
        ("far.echo", None, "FORBIDDEN"),
        ("far.echo", "ana", None),
    ]


async def test_a_confirmation_is_needed_on_both_sides():
    """Agreement here does not agree for the far side, which has its own callers: it has to trust this one."""
    async with far_side() as far:
        for trusted, code in ((far, "CONFIRMATION_REQUIRED"), (far.bind(permissions={"confirm:destructive"}), None)):
            async with App("near").mount(trusted, prefix="far.").open() as near:
                assert code_of(await near.execute(call("far.destructive"))) == "CONFIRMATION_REQUIRED"
                agreed = near.bind(permissions={"confirm:far.destructive"})
                assert code_of(await agreed.execute(call("far.destructive"))) == code


async def test_a_retry_is_one_on_both_hops():
    """A gateway that has forgotten everything still does not repeat an effect, and callers do not share ids over there."""
    stage, records = Stage(), RecordingSink()
    async with far_side(stage, records) as far:
        for principal in ("ana", "ben"):
            answers = []
            for _ in range(2):  # two gateways, one after the other
                async with App("near").mount(far, prefix="far.").open() as near:
                    bound = near.bind(principal=principal)
                    request = call("far.effect", {"tag": "x"}, request_id="r")
                    answers += [await bound.execute(request), await bound.execute(request)]
            assert len({answer.data for answer in answers}) == 1
            assert [answer.replayed for answer in answers] == [False, True, False, True]
        assert stage.effects("x") == 2
        ids = [record.request_id for record in records.records]
        assert len(set(ids)) == 2
        assert len(ids) == 4
        # Without an identity here, each call has one of its own there.
        async with App("near").mount(far).open() as near:
            for _ in range(2):
                await near.execute(call("effect", {"tag": "y"}))
        assert stage.effects("y") == 2
        assert None not in {record.request_id for record in records.records}


async def test_the_time_that_is_left_is_passed_on():
    """The far side may take what is left here, and no more; so may what a tool asks of another executor by itself."""
    async with connected() as (client, _):

        @tool(effect="read", register=False, timeout=7)
        async def ask(ctx: AgentContext) -> float:
            """Ask the other executor how long it may take."""
            seconds: float = (await client.execute(call("whoami"))).unwrap()["remaining"]
            return seconds

        async with App("near", timeout=9).add(ask).mount(client, prefix="far.").open() as near:
            assert 8 < (await near.execute(call("far.whoami"))).unwrap()["remaining"] <= 9
            assert 2 < (await near.execute(call("far.whoami", timeout_ms=3000))).unwrap()["remaining"] <= 3
            assert 6 < (await near.execute(call("ask"))).unwrap() <= 7


async def test_a_call_that_is_cancelled_by_id_ends_on_both_sides():
    """It is answered here as cancelled, and the tool over there has been left."""
    stage = Stage()
    async with (
        far_side(stage) as far,
        App("near").mount(far, prefix="far.").open() as near,
        trio.open_nursery() as nursery,
    ):
        answers: list[ExecutionResult] = []

        async def run() -> None:
            answers.append(await near.execute(call("far.write", {"then": "wait", "gate": "g"}, request_id="r")))

        nursery.start_soon(run)
        with trio.fail_after(5):
            await stage.until(lambda: stage.arrived("g") == 1)
            assert near.cancel(near.running()[0])
            await stage.until(lambda: stage.left("g") == 1)
            await far.wait_idle()
            await near.wait_idle()
    (error,) = (answer.error for answer in answers)
    assert error is not None
    assert (error.code, (error.details or {})["phase"]) == ("CANCELLED", "running")


async def test_a_far_side_that_does_not_answer_is_left_at_the_deadline(autojump_clock: trio.testing.MockClock):
    """A call takes its time, and what the far side gets to say how it ended, and no longer."""

    class Deaf(Broken):
        @asynccontextmanager
        async def stream(self, request: ExecutionRequest) -> AsyncIterator[trio.abc.ReceiveChannel[ExecutionEvent]]:
            await trio.sleep_forever()
            yield trio.open_memory_channel[ExecutionEvent](0)[1]

    async with far_side() as far, App("near").mount(Deaf(far, ClosedError())).open() as near:
        began = trio.current_time()
        result = await near.execute(call("write", timeout_ms=2000, request_id="r"))
        assert result.error is not None
        assert (result.error.code, result.error.details) == ("TIMEOUT", {"phase": "running", "cause": "deadline"})
        assert trio.current_time() - began == pytest.approx(3.25, abs=0.1)
        assert (await near.execute(call("write", timeout_ms=2000, request_id="r"))).replayed


LOST = OutcomeUnknownError("hunter2")
CLOSED = ClosedError("hunter2")


@pytest.mark.parametrize(
    ("failure", "after", "name", "code", "phase", "retry"),
    [
        (LOST, 0, "write", "EXECUTION_UNCERTAIN", None, "EXECUTION_UNCERTAIN"),
        (LOST, 2, "write", "EXECUTION_UNCERTAIN", None, "EXECUTION_UNCERTAIN"),
        (LOST, 2, "idempotent_write", "EXECUTOR_UNAVAILABLE", "running", "EXECUTOR_UNAVAILABLE"),
        (LOST, 2, "read", "EXECUTOR_UNAVAILABLE", "running", "EXECUTOR_UNAVAILABLE"),
        (CLOSED, 0, "write", "EXECUTOR_UNAVAILABLE", "waiting", "EXECUTOR_UNAVAILABLE"),
        (CLOSED, 2, "write", "EXECUTION_UNCERTAIN", None, "EXECUTION_UNCERTAIN"),
        (KeyError("hunter2"), 2, "write", "TOOL_PANIC", None, "TOOL_PANIC"),
    ],
)
async def test_a_far_side_that_is_lost(
    failure: Exception,
    after: int,
    name: str,
    code: str,
    phase: str | None,
    retry: str,
    caplog: pytest.LogCaptureFixture,
):
    """The caller gets what is known: not run, or repeatable, or in doubt. Why goes to the log, which has its words."""
    caplog.set_level(logging.WARNING, "carmy")
    async with far_side() as far, App("near").mount(Broken(far, failure, after)).open() as near:
        result = await near.execute(call(name, request_id="r"))
        assert result.error is not None
        assert result.error.code == code
        assert result.error.retryable is (code == "EXECUTOR_UNAVAILABLE")
        assert (result.error.details or {}).get("phase") == phase
        assert "hunter2" not in str(result.error)
        assert "hunter2" in caplog.text
        again = await near.execute(call(name, request_id="r"))
        assert again.error is not None
        assert again.error.code == retry
        # Only what is an answer for good is replayed.
        assert again.replayed is (code == "TOOL_PANIC")
        if code == "EXECUTION_UNCERTAIN":
            assert (again.error.details or {}).items() >= {"state": "interrupted", "cause": "disconnect"}.items()


async def test_a_shutdown_of_the_far_side():
    """A write that the shutdown of the far side cuts off is in doubt here as it is there."""
    answers: list[ExecutionResult] = []
    request = call("write", {"then": "wait", "gate": "g"}, request_id="r")
    async with (
        served() as found,
        open_client(found.peer) as client,
        App("near").mount(client).open() as near,
        trio.open_nursery() as nursery,
    ):

        async def run() -> None:
            answers.append(await near.execute(request))
            answers.append(await near.execute(request))

        nursery.start_soon(run)
        await found.arrived("g")
        await found.engine.shut_down(0)
    first, again = (answer.error for answer in answers)
    assert first is not None
    assert (first.code, first.details) == ("SHUTTING_DOWN", {"phase": "running", "cause": "shutdown"})
    assert again is not None
    assert (again.code, (again.details or {})["state"]) == ("EXECUTION_UNCERTAIN", "interrupted")


async def test_what_is_mounted_lives_as_long_as_the_engine():
    """What opens an executor is entered when the application is opened, and left after the engine's end."""
    steps: list[str] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[Engine]:
        async with far_side() as engine:
            steps.append("open")
            yield engine
        steps.append("closed")

    app = App("near").mount(opening, prefix="a.")
    for _ in range(2):
        async with app.open() as near:
            assert (await near.execute(call("a.echo", {"text": "x"}))).data == "x"
            steps.append("used")
    assert steps == ["open", "used", "closed"] * 2

    once = App("near").mount(opening(), prefix="a.")
    async with once.open():
        pass
    with pytest.raises(StartupError, match="lambda"):
        async with once.open():
            pass


async def test_every_problem_at_start_is_told():
    """What cannot be reached, names that are none or are taken: all of it at once, and what was opened is closed."""
    closed: list[bool] = []

    @asynccontextmanager
    async def fine() -> AsyncIterator[Engine]:
        try:
            async with far_side() as engine:
                yield engine
        finally:
            closed.append(True)

    @asynccontextmanager
    async def gone() -> AsyncIterator[Engine]:
        raise ClosedError("nobody listens at port 1")
        yield  # type: ignore[unreachable]

    @tool(effect="none", register=False)
    async def echo() -> None:
        """Nothing."""

    app = App("near").add(echo).mount(fine).mount(gone, prefix="gone.").mount(fine, prefix="x" * 127)
    assert app.check() == []
    with pytest.raises(StartupError) as caught:
        async with app.open():
            pass
    assert closed == [True, True]
    codes = [problem.code for problem in caught.value.problems if not isinstance(problem, ValueError)]
    assert codes.count("EXECUTOR_UNAVAILABLE") == 1
    assert codes.count("DUPLICATE_TOOL") == 1
    assert codes.count("INVALID_TOOL_NAME") == len(SCRIPTED_TOOLS)
    assert "nobody listens at port 1" in str(caught.value)
    assert "'gone.'" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"executor": 5}, "int object cannot be mounted"),
        ({"executor": Stage, "prefix": "a b"}, "cannot begin a tool's name"),
        ({"executor": Stage, "prefix": 3}, "cannot begin a tool's name"),
        ({"executor": Stage, "max_waiting": -1}, "max_waiting"),
    ],
)
def test_what_cannot_be_mounted(arguments: dict[str, Any], words: str):
    """It is refused where it stands."""
    with pytest.raises(DeclarationError, match=words):
        App("near").mount(**arguments)


async def test_a_gateway_to_a_gateway():
    """Executors can be mounted from what has mounted them; each hop adds its prefix."""
    async with far_side() as far, App("middle").mount(far, prefix="b.").open() as middle:
        near: AbstractAsyncContextManager[Engine] = App("near").mount(middle, prefix="a.").open()
        async with near as engine:
            assert (await engine.execute(call("a.b.echo", {"text": "x"}))).data == "x"


@pytest.mark.parametrize("rounds", [100, pytest.param(3000, marks=pytest.mark.long)])
async def test_call_cancel_call_again(rounds: int):
    """However soon calls are left, or their deadlines pass, later ones work, and nothing runs on either side."""
    async with served() as found, open_client(found.peer) as client:
        async with App("near").mount(client).open() as near:
            for number in range(rounds):
                request = call(
                    "write", {"then": "wait", "gate": "g"}, request_id=f"r{number}", timeout_ms=1 + number % 7
                )
                with trio.move_on_after(0.0001 * (number % 60)):
                    result = await near.execute(request)
                    assert code_of(result) == "TIMEOUT"
                assert (await near.execute(call("echo", {"text": str(number)}))).data == str(number)
            with trio.fail_after(5):
                await near.wait_idle()
                await found.engine.wait_idle()
        assert found.stage.arrived("g") == found.stage.left("g")
