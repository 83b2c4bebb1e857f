"""Whatever a tool raises ends its own call only, and tells the caller nothing that it should not."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import types
import weakref
from collections.abc import AsyncGenerator
from functools import partial

import pytest
import trio
import trio.testing

from carmy_engine import AgentError, Settings
from carmy_engine.codec import answer_body
from tests.engine.kit import bench, code, read, request, told, write


class OwnBase(BaseException):
    """Not an `Exception`."""


RAISED = [
    ValueError("hunter2"),
    SystemExit("hunter2"),
    SystemExit(0),
    KeyboardInterrupt("hunter2"),
    OwnBase("hunter2"),
    StopIteration("hunter2"),
    StopAsyncIteration("hunter2"),
    RecursionError("hunter2"),
    MemoryError("hunter2"),
    ExceptionGroup("hunter2", [ValueError("hunter2"), LookupError("hunter2")]),
    BaseExceptionGroup("hunter2", [ExceptionGroup("inner", [ValueError("hunter2")]), OwnBase("hunter2")]),
    trio.TooSlowError("hunter2"),
    trio.BrokenResourceError("hunter2"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["coroutine", "thread", "nursery"])
async def test_anything_raised_is_a_crash_of_that_call(error, kind, caplog):
    """Any exception is ``TOOL_PANIC`` with an id that the log has, without its text; the engine goes on."""

    @read
    async def coroutine() -> None:
        raise error

    @read
    def thread() -> None:
        raise error

    @read
    async def nursery() -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep_forever)
            async with trio.open_nursery() as inner:
                inner.start_soon(trio.sleep_forever)
                raise error

    async with bench(coroutine, thread, nursery) as b:
        result = await b.call(kind)
        assert code(result) == "TOOL_PANIC"
        assert result.status == "failed"
        assert "hunter2" not in str(result.error)
        assert not told(result).keys() - {"error_id"}
        assert told(result)["error_id"] in caplog.text
        assert "hunter2" in caplog.text or error.args == (0,)
        assert result.exception is not None
        assert await b.code("echo", {"text": "alive"}) == "ok"
        assert b.running == 0


@write
async def opens_a_scope(wait: bool = False) -> int:
    """Leaves it open."""
    trio.CancelScope().__enter__()
    if wait:
        await trio.sleep_forever()
    return 1


@write
async def leaves_a_generator() -> int:
    """Leaves it in the middle of a scope."""

    async def numbers():
        with trio.fail_after(5):
            yield 1

    stopped.append(numbers())
    return await anext(stopped[-1])


stopped: list[AsyncGenerator[int, None]] = []


@pytest.mark.parametrize("name", ["opens_a_scope", "leaves_a_generator"])
async def test_a_scope_that_is_left_open_is_a_crash_of_that_call(name, caplog):
    """Trio's complaint about it ends neither the caller nor the bookkeeping: the outcome is recorded, returned and replayed."""
    async with bench(opens_a_scope, leaves_a_generator) as b:
        result = await b.call(name, request_id="r")
        assert code(result) == "TOOL_PANIC"
        assert "stack corrupted" in caplog.text
        assert [event.kind for event in await b.events(name)][-2:] == ["tool.completed", "execution.completed"]
        again = await b.call(name, request_id="r")
        assert again.replayed
        assert again.execution_id == result.execution_id
        assert await b.code("echo", {"text": "alive"}) == "ok"
        assert b.running == 0
        assert [record.error_code for record in b.sink.records] == ["TOOL_PANIC", "TOOL_PANIC", "TOOL_PANIC", None]
    while stopped:
        await stopped.pop().aclose()


async def test_a_scope_that_is_left_open_by_a_cancel():
    """It does not hide that the caller has gone: the cancel goes on its way, and the effect is in doubt."""
    async with bench(opens_a_scope) as b:
        with trio.move_on_after(60) as caller:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(b.call, "opens_a_scope", {"wait": True}, request_id="r"))
                await trio.testing.wait_all_tasks_blocked()
                caller.cancel()
        assert caller.cancelled_caught
        assert await b.state("r") == "interrupted"
        assert b.running == 0


@types.coroutine
def steps_of(call):
    """Go through its steps, as whoever awaits it does, until it is closed."""
    message = None
    while inspect.getcoroutinestate(call) != inspect.CORO_CLOSED:
        message = yield call.send(message)


