"""Whatever code that is not ours raises ends its own call, and nothing else."""

import functools
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

import pydantic
import pytest
import trio
import trio.lowlevel

from carmy_engine import AgentError, Settings
from carmy_engine._model.error_boundary import log_traceback
from carmy_engine._model.traceback_log import MAX_TRACEBACK_CHARACTERS
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.transport import await_foreign
from tests.boundary.escapes import ESCAPES, RARE_ESCAPES, SECRET, foreign, made
from tests.engine.kit import Bench, bench, code, read, told, write
from tests.support.plain_trio import needs_internals

ALL = [*ESCAPES, *RARE_ESCAPES]

Raise = Callable[[], Any]


def raising(error: BaseException) -> Raise:
    """A function that raises it."""

    def fail(*_: object) -> Any:
        raise error

    return fail


def tool_coroutine(fail: Raise) -> Any:
    @write
    async def probed() -> None:
        await trio.lowlevel.checkpoint()
        fail()

    return probed


def tool_at_once(fail: Raise) -> Any:
    @write
    async def probed() -> None:
        fail()

    return probed


def tool_thread(fail: Raise) -> Any:
    @write
    def probed() -> None:
        fail()

    return probed


def tool_nursery(fail: Raise) -> Any:
    @write
    async def probed() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                fail()
            finally:
                nursery.cancel_scope.cancel()

    return probed


def tool_generator(fail: Raise) -> Any:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        fail()

    @write
    async def probed() -> int:
        return sum([number async for number in numbers()])

    return probed


def tool_clean_up(fail: Raise) -> Any:
    @write
    async def probed() -> None:
        try:
            await trio.lowlevel.checkpoint()
        finally:
            fail()

    return probed


def validator(fail: Raise) -> Any:
    @write
    async def probed(value: Annotated[str, pydantic.AfterValidator(lambda value: fail())]) -> None: ...

    return probed


def default_factory(fail: Raise) -> Any:
    class Input(pydantic.BaseModel):
        value: str = pydantic.Field(default_factory=fail)

    @write
    async def probed(given: Input) -> None: ...

    return probed


def serialiser(fail: Raise) -> Any:
    class Output(pydantic.BaseModel):
        value: int = 1

        @pydantic.field_serializer("value")
        def write(self, value: int) -> int:
            return int(fail())

    @write
    async def probed() -> Output:
        return Output()

    return probed


def computed_field(fail: Raise) -> Any:
    class Output(pydantic.BaseModel):
        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def value(self) -> int:
            return int(fail())

    @write
    async def probed() -> Output:
        return Output()

    return probed


TOOLS = [
    tool_coroutine,
    tool_at_once,
    tool_thread,
    pytest.param(tool_nursery, marks=needs_internals, id="tool_nursery"),
    tool_generator,
    tool_clean_up,
]
TYPES = [validator, default_factory, serialiser, computed_field]


async def settled(b: Bench) -> None:
    """Nothing is left of the last call, and the next one is answered."""
    assert b.running == 0
    assert await b.state("r") != "running"
    assert await b.code("echo", {"text": "alive"}) == "ok"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("place", [*TOOLS, *TYPES], ids=lambda place: place.__name__)
async def test_any_escape_ends_its_own_call(place, name, caplog):
    """A tool's exception of any class, alone or in groups, is one answer; its request_id is settled and the log has the cause."""
    arguments = {"value": "x"} if place is validator else None
    settings = Settings(expose_errors=True)
    async with bench(place(raising(made(name))), settings=settings) as b:
        result = await b.call("probed", arguments, request_id="r")
        if place is tool_nursery and name in ("Cancelled", "group_of_Cancelled"):
            assert code(result) == "ok"  # the tool's own nursery takes it for its own
        elif place is tool_nursery and name == "deep_Cancelled":
            assert code(result) in ("ok", "TOOL_PANIC")  # from Python 3.13 on, groups of this depth can be split
        else:
            assert code(result) in ("TOOL_PANIC", "INVALID_OUTPUT")
            assert told(result)["error_id"] in caplog.text
            assert result.exception is not None
        await settled(b)