async def test_a_call_that_is_thrown_away():
    """A coroutine that is closed in the middle of a call raises trio's error, and does not go on."""

    @write
    async def waits() -> None:
        await trio.sleep_forever()

    async with bench(waits) as b, trio.open_nursery() as nursery:
        call = b.engine.execute(request("waits", request_id="r"))

        async def begin():
            await steps_of(call)

        nursery.start_soon(begin)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="unrelated"):
            call.close()
        assert b.running == 0
        assert await b.state("r") == "running"
        nursery.cancel_scope.cancel()
    assert len(b.sink) == 0


async def test_a_single_leaf_is_unwrapped():
    """In process, the result holds the exception itself, not the groups round it, and unwraps from it."""
    error = ValueError("v")

    @read
    async def boom() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error

    async with bench(boom) as b:
        result = await b.call("boom")
        assert result.exception is error
        with pytest.raises(AgentError) as caught:
            result.unwrap()
        assert caught.value.__cause__ is error


async def test_declared_errors_pass_through_groups():
    """Groups that hold nothing but declared errors (and cancelled siblings) are the first of them; mixed ones are a crash."""

    def declared(number: int) -> AgentError:
        return AgentError(f"CODE_{number}", "m", "conflict", details={"n": number})

    @read
    async def both(mixed: bool) -> None:
        inner = ExceptionGroup("b", [declared(2), ValueError("x")] if mixed else [declared(2)])
        raise ExceptionGroup("a", [declared(1), inner])

    async with bench(both) as b:
        result = await b.call("both", {"mixed": False})
        assert code(result) == "CODE_1"
        assert told(result) == {"n": 1}
        assert await b.code("both", {"mixed": True}) == "TOOL_PANIC"


async def test_a_cancel_made_by_the_tool_itself():
    """A tool that cancels its own scope has not been cancelled: it simply goes on."""

    @read
    async def own() -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()
        return "went on"

    async with bench(own) as b:
        assert (await b.call("own")).data == "went on"


async def test_development_exposes_type_and_message():
    """With ``expose_errors`` the caller sees every leaf; without it, none."""
    settings = Settings(expose_errors=True)
    async with bench(settings=settings) as b:
        (leaf,) = told(await b.call("read", {"then": "crash_in_nursery"}))["exceptions"]
        assert leaf == {"type": "ScriptedError", "message": "hunter2"}


async def test_the_log_has_the_traceback(caplog):
    """The log has the traceback under the id that the caller was given."""
    async with bench() as b:
        result = await b.call("read", {"then": "crash"})
    (record,) = [r for r in caplog.records if told(result)["error_id"] in r.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "act" in caplog.text


async def test_details_that_are_no_json_are_left_out(caplog):
    """An error of a tool whose details cannot be written as JSON is answered without them, and the log reports it."""

    @read
    async def odd() -> None:
        raise AgentError("ODD", "m", "conflict", details={"o": object()})

    async with bench(odd) as b:
        result = await b.call("odd")
    assert code(result) == "ODD"
    assert told(result) is None
    assert "ODD" in caplog.text


async def test_details_of_a_policy_that_are_no_json_are_left_out():
    """The same holds for what refuses a call."""

    class Odd:
        def check(self, context, spec):
            raise AgentError("ODD", "m", "conflict", details={"o": object()})

        def is_listed(self, context, spec):
            return True

    @read
    async def good() -> None:
        pass

    async with bench(good, policies=[Odd()]) as b:
        result = await b.call("good")
    assert (code(result), told(result)) == ("ODD", None)
    assert answer_body(result)


async def test_texts_that_are_no_unicode_can_still_be_sent():
    """A message may hold the name of any file: what cannot be sent of it becomes a question mark."""

    @read
    async def odd() -> None:
        name = os.fsdecode(b"caf\xe9 \xc3\xa9")
        raise AgentError("ODD", f"no {name}", "conflict", suggested_action=f"make {name}")

    async with bench(odd) as b:
        result = await b.call("odd")
    assert (result.error.message, result.error.suggested_action) == ("no caf? é", "make caf? é")
    assert answer_body(result)


async def test_a_result_does_not_keep_the_tools_frames(monkeypatch):
    """What the engine remembers of a crash holds no exception, and so none of the tool's objects."""
    monkeypatch.setattr(
        logging.getLogger("carmy.engine"), "disabled", True
    )  # captured log records hold the exception as well

    class Big:
        pass

    kept = []

    @read
    async def boom() -> None:
        big = Big()
        kept.append(weakref.ref(big))
        raise ValueError(big)

    async with bench(boom) as b:
        result = await b.call("boom")
        execution_id = result.execution_id
        del result
        gc.collect()
        assert kept[0]() is None
        summary = b.engine.lookup(execution_id)
        assert summary is not None
        assert summary.result is not None
        assert summary.result.exception is None
        assert code(summary.result) == "TOOL_PANIC"