class Untouchable(Exception):
    """Refuses to have its attributes read, its class included."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(SECRET)


@pytest.mark.parametrize("place", [*TOOLS, *TYPES], ids=lambda place: place.__name__)
async def test_an_exception_that_cannot_be_read_ends_its_own_call(place):
    """The engine classifies an exception by its real class, so none of its code can take the call out of the boundary."""
    async with bench(place(raising(Untouchable()))) as b:
        result = await b.call("probed", {"value": "x"} if place is validator else None, request_id="r")
        assert code(result) in ("TOOL_PANIC", "INVALID_OUTPUT")
        await settled(b)


@pytest.mark.parametrize("kind", ALL)
async def test_an_escape_costs_one_log_line(kind, caplog):
    """The cause is logged once, under the id in the caller's error."""
    async with bench(tool_coroutine(raising(made(kind)))) as b:
        result = await b.call("probed")
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert told(result)["error_id"] in record.getMessage()


async def test_a_foreign_cancel_inside_a_cancelled_call_is_that_cancel():
    """Once a call is cancelled, whichever ``Cancelled`` leaves its tool is taken for it."""
    error = foreign()

    @write
    async def probed() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    async with bench(probed) as b:
        result = await b.call("probed", timeout_ms=10)
        assert (code(result), told(result)["cause"]) == ("TIMEOUT", "deadline")


@pytest.mark.parametrize("name", [name for name in ALL if "Cancelled" not in name])
@pytest.mark.parametrize("cause", ["deadline", "operator", "caller"])
async def test_an_exception_while_being_cut_off_leaves_status_and_cause(cause, name, caplog):
    """A tool that raises something else when it is cancelled ends as cancelled; the exception is in the log."""
    error = made(name)
    waiting = trio.Event()

    @write
    async def probed() -> None:
        try:
            waiting.set()
            await trio.sleep_forever()
        except trio.Cancelled:
            raise error from None

    async with bench(probed) as b, trio.open_nursery() as nursery:
        call = b.start(nursery, "probed", request_id="r", timeout_ms=50 if cause == "deadline" else None)
        await waiting.wait()
        if cause == "operator":
            b.engine.cancel(b.running_id("probed"))
        elif cause == "caller":
            call.scope.cancel()
        await call.done.wait()
        if cause == "caller":
            assert await b.state("r") == "interrupted"
        else:
            assert code(call.result) == ("TIMEOUT" if cause == "deadline" else "CANCELLED")
            assert told(call.result)["cause"] == ("deadline" if cause == "deadline" else "caller")
            assert await b.state("r") == "completed"
        assert [record.error_code for record in b.sink] == ["TIMEOUT" if cause == "deadline" else "CANCELLED"]
        assert "while it was being cut off" in caplog.text
        await settled(b)


async def test_a_declared_error_while_being_cut_off_is_the_answer():
    """An `AgentError` is what the tool wants to answer, as a value would be."""

    @write
    async def probed() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise AgentError("HALF_DONE", "half of it is done", "conflict") from None

    async with bench(probed) as b:
        assert await b.code("probed", timeout_ms=10) == "HALF_DONE"


@pytest.mark.parametrize("name", ALL)
async def test_a_sink_ends_nothing(name, caplog):
    """Whatever a sink raises is counted and logged; answer, other sinks and reservation are not touched."""
    error = made(name)

    class Broken:
        record = staticmethod(raising(error))

    async with bench(sinks=[Broken()]) as b:
        assert await b.code("write", {"tag": "t"}, request_id="r") == "ok"
        assert len(b.sink) == 1
        assert b.engine.statistics().sink_failures == 1
        await settled(b)
    assert "the sink Broken" in caplog.text


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("operation", ["reserve", "complete"])
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_store_ends_nothing(colour, operation, name, caplog):
    """Whatever a store raises is ``STORE_ERROR`` of that call."""
    error = made(name)

    class Broken(MemoryStore):
        pass

    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    setattr(Broken, operation, fail if colour == "async" else raising(error))
    async with bench(store=Broken()) as b:
        assert await b.code("write", {"tag": "t"}, request_id="r") == "STORE_ERROR"
        assert b.running == 0
        assert await b.code("echo", {"text": "alive"}) == "ok"
    assert "idempotency store" in caplog.text


class Person(pydantic.BaseModel):
    cents: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def share(self) -> float:
        return 1 / (self.cents - 12345)


async def test_the_cause_of_an_unfit_output(caplog):
    """What a property raises while the output is written is ``result.exception``, and in the log under the id."""

    @read
    async def person() -> Person:
        return Person(cents=12345)

    async with bench(person) as b:
        result = await b.call("person")
    assert code(result) == "INVALID_OUTPUT"
    assert isinstance(result.exception, ZeroDivisionError)
    (record,) = [r for r in caplog.records if told(result)["error_id"] in r.getMessage()]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_an_unfit_output_is_logged_without_its_values(caplog):
    """``INVALID_OUTPUT`` and ``OUTPUT_TOO_LARGE`` are logged under an error_id, as any fault of a tool; values are not."""

    @read
    async def wrong() -> list[int]:
        return ["hunter2"]  # type: ignore[list-item]

    async with bench(wrong) as b:
        for name, expected in (("wrong", "INVALID_OUTPUT"), ("read", "OUTPUT_TOO_LARGE")):
            result = await b.call(name, {"then": "large_output"} if name == "read" else None)
            assert code(result) == expected
            (record,) = [r for r in caplog.records if told(result)["error_id"] in r.getMessage()]
            assert name in record.getMessage()
    assert "hunter2" not in caplog.text


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("where", ["running", "waiting"])
@pytest.mark.parametrize("name", ["read", "write"])
def test_a_real_ctrl_c_passes(where, name):
    """The ``KeyboardInterrupt`` of trio's signal handler leaves the engine; the attempt is settled as cut off by its caller."""
    store = MemoryStore()
    states: list[str] = []

    async def probed() -> None:
        if where == "running":
            press_ctrl_c()
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(press_ctrl_c)
        await trio.sleep_forever()

    declared = (read if name == "read" else write)(probed)

    async def main() -> None:
        async with bench(declared, store=store) as b:
            try:
                await b.call("probed", request_id="r")
            finally:
                states.append(await b.state("r"))
                states.append(str(b.running))

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert states == ["free" if name == "read" else "interrupted", "0"]


async def test_a_closed_coroutine_closes_what_it_awaits():
    """Closing our coroutine is no fault of the code that it awaits, whatever that does about it."""
    seen: list[str] = []

    async def foreign() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("closed")
            raise SystemExit

    awaiting = await_foreign(foreign())
    awaiting.__await__().send(None) if hasattr(awaiting, "__await__") else awaiting.send(None)
    awaiting.close()
    assert seen == ["closed"]


async def test_the_partial_application_of_a_sink_is_called():
    """A callable of any make is as good as a function."""
    seen: list[object] = []

    class Partial:
        record = staticmethod(functools.partial(seen.append))

    async with bench(sinks=[Partial()]) as b:
        await b.code("read")
    assert len(seen) == 1


@pytest.mark.parametrize("how", ["alone", "cause", "context", "group", "handled", "thread"])
async def test_a_validation_error_is_logged_without_its_input(how, caplog):
    """What a tool lets out of pydantic is in the log with its places and reasons, not with the values; in process it is whole."""

    class Order(pydantic.BaseModel):
        count: int

    def fail() -> None:
        try:
            Order.model_validate({"count": SECRET})
        except pydantic.ValidationError as error:
            if how == "cause":
                raise RuntimeError("no order") from error
            if how == "context":
                raise RuntimeError("no order")  # noqa: B904 - on purpose
            if how == "group":
                raise ExceptionGroup("orders", [error, LookupError()]) from error
            if how != "handled":
                raise
        else:
            raise AssertionError
        raise RuntimeError("no order")

    @read
    async def probed() -> None:
        fail()

    @read
    def threaded() -> None:
        fail()

    async with bench(probed, threaded) as b:
        result = await b.call("threaded" if how == "thread" else "probed")
    assert code(result) == "TOOL_PANIC"
    assert "hunter2" not in caplog.text
    if how == "handled":
        return
    assert "Input should be a valid integer" in caplog.text
    kept = result.exception
    found = kept.exceptions[0] if how == "group" else kept.__cause__ if how == "cause" else kept.__context__
    whole = kept if how in ("alone", "thread") else found
    assert isinstance(whole, pydantic.ValidationError)
    assert "hunter2" in str(whole)


def _long_chain(*, of: int, text: str = "again") -> Exception:
    error = RuntimeError(text)
    for number in range(of):
        outer = RuntimeError(f"{text} {number}")
        outer.__cause__ = error
        error = outer
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: RuntimeError("begin" + "x" * 20_000_000 + "end"),
        lambda: RuntimeError("x\n" * 1_000_000),
        lambda: _long_chain(of=20_000),
        lambda: _long_chain(of=50, text="x" * 100_000),
        lambda: ExceptionGroup("all", [_long_chain(of=20_000), _long_chain(of=20_000)]),
    ],
    ids=["long text", "many lines", "long chain", "long texts in a chain", "long chains in a group"],
)
async def test_the_text_of_a_failure_is_bounded_in_the_log(make, caplog):
    """However long the texts and causes of an exception are, one failed call writes at most `MAX_TRACEBACK_CHARACTERS` and some lines."""
    error = make()

    @read
    async def probed() -> None:
        raise error

    async with bench(probed) as b:
        result = await b.call("probed")
    assert code(result) == "TOOL_PANIC"
    assert "tool probed failed" in caplog.text
    assert "omitted" in caplog.text
    assert len(caplog.text) < MAX_TRACEBACK_CHARACTERS + 4096


def test_a_long_traceback_is_logged_with_its_beginning_and_end(caplog):
    """The line between them states how many characters are missing, and the links of the exception are as before."""
    error = _long_chain(of=150)
    cause: BaseException = error
    for _ in range(100):
        assert cause.__cause__ is not None
        cause = cause.__cause__
    beyond = cause.__cause__
    log_traceback(logging.getLogger("carmy"), error, "it failed")
    assert "more than 100 causes; earlier ones are omitted" in caplog.text
    assert "again 149" in caplog.text
    assert "again 40" not in caplog.text
    assert cause.__cause__ is beyond

    caplog.clear()
    log_traceback(logging.getLogger("carmy"), RuntimeError("begin" + "x" * 100_000 + "end"), "it failed")
    (record,) = caplog.records
    size = len("RuntimeError: beginend\n") + 100_000
    assert f"\n[{size - MAX_TRACEBACK_CHARACTERS} characters omitted]\n" in record.getMessage()
    assert record.getMessage().startswith("it failed\nRuntimeError: beginx")
    assert record.getMessage().endswith("xend\n")


def _same_group_again(levels: int) -> Exception:
    group: Exception = ValueError("leaf")
    for _ in range(levels):
        group = ExceptionGroup("level", [group, group])
    return group


def _deep_group(levels: int) -> Exception:
    group: Exception = ValueError("leaf")
    for level in range(levels):
        group = ExceptionGroup(f"level {level}", [group])
    return group


@pytest.mark.parametrize("make", [partial(_same_group_again, 60), partial(_deep_group, 5000)])
async def test_a_group_of_groups_is_logged_in_linear_time(make, caplog):
    """A group that holds one group twice, at sixty levels, has 2**60 leaves: each group is shown once, and not too deep."""
    error = make()

    @read
    async def probed() -> None:
        raise error

    async with bench(probed) as b:
        assert await b.code("probed") == "TOOL_PANIC"
    assert "level" in caplog.text
    assert len(caplog.text) < MAX_TRACEBACK_CHARACTERS + 4096


def test_a_group_that_is_there_twice_is_shown_once(caplog):
    """A mark replaces the second one in the log; the exceptions themselves do not change."""
    inner = ExceptionGroup("inner", [ValueError("leaf")])
    outer = ExceptionGroup("outer", [inner, inner])
    log_traceback(logging.getLogger("carmy"), outer, "it failed")
    assert caplog.text.count("ValueError: leaf") == 1
    assert "a group that is shown above" in caplog.text
    assert outer.exceptions == (inner, inner)


async def test_a_call_in_the_clean_up_of_another_one():
    """A call that a cut off tool makes while it cleans up is judged by itself, and what follows the grace is as before."""
    codes: list[str] = []

    @write
    async def inner(how: str) -> None:
        if how == "fault":
            raise LookupError
        raise foreign()

    @write
    async def outer() -> None:
        try:
            await trio.sleep_forever()
        finally:
            codes.append(await b.code("inner", {"how": "fault"}))

    async with bench(inner, outer) as b:
        for _ in range(2):
            assert await b.code("outer", timeout_ms=10) == "TIMEOUT"
            assert await b.code("inner", {"how": "cancelled"}) == "TOOL_PANIC"
    assert codes == ["TOOL_PANIC", "TOOL_PANIC"]
